"""Recordings of torchrl collectors: every frame is a row, episodes span batches, other calls add nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.modules import MultiAgentMLP, ProbabilisticActor

import marlnb as mnb
from marlnb.config import ModelConfig
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import AnalysisError, RecordingError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.collectors.collector import CollectorRecorder, record_collector
from marlnb.recording.tools.recorded_policies import origin_at, policies_of
from marlnb.training.policies.agents import Agents
from tests.recording.runs import make_run

with warnings.catch_warnings():  # torchrl deprecates what its own collectors are made of
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector

pytestmark = pytest.mark.filterwarnings("ignore")  # torchrl's own
ENV = SimpleSpreadConfig(max_cycles=7)


@pytest.fixture(scope="module")
def actor() -> ProbabilisticActor:
    torch.manual_seed(0)
    net = MultiAgentMLP(
        n_agent_inputs=18, n_agent_outputs=5, n_agents=3, centralised=False, share_params=False, num_cells=[16]
    )
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
        log_prob_key=("agent", "log_prob"),
    )


def collector_of(actor: Any, *, frames: int, total: int) -> Collector:
    return Collector(lambda: mnb.as_torchrl(ENV.build(2)), actor, frames_per_batch=frames, total_frames=total)


class KeepsBatches:
    """Keeps copies of a collector's batches."""

    def __init__(self, collector: Any) -> None:
        self.collector, self.batches = collector, []  # type: ignore[var-annotated]

    def __iter__(self) -> Iterator[TensorDictBase]:
        for batch in self.collector:
            self.batches.append(batch.clone())
            yield batch


@pytest.fixture(scope="module")
def gathered(actor: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, TensorDictBase, Any]:
    """3 batches of 2 envs × 5 frames, of episodes of 7: each crosses a batch."""
    folder = tmp_path_factory.mktemp("collected")
    agents = mnb.agents_from_torchrl(actor, ENV, path=folder)
    keeps_batches = KeepsBatches(collector_of(actor, frames=10, total=30))
    recording = record_collector(keeps_batches, agents, folder / "recordings" / "collected.h5")
    keeps_batches.collector.shutdown()
    return recording, torch.cat(keeps_batches.batches, dim=1), agents


def test_rows_are_the_frames(gathered: Any) -> None:
    recording, batch, _ = gathered
    assert len(recording) == batch.numel() == 30  # and not the call that the collector made when it was built
    table = recording.episodes
    assert sorted(table["length"]) == [1, 1, 7, 7, 7, 7] and list(table["length"]) == [7, 7, 7, 7, 1, 1]
    assert list(table["finished"]) == [True] * 4 + [False] * 2
    rows = recording.rows
    observation = recording.steps("agent", "observation").to_numpy()
    action = recording.steps("agent", "action").to_numpy()
    reward = recording.steps("agent", "reward").to_numpy()
    log_prob = recording.steps("agent", "log_prob").to_numpy()
    t_of_env = {0: 0, 1: 0}
    for row in range(30):
        env_index = int(rows["env_id"].iloc[row])
        frame = batch[env_index, t_of_env[env_index]]
        assert int(rows["t"].iloc[row]) == t_of_env[env_index] % 7
        t_of_env[env_index] += 1
        np.testing.assert_array_equal(observation[row], frame["agent", "observation"])
        np.testing.assert_array_equal(action[row], frame["agent", "action"])
        np.testing.assert_allclose(reward[row], frame["next", "agent", "reward"][:, 0])
        np.testing.assert_allclose(log_prob[row], frame["agent", "log_prob"].reshape(-1)[:3], atol=1e-6)


def test_hidden_states_are_each_agents_own(gathered: Any, actor: Any) -> None:
    recording, _, _ = gathered
    observation = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    net = actor.module[0].module
    hidden = recording["agent/actor/hidden_1"].to_numpy()
    for agent in range(3):
        weight, bias = net.params["0", "weight"][agent], net.params["0", "bias"][agent]
        expected = (observation[:, agent] @ weight.T + bias).tanh().detach()
        np.testing.assert_allclose(hidden[:, agent], expected, atol=1e-6)


def test_analyses_read_it(gathered: Any) -> None:
    recording, _, agents = gathered
    attribution = mnb.attribute(recording, group="agent", policies=agents.by_group, progress=False)
    assert np.abs(attribution.convergence_delta).max() < 1e-2
    assert recording.source == "torchrl" and recording.experiment is None


def test_weights_that_change_between_batches_are_checkpoints(actor: Any, tmp_path: Path) -> None:
    """The same weights have the same number, also where others were between them."""
    own = deepcopy(actor)
    agents = mnb.agents_from_torchrl(own, ENV, path=tmp_path)
    weight = own.module[0].module.params["0", "weight"]
    first = weight.detach().clone()
    collector = collector_of(own, frames=14, total=56)
    with CollectorRecorder(agents, tmp_path / "recording.h5") as recorder:
        for number, batch in enumerate(collector):
            recorder.add(batch)
            with torch.no_grad():
                weight.copy_(first if number == 1 else weight * 1.5)
    collector.shutdown()
    recording = mnb.Recording.open(tmp_path / "recording.h5")
    table = recording.checkpoints
    assert table["iteration"].tolist() == [0, 1, 0, 1] and len(set(table["sha256"])) == 2
    assert recording["agent/actor/hidden_1"].sel(checkpoint=1).shape[0] == 28
    with pytest.raises(AnalysisError, match=r"spans checkpoints \[0, 1\], each with other networks"):
        mnb.decode(recording, site="agent/actor/hidden_1", label="velocity_x", agent="agent_0")
    made_first, made_last = (origin_at(recording, row) for row in (0, 55))
    with torch.no_grad():
        weight.copy_(first * 1.5)
    assert policies_of(recording, agents, made_last)["agent"] is agents.by_group["agent"]
    with pytest.raises(RecordingError, match=r"made by weights .* \(iteration 0\)"):
        policies_of(recording, agents, made_first)


