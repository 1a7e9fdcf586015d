"""Policies from elsewhere that remember: held to nn.GRU and nn.LSTM, to torchrl's frames, and to modules by hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.modules import MLP, GRUModule, LSTMModule, ProbabilisticActor

import marlnb as mnb
from marlnb.errors import RecordingError, ShapeError
from marlnb.models.adapters.memory import memory_of
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.recording.collectors.collector_batch import entering_state

with warnings.catch_warnings():  # torchrl deprecates what its own environments and collectors are made of
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv, InitTracker, TransformedEnv

pytestmark = pytest.mark.filterwarnings("ignore")  # torchrl's own
SPREAD = "mpe/simple_spread"


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_stacked_layers_are_torchs(kind: type[nn.RNNBase], n_layers: int) -> None:
    torch.manual_seed(0)
    theirs = kind(4, 5, num_layers=n_layers, batch_first=True)
    memory = memory_of(theirs, 3)
    seen = torch.randn(2, 6, 3, 4)  # env, time, agent, feature
    whole, last = theirs(seen.transpose(1, 2).flatten(0, 1))
    state, steps = None, []
    for t in range(6):
        out, state = memory(seen[:, t], state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 2).flatten(0, 1), whole)
    parts = last if isinstance(last, tuple) else (last,)
    assert state is not None
    torch.testing.assert_close(state.flatten(0, 1), torch.cat(parts).transpose(0, 1))
    own = dict(memory.named_parameters())
    assert own["layers.0.input.weight" if kind is nn.GRU else "layers.0.cell.input.weight"] is theirs.weight_ih_l0


class Cell(nn.Module):
    """A user's own: a gated unit with the agents folded into the batch; `heard` mixes the agents' states."""

    def __init__(self, seed: int = 0, *, heard: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.cell, self.head, self.heard = nn.Linear(18, 7), nn.GRUCell(7, 6), nn.Linear(6, 5), heard

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        entering = state.mean(1, keepdim=True).expand_as(state) if self.heard else state
        after = self.cell(self.encoder(x).tanh().flatten(0, 1), entering[:, :, 0].flatten(0, 1)).unflatten(
            0, x.shape[:2]
        )
        return self.head(after), after.unsqueeze(2)


def test_a_module_that_is_handed_its_state(tmp_path: Path) -> None:
    module = Cell()
    agents = mnb.agents_from_module(module, SPREAD, recurrent_shape=(1, 6), path=tmp_path)
    policy = agents.by_group["agent"]
    assert [s.name.rpartition("/")[2] for s in policy.sites()] == ["encoder", "head", "state"]
    assert policy.recurrent_shape == (1, 6) and not policy.cross_agent
    recording = mnb.record(agents, episodes=3, sites="*", progress=False)
    seen = torch.from_numpy(recording.steps("agent", "observation").sel(episode=1).to_numpy())
    state = torch.zeros(1, 3, 1, 6)
    for t, time_step in enumerate(seen):
        entering = recording.recurrent("agent").sel(episode=1).to_numpy()[t]
        np.testing.assert_allclose(entering, state[0].detach(), atol=1e-6)
        logits, state = module(time_step[None], state)
        np.testing.assert_allclose(
            recording.steps("agent", "logits").sel(episode=1).to_numpy()[t], logits[0].detach(), atol=1e-5
        )


def test_one_agents_memory_is_wiped_and_the_others_keep_theirs(tmp_path: Path) -> None:
    modules = {"agent": {f"agent_{k}": Cell(k) for k in range(3)}}
    policy = mnb.agents_from_module(modules, SPREAD, recurrent_shape=(1, 6), path=tmp_path).by_group["agent"]
    seen = torch.randn(4, 3, 18)
    with capture(policy) as activations:
        _, after = policy.logits(seen)
    assert after is not None
    torch.testing.assert_close(activations["agent/actor/agent_1/state"], after[:, 1:2, 0])
    with edited(policy, [Ablate("agent/actor/agent_1/state")]):
        logits, wiped = policy.logits(seen, recurrent=after)
    expected = torch.stack(
        [modules["agent"][f"agent_{k}"](seen[:, k : k + 1], after[:, k : k + 1])[0][:, 0] for k in range(3)], 1
    )
    torch.testing.assert_close(logits, expected)  # what leaves is edited; what came in is not
    assert wiped is not None and not wiped[:, 1].any() and wiped[:, 0].any() and wiped[:, 2].any()


def test_agents_that_hear_each_others_memory_are_known(tmp_path: Path) -> None:
    policy = mnb.agents_from_module(Cell(heard=True), SPREAD, recurrent_shape=(1, 6), path=tmp_path).by_group["agent"]
    assert policy.cross_agent
    with pytest.raises(ShapeError, match=r"expected a next state of shape .*got \[7, 3, 1, 6\]"):
        mnb.agents_from_module(Cell(), SPREAD, recurrent_shape=(2, 6), path=tmp_path)
    with pytest.raises(ShapeError, match="must return"):
        mnb.agents_from_module(Bare(), SPREAD, recurrent_shape=(1, 6), path=tmp_path)


class Bare(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return x[..., :5]


def actor_of(kind: Literal["gru", "lstm"]) -> tuple[Any, ProbabilisticActor]:
    torch.manual_seed(0)
    make = GRUModule if kind == "gru" else LSTMModule
    memory = make(input_size=4, hidden_size=6, num_layers=2, in_key="observation", out_key="embedded")
    head = MLP(in_features=6, out_features=2, num_cells=[5])
    return memory, TensorDictSequential(
        memory,
        ProbabilisticActor(
            TensorDictModule(head, in_keys=["embedded"], out_keys=["logits"]),
            in_keys=["logits"],
            out_keys=["action"],
            distribution_class=torch.distributions.OneHotCategorical,
            return_log_prob=True,
        ),
    )


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_what_a_collector_gathers_of_torchrls_memories(kind: Literal["gru", "lstm"], tmp_path: Path) -> None:
    memory, actor = actor_of(kind)

    def env() -> TransformedEnv:
        made = TransformedEnv(GymEnv("CartPole-v1"), InitTracker())
        made.append_transform(memory.make_tensordict_primer())
        return made

    agents = mnb.agents_from_torchrl(actor, GymEnv("CartPole-v1"), path=tmp_path)
    batches = []
    with mnb.CollectorRecorder(agents, tmp_path / "collected.h5", sites="*") as recorder:
        collector = Collector(env, actor, frames_per_batch=50, total_frames=150)
        for batch in collector:
            batches.append(batch.clone())
            recorder.add(batch)
        collector.shutdown()
    recording = mnb.Recording.open(tmp_path / "collected.h5")
    logits = torch.from_numpy(recording.steps("agent", "logits").to_numpy())[:, 0]
    action = torch.from_numpy(recording.steps("agent", "action").to_numpy())[:, 0]
    log_prob = logits.log_softmax(-1).gather(-1, action[:, None])[:, 0]
    gathered = torch.from_numpy(recording.steps("agent", "log_prob").to_numpy())[:, 0]
    torch.testing.assert_close(log_prob, gathered, atol=1e-5, rtol=0)  # what torchrl itself said as it went along
    frames = torch.cat(batches)
    leaves = "recurrent_state" if kind == "gru" else "recurrent_state_h"
    leaving = frames["next", leaves][:, -1]
    torch.testing.assert_close(
        torch.from_numpy(recording[f"agent/actor/{kind}_2"].to_numpy())[:, 0].sort(0).values,
        leaving.sort(0).values, atol=1e-5, rtol=0,
    )  # fmt: skip
    played = mnb.record(agents, episodes=2, progress=False)  # and by marlnb's own rollouts
    entering = played.recurrent("agent").sel(episode=0).to_numpy()
    left = played[f"agent/actor/{kind}_2"].sel(episode=0).to_numpy()
    np.testing.assert_allclose(entering[1:, 0, 1], left[:-1, 0], atol=1e-6)
    restarted = batches[1].clone()
    restarted["is_init"] = torch.ones_like(restarted["is_init"])
    state = entering_state(agents.by_group["agent"], restarted)
    assert state is not None and not state.any() and restarted[leaves].any()
    batches[0].pop(leaves)
    with pytest.raises(RecordingError, match="have no recurrent_state"):
        mnb.CollectorRecorder(agents, tmp_path / "none.h5").add(batches[0])
