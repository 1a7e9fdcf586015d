"""The cases of benchmarl_agents: tasks, algorithms and small models of BenchMARL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from benchmarl.algorithms import (
    IddpgConfig,
    IppoConfig,
    IqlConfig,
    IsacConfig,
    MaddpgConfig,
    MappoConfig,
    MasacConfig,
    QmixConfig,
    VdnConfig,
)
from benchmarl.environments import PettingZooTask, VmasTask
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.models.cnn import CnnConfig
from benchmarl.models.common import ModelConfig, SequenceModelConfig
from benchmarl.models.deepsets import DeepsetsConfig
from benchmarl.models.gnn import GnnConfig
from benchmarl.models.gru import GruConfig
from benchmarl.models.lstm import LstmConfig
from benchmarl.models.mlp import MlpConfig
from torchrl.envs import PettingZooWrapper

from tests.training.adapters.pictures import Pictures


@dataclass(frozen=True)
class Case:
    """What is trained.

    frames: in all; a batch is a tenth of them. layers: of the recurrent network, where there is one. critic: the
    policy's model if None. options: of the algorithm.
    """

    task: Any
    algorithm: Any
    shared: bool
    continuous: bool = False
    hidden: tuple[int, ...] = (16, 16)
    frames: int = 2000
    activation: type[torch.nn.Module] = torch.nn.Tanh
    model: type[ModelConfig] | Callable[[Case], ModelConfig] = MlpConfig
    critic: Callable[[Case], ModelConfig] | None = None
    layers: int = 1
    options: tuple[tuple[str, Any], ...] = ()


def configured(kind: Any, case: Case) -> ModelConfig:
    """The model that a case names by its class or makes by a function."""
    if not isinstance(kind, type):
        return kind(case)  # type: ignore[no-any-return]
    model: Any = kind.get_from_yaml()  # type: ignore[attr-defined]
    if model.is_rnn:
        model.hidden_size, model.n_layers = case.hidden[0] + 3, case.layers
        model.mlp_num_cells, model.mlp_activation_class = list(case.hidden), case.activation
    elif isinstance(model, CnnConfig):
        model.cnn_num_cells, model.cnn_kernel_sizes, model.cnn_strides = [4, 3], [3, 2], [1, 2]
        model.cnn_paddings, model.cnn_activation_class = [1, 0], torch.nn.ELU
        model.mlp_num_cells, model.mlp_activation_class = list(case.hidden), case.activation
    elif isinstance(model, DeepsetsConfig):
        model.local_nn_num_cells, model.global_nn_num_cells, model.out_features_local_nn = [7], list(case.hidden), 6
    elif isinstance(model, MlpConfig):
        model.num_cells, model.activation_class = list(case.hidden), case.activation
    return model  # type: ignore[no-any-return]


def chained(*kinds: Any) -> Callable[[Case], ModelConfig]:
    """A sequence of models, five features between each two."""
    return lambda case: SequenceModelConfig([configured(kind, case) for kind in kinds], [5] * (len(kinds) - 1))


def deep_sets(case: Case) -> ModelConfig:
    """A model for sets, where `model` is another one and this is the critic's."""
    return configured(DeepsetsConfig, case)


def attending(case: Case) -> ModelConfig:
    """Attention over a graph without each agent itself, whose heads are averaged."""
    import torch_geometric  # type: ignore[import-not-found]

    return GnnConfig(  # type: ignore[no-any-return]
        topology="full",
        self_loops=False,
        gnn_class=torch_geometric.nn.conv.GATv2Conv,
        gnn_kwargs={"heads": 2, "concat": False},
    )


class PicturesTask(PettingZooClass):
    """tests/training/adapters/pictures.py as a task."""

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Callable[[], Any]:
        return lambda: PettingZooWrapper(Pictures(**self.config), device=device, seed=seed)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def has_state(self) -> bool:
        return False

    def max_steps(self, env: Any) -> int:
        return 10