def test_an_episode_that_crosses_batches_has_the_weights_of_each(actor: Any, tmp_path: Path) -> None:
    own = deepcopy(actor)
    agents = mnb.agents_from_torchrl(own, ENV, path=tmp_path)
    collector = Collector(lambda: mnb.as_torchrl(ENV.build(1)), own, frames_per_batch=5, total_frames=20)
    played_by: list[str] = []
    with CollectorRecorder(agents, tmp_path / "recording.h5") as recorder:
        for batch in collector:
            played_by += [agents.origin().sha256] * 5
            recorder.add(batch)
            with torch.no_grad():
                own.module[0].module.params["0", "weight"].mul_(1.5)
    collector.shutdown()
    with mnb.Recording.open(tmp_path / "recording.h5") as recording:
        table = recording.checkpoints
        assert table[["row_start", "row_stop"]].to_numpy().tolist() == [[0, 5], [5, 10], [10, 15], [15, 20]]
        assert table["iteration"].tolist() == [0, 1, 2, 3]
        assert table["sha256"].tolist() == played_by[::5] and recording.rows["t"].tolist()[:8] == [*range(7), 0]
        assert recording.episodes["length"].tolist() == [7, 7, 6]


@pytest.mark.parametrize("critic", [MLPConfig(), GRUConfig()])
def test_values_need_no_state_that_frames_lack(gathered: Any, tmp_path: Path, critic: ModelConfig) -> None:
    """From a zero state at every step, a recurrent critic's values would be wrong from the second step on."""
    _, batch, _ = gathered
    run = make_run(tmp_path / "run", ENV, MLPConfig(), critic, centralised=False)
    agents = Agents(run.policies(), ENV, tmp_path)
    with record_collector([batch], agents, tmp_path / "recording.h5") as recording:
        assert ("value" in recording.fields("agent")) == isinstance(critic, MLPConfig)
        assert "logits" in recording.fields("agent")


def test_episodes_of_unknown_seeds_cannot_be_played_again(gathered: Any) -> None:
    recording, _, agents = gathered
    for play_again in (mnb.replay, mnb.animate):
        with pytest.raises(RecordingError, match="episode 1 cannot be played again, because its seed is unknown"):
            play_again(recording, 1, policy_source=agents)


def test_padded_trajectories_are_an_error(actor: Any, tmp_path: Path, gathered: Any) -> None:
    _, batch, agents = gathered
    padded = batch.clone()
    padded["collector", "mask"] = torch.ones(2, 15, dtype=torch.bool)
    with pytest.raises(RecordingError, match="split_trajs=False"):
        record_collector([padded], agents, tmp_path / "recording.h5")
    with pytest.raises(RecordingError, match="group_map"):
        record_collector([batch], agents, tmp_path / "recording.h5", group_map={"agent": "walkers"})


def test_an_existing_file_and_a_used_collector_are_errors(actor: Any, tmp_path: Path, gathered: Any) -> None:
    """A used collector must not return the recording of another call."""
    recording, _, agents = gathered
    with pytest.raises(RecordingError, match="already exists"):
        record_collector([], agents, recording.path)
    with pytest.raises(RecordingError, match="gathered nothing"):
        record_collector([], agents, tmp_path / "nothing.h5")
    assert not (tmp_path / "nothing.h5").exists()


def test_activations_beyond_float16_are_an_error(gathered: Any, actor: Any, tmp_path: Path) -> None:
    _, batch, agents = gathered
    large = deepcopy(actor)
    with torch.no_grad():
        for parameter in large.parameters():
            parameter *= 1e6
    with pytest.raises(
        RecordingError, match="above float16's maximum of 65504; record with dtype='bfloat16' or 'float32'"
    ):
        record_collector([batch], mnb.agents_from_torchrl(large, ENV), tmp_path / "halves.h5", dtype="float16")
    with record_collector([batch], agents, tmp_path / "small.h5", dtype="float16") as recording:
        assert len(recording) == batch.numel()


def test_bfloat16_rounds_float32(gathered: Any, tmp_path: Path) -> None:
    _, batch, agents = gathered
    with record_collector([batch], agents, tmp_path / "whole.h5") as recording:
        exact = recording["agent/actor/hidden_1"].to_numpy()
    with record_collector([batch], agents, tmp_path / "bits.h5", dtype="bfloat16") as halves:
        rounded = torch.from_numpy(exact).bfloat16().float().numpy()
        np.testing.assert_array_equal(halves["agent/actor/hidden_1"].to_numpy(), rounded)
