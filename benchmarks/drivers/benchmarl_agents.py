"""How data/benchmarl_simple_spread and tests/training/foreign/data were made: agents that BenchMARL trained.

    .peers/benchmarl/bin/python -m benchmarks.drivers.benchmarl_agents CASE FOLDER

from the repository's root, after `make bench-peers-setup`. FOLDER/CASE is the experiment's folder as BenchMARL leaves
it (config.pkl and the last checkpoint), and expected.npz beside them holds what BenchMARL's own policy and critic make
of random observations, for marlnb's reading of the checkpoint to be held against.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.common import ModelConfig
from benchmarl.models.gru import GruConfig
from benchmarl.models.lstm import LstmConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict

ROWS, STEPS = 16, 4  # steps: of the sequences that recurrent policies are shown


@dataclass(frozen=True)
class Case:
    """What is trained. frames: in all; a batch is a tenth of them. layers: of the memory, where there is one."""

    task: Any
    algorithm: Any
    shared: bool
    continuous: bool = False
    hidden: tuple[int, ...] = (16, 16)
    frames: int = 2000
    activation: type[torch.nn.Module] = torch.nn.Tanh
    model: type[ModelConfig] = MlpConfig
    layers: int = 1


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
}


def settings(case: Case, folder: str) -> ExperimentConfig:
    made = ExperimentConfig.get_from_yaml()
    made.sampling_device = made.train_device = made.buffer_device = "cpu"
    batch = max(case.frames // 50, 200)
    made.on_policy_collected_frames_per_batch = made.off_policy_collected_frames_per_batch = batch
    made.on_policy_n_envs_per_worker = made.off_policy_n_envs_per_worker = 8
    made.on_policy_n_minibatch_iters, made.on_policy_minibatch_size = 10, batch // 2
    made.off_policy_n_optimizer_steps, made.off_policy_train_batch_size = 4, 64
    made.lr, made.gamma = 1e-3, 0.95
    made.max_n_frames, made.max_n_iters = case.frames, None
    made.evaluation, made.render, made.create_json, made.loggers = False, False, False, []
    made.share_policy_params, made.prefer_continuous_actions = case.shared, case.continuous
    made.checkpoint_at_end, made.exclude_buffer_from_checkpoint = True, True
    made.save_folder = folder
    return made


def train(case: Case, folder: str) -> Experiment:
    model: Any = case.model.get_from_yaml()
    if model.is_rnn:
        model.hidden_size, model.n_layers = case.hidden[0] + 3, case.layers
        model.mlp_num_cells, model.mlp_activation_class = list(case.hidden), case.activation
    else:
        model.num_cells, model.activation_class = list(case.hidden), case.activation
    experiment = Experiment(
        task=case.task.get_from_yaml(),
        algorithm_config=case.algorithm.get_from_yaml(),
        model_config=model,
        critic_model_config=model,
        seed=0,
        config=settings(case, folder),
    )
    experiment.run()
    return experiment


def expected(experiment: Experiment) -> dict[str, np.ndarray]:
    """By `<group>/<what>`: random observations and states, and what BenchMARL's policies and critics say of them."""
    if experiment.model_config.is_rnn:
        return expected_in_time(experiment)
    env = experiment.test_env
    seen = env.full_observation_spec_unbatched.expand(ROWS).rand()
    found: dict[str, np.ndarray] = {}
    for group in experiment.group_map:
        seen.set((group, "observation"), torch.randn_like(seen.get((group, "observation"))))
        found[f"{group}/observation"] = seen.get((group, "observation")).numpy()
    if "state" in set(seen.keys()):
        seen.set("state", torch.randn(seen.get("state").shape))
        found["state"] = seen.get("state").numpy()
    for group in experiment.group_map:
        with torch.no_grad():
            policy = experiment.algorithm.get_policy_for_loss(group)
            told = policy(seen.clone())
            for key in ("logits", "action_value", "loc", "scale", "param"):
                if (group, key) in told.keys(True):
                    found[f"{group}/{key}"] = told.get((group, key)).numpy()
            if hasattr(experiment.algorithm, "get_critic"):
                loss = experiment.losses[group]
                critic = loss.critic_network if hasattr(loss, "critic_network") else None
                if critic is not None:
                    with loss.critic_network_params.to_module(critic):
                        found[f"{group}/value"] = critic(seen.clone()).get((group, "state_value")).numpy()
            found |= judged(experiment, group, seen)
    return found


def judged(experiment: Experiment, group: str, seen: TensorDict) -> dict[str, np.ndarray]:
    """Random actions, and Q values `[network, row, agent]` of them, where critics judge continuous actions."""
    loss, spec = experiment.losses[group], experiment.test_env.full_action_spec_unbatched[group, "action"]
    name = next((name for name in ("qvalue_network", "value_network") if hasattr(loss, name)), None)
    if name is None or not hasattr(spec.space, "low"):
        return {}
    seen = seen.clone()
    seen.set((group, "action"), spec.expand(ROWS, *spec.shape).rand())
    params = getattr(loss, f"{name}_params")
    each = [params[k] for k in range(len(params))] if params.ndim else [params]
    values = []
    for one in each:
        with one.to_module(getattr(loss, name)):
            values.append(getattr(loss, name)(seen.clone()).get((group, "state_action_value"))[..., 0].numpy())
    return {f"{group}/action": seen.get((group, "action")).numpy(), f"{group}/q": np.stack(values)}


def expected_in_time(experiment: Experiment) -> dict[str, np.ndarray]:
    """As `expected`, of sequences `[row, time, ...]` that begin without a memory."""
    begins = torch.zeros(ROWS, STEPS, 1, dtype=torch.bool)
    begins[:, 0] = True
    found: dict[str, np.ndarray] = {}
    for group, agents in experiment.group_map.items():
        spec = experiment.test_env.full_observation_spec_unbatched[group, "observation"]
        seen = TensorDict({"is_init": begins}, batch_size=[ROWS, STEPS])
        observation = torch.randn(ROWS, STEPS, *spec.shape)
        seen.set(group, TensorDict({"observation": observation}, batch_size=[ROWS, STEPS, len(agents)]))
        found[f"{group}/observation"] = observation.numpy()
        if "state" in set(experiment.test_env.full_observation_spec_unbatched.keys()):
            shape = experiment.test_env.full_observation_spec_unbatched["state"].shape
            seen.set("state", torch.randn(ROWS, STEPS, *shape))
            found["state"] = seen.get("state").numpy()
        with torch.no_grad():
            told = experiment.algorithm.get_policy_for_loss(group)(seen.clone())
            for key in ("logits", "action_value", "loc", "scale"):
                if (group, key) in told.keys(True):
                    found[f"{group}/{key}"] = told.get((group, key)).numpy()
            loss = experiment.losses[group]
            with loss.critic_network_params.to_module(loss.critic_network):
                found[f"{group}/value"] = loss.critic_network(seen.clone()).get((group, "state_value")).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    made = arguments.folder.absolute() / arguments.case
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        experiment = train(CASES[arguments.case], ".")  # config.pkl keeps where it was written
        (made / "checkpoints").mkdir(parents=True)
        shutil.copy(experiment.folder_name / "config.pkl", made)
        (checkpoint,) = (experiment.folder_name / "checkpoints").iterdir()
        shutil.copy(checkpoint, made / "checkpoints")
        np.savez_compressed(made / "expected.npz", **expected(experiment))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