PICTURES, BYTES = PicturesTask("PICTURES", {}), PicturesTask("BYTES", {"as_bytes": True})
SETS = PicturesTask("SETS", {"shape": (4, 3)})
CASES = {
    "mappo_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, MappoConfig, shared=True, hidden=(32, 32), frames=60_000),
    "mappo_unshared_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, MappoConfig, shared=False),
    "ippo_unshared_navigation": Case(VmasTask.NAVIGATION, IppoConfig, shared=False, continuous=True),
    "iql_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, IqlConfig, shared=True, activation=torch.nn.ReLU),
    "qmix_unshared_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, QmixConfig, shared=False),
    "masac_navigation": Case(VmasTask.NAVIGATION, MasacConfig, shared=True, continuous=True),
    "isac_unshared_navigation": Case(VmasTask.NAVIGATION, IsacConfig, shared=False, continuous=True, hidden=(8, 8)),
    "iddpg_navigation": Case(VmasTask.NAVIGATION, IddpgConfig, shared=True, continuous=True, hidden=(8, 8)),
    "maddpg_unshared_navigation": Case(VmasTask.NAVIGATION, MaddpgConfig, shared=False, continuous=True, hidden=(8, 8)),
    "maddpg_simple_spread": Case(
        PettingZooTask.SIMPLE_SPREAD, MaddpgConfig, shared=True, continuous=True, hidden=(8, 8)
    ),
    "vdn_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, VdnConfig, shared=True, hidden=(8, 8)),
    "ippo_gru_navigation": Case(
        VmasTask.NAVIGATION, IppoConfig, shared=True, continuous=True, hidden=(8,), model=GruConfig, layers=2
    ),
    "mappo_lstm_unshared_simple_spread": Case(
        PettingZooTask.SIMPLE_SPREAD, MappoConfig, shared=False, hidden=(8,), model=LstmConfig
    ),
    "mappo_gru_navigation": Case(
        VmasTask.NAVIGATION, MappoConfig, shared=True, continuous=True, hidden=(8,), model=GruConfig
    ),
    "ippo_cnn_pictures": Case(PICTURES, IppoConfig, shared=True, hidden=(8,), model=CnnConfig),
    "mappo_cnn_unshared_bytes": Case(BYTES, MappoConfig, shared=False, hidden=(8,), model=CnnConfig),
    "mappo_cnn_pictures": Case(PICTURES, MappoConfig, shared=True, hidden=(8,), model=CnnConfig),
    "isac_cnn_pictures": Case(PICTURES, IsacConfig, shared=True, hidden=(8,), model=CnnConfig),
    "ippo_deepsets_sets": Case(SETS, IppoConfig, shared=True, hidden=(8,), model=DeepsetsConfig),
    "mappo_deepsets_unshared_sets": Case(SETS, MappoConfig, shared=False, hidden=(8,), model=DeepsetsConfig),
    "mappo_cnn_each_pictures": Case(
        PICTURES, MappoConfig, shared=False, hidden=(8,), model=CnnConfig, options=(("share_param_critic", False),)
    ),
    "mappo_deepsets_each_sets": Case(
        SETS, MappoConfig, shared=False, hidden=(8,), model=DeepsetsConfig, options=(("share_param_critic", False),)
    ),
    "mappo_gnn_each_navigation": Case(
        VmasTask.NAVIGATION,
        MappoConfig,
        shared=False,
        continuous=True,
        model=GnnConfig,
        options=(("share_param_critic", False),),
    ),
    "masac_deepsets_navigation": Case(
        VmasTask.NAVIGATION, MasacConfig, shared=True, continuous=True, hidden=(8,), critic=deep_sets
    ),
    "mappo_deepsets_navigation": Case(
        VmasTask.NAVIGATION,
        MappoConfig,
        shared=True,
        continuous=True,
        hidden=(8,),
        critic=lambda case: configured(DeepsetsConfig, case),
    ),
    "mappo_gnn_navigation": Case(VmasTask.NAVIGATION, MappoConfig, shared=True, continuous=True, model=GnnConfig),
    "mappo_gat_unshared_navigation": Case(
        VmasTask.NAVIGATION, MappoConfig, shared=False, continuous=True, model=attending
    ),
    "mappo_sequence_unshared_navigation": Case(
        VmasTask.NAVIGATION,
        MappoConfig,
        shared=False,
        continuous=True,
        hidden=(8,),
        model=chained(MlpConfig, GnnConfig, MlpConfig),
        critic=chained(GnnConfig, MlpConfig),
    ),
    "ippo_sequence_pictures": Case(PICTURES, IppoConfig, shared=True, hidden=(8,), model=chained(CnnConfig, GruConfig)),
    "mappo_sequence_pictures": Case(
        PICTURES, MappoConfig, shared=True, hidden=(8,), model=chained(CnnConfig, GruConfig)
    ),
    "isac_unshared_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, IsacConfig, shared=False, hidden=(8,)),
    "masac_simple_spread": Case(PettingZooTask.SIMPLE_SPREAD, MasacConfig, shared=True, hidden=(8,)),
    "masac_discrete_navigation": Case(VmasTask.NAVIGATION, MasacConfig, shared=False, hidden=(8,)),
    "masac_decoupled_simple_spread": Case(
        PettingZooTask.SIMPLE_SPREAD,
        MasacConfig,
        shared=True,
        hidden=(8,),
        options=(("coupled_discrete_values", False),),
    ),
    "masac_decoupled_navigation": Case(
        VmasTask.NAVIGATION, MasacConfig, shared=False, hidden=(8,), options=(("coupled_discrete_values", False),)
    ),
}
