from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.cnn import CNNConfig
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig, LSTMConfig
from marlnb.models.networks.configs.sequence import SequenceConfig
from marlnb.models.networks.sequence import NetworkSequence
from marlnb.specs import InputSpec
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

SMALL_CNN = CNNConfig(channels=(3,), kernels=(3,), strides=(2,), hidden=(6,))
SMALL_MLP = MLPConfig(hidden=())
SEEING = SequenceConfig(models=(SMALL_CNN, LSTMConfig(recurrent_size=4), GRUConfig(hidden=(), recurrent_size=3)))
IMAGE = InputSpec(((8, 7, 2),))


@pytest.mark.parametrize("share", [True, False])
def test_it_is_its_models_one_after_the_other(share: bool) -> None:
    network = dataclasses.replace(SEEING, share_parameters=share, widths=(5, 6)).build(3, IMAGE, 2)
    assert isinstance(network, NetworkSequence)
    cnn, lstm, gru = network.networks
    x = torch.randn(4, 3, IMAGE.features)
    state = torch.zeros(4, 3, 3, 4)
    state[..., :2, :], state[..., 2, :3] = torch.randn(4, 3, 2, 4), torch.randn(4, 3, 3)
    output, leaving = network(x, state)
    seen, nothing = cnn(x)
    held, first = lstm(seen, state[..., :2, :])
    expected, second = gru(held, state[..., 2:, :3])
    assert nothing is None and seen.shape[-1] == 5 and held.shape[-1] == 6
    assert torch.equal(output, expected) and leaving is not None
    assert torch.equal(leaving[..., :2, :], first) and torch.equal(leaving[..., 2:, :3], second)
    assert (leaving[..., 2, 3] == 0).all() and network.recurrent_shape == (3, 4)


def test_sites_are_named_by_their_model_and_inner_heads_are_hidden() -> None:
    network = SequenceConfig(models=(MLPConfig(hidden=(5,)), SMALL_MLP, GRUConfig())).build(3, InputSpec(((6,),)), 2)
    kinds = {layer: kind for layer, _, _, kind in network.site_modules()}
    assert kinds == {
        "mlp_1/hidden_1": "hidden",
        "mlp_1/head": "hidden",
        "mlp_2/head": "hidden",
        "gru/hidden_1": "hidden",
        "gru/gru": "recurrent",
        "gru/head": "head",
    }
    assert SequenceConfig(models=(GNNConfig(), MLPConfig())).build(3, InputSpec(((6,),)), 2).cross_agent


@pytest.mark.parametrize("share", [True, False])
def test_it_reads_a_sequence_as_torchs_modules_do(share: bool) -> None:
    """Convolution then GRU, for one agent, from torch's own layers."""
    models = (dataclasses.replace(SMALL_CNN, hidden=()), GRUConfig(hidden=(), recurrent_size=4))
    network = SequenceConfig(models=models, widths=(5,), share_parameters=share).build(2, IMAGE, 3)
    parameters = {name: value if share else value[1] for name, value in network.state_dict().items()}
    convolution, gru = nn.Conv2d(2, 3, 3, 2), nn.GRU(5, 4, batch_first=True)
    first = "networks.0.trunks.0.convs.0"
    convolution.load_state_dict({"weight": parameters[f"{first}.weight"], "bias": parameters[f"{first}.bias"]})
    names = {"weight_ih_l0": "input.weight", "weight_hh_l0": "state.weight"}
    names |= {"bias_ih_l0": "input.bias", "bias_hh_l0": "state.bias"}
    gru.load_state_dict({ours: parameters[f"networks.1.gru.{theirs}"] for ours, theirs in names.items()})
    x = torch.randn(4, 6, 2, IMAGE.features)
    output, _ = network.sequence(x, None, torch.zeros(4, 6, dtype=torch.bool))
    image = x[:, :, 1].reshape(24, 8, 7, 2).permute(0, 3, 1, 2)
    maps = torch.relu(convolution(image)).permute(0, 2, 3, 1).flatten(1)
    read = maps @ parameters["networks.0.head.weight"].T
    states, _ = gru(read.unflatten(0, (4, 6)))
    torch.testing.assert_close(output[:, :, 1], states @ parameters["networks.1.head.weight"].T)


def test_it_is_composed_and_written_as_json() -> None:
    experiment = Experiment.compose(
        "env=mpe/simple_spread", "model=sequence", "model.models=[mlp,{name: gru, recurrent_size: 5}]", "critic=mlp"
    )
    assert experiment.model == SequenceConfig(models=(MLPConfig(), GRUConfig(recurrent_size=5)))
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    with pytest.raises(ConfigError, match=r"model.models\[1\].recurent_size.*recurrent_size"):
        Experiment.compose(
            "env=mpe/simple_spread", "model=sequence", "model.models=[mlp,{name: gru, recurent_size: 5}]"
        )
    with pytest.raises(ConfigError, match=r"model.models\[0\].*'mpl'.*mlp"):
        Experiment.compose("env=mpe/simple_spread", "model=sequence", "model.models=[mpl]")


def test_invalid_sequences_are_errors() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        SequenceConfig(models=())
    with pytest.raises(ConfigError, match="each of the 1 models before the last"):
        SequenceConfig(widths=(3, 4))
    with pytest.raises(ConfigError, match=r"models\[0\] has share_parameters=False"):
        SequenceConfig(models=(MLPConfig(share_parameters=False), MLPConfig()))
    with pytest.raises(ConfigError, match=r"models\[1\] has agent_id=True"):
        SequenceConfig(models=(MLPConfig(), MLPConfig(agent_id=True)))
    assert SEEING.recurrent and not SequenceConfig(models=(SMALL_CNN, MLPConfig())).recurrent


def test_a_training_stopped_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """PPO backpropagates through two recurrent models of different widths, in actor and critic."""
    experiment = Experiment.compose(
        *("env=mpe/simple_spread", "algorithm=mappo", "algorithm.sequence_length=4", "algorithm.epochs=2"),
        *("model=sequence", "model.models=[{name: lstm, recurrent_size: 5}, {name: gru, recurrent_size: 3}]"),
        *("n_envs=4", "rollout_steps=8", "frames=128", "threads=1"),
    )
    with Trainer(experiment, Run.create(tmp_path / "whole", experiment)) as whole:
        expected = [next(whole) for _ in range(4)][-1], _weights(whole)
    with Trainer(experiment, Run.create(tmp_path / "halves", experiment)) as first:
        for _ in range(2):
            next(first)
    with Trainer.resume(Run.open(tmp_path / "halves")) as second:
        assert second.iteration == 2
        actual = [next(second) for _ in range(2)][-1], _weights(second)
    assert actual[0].learning == expected[0].learning
    assert all(torch.equal(actual[1][name], value) for name, value in expected[1].items())
    assert len(expected[1]) > 20 and expected[0].learning["agent"]["grad_norm_actor"] > 0


def _weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.policies["agent"].state_dict().items()}
