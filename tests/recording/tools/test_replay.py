"""replay: a recorded episode is reproduced bit for bit, and a changed number is located."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pytest

import marlnb as mnb
from marlnb.config import ENVIRONMENTS, EnvConfig, ModelConfig
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import RecordingError
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.replay import Reproduction
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run


def recorded(path: Path, env: EnvConfig, model: ModelConfig | None = None, **options: object) -> Recording:
    run = make_run(path / "run", env, model, centralised=False)
    return record(run, progress=False, **{"episodes": 5, "n_envs": 3, **options})  # type: ignore[arg-type]


def is_replayed(recording: Recording, episode: int) -> Reproduction:
    """All but what was computed for many rows at once is the same bits; that is, to rounding."""
    result = mnb.replay(recording, episode)
    inexact = [difference.path for difference in result.differences]
    assert all(path.startswith("activations/") or path.endswith("/value") for path in inexact), result
    assert result.largest < 1e-5
    assert {"steps/t", "steps/state"} - {"steps/state"} <= set(result.compared)
    return result


@pytest.mark.parametrize("explore", [False, True])
def test_native_mpe(tmp_path: Path, explore: bool) -> None:
    recording = recorded(tmp_path, SimpleSpreadConfig(max_cycles=6), explore=explore)
    for episode in (0, 4):
        result = is_replayed(recording, episode)
        assert result.n_rows == 6 and result.actions == "recorded"
        assert ("steps/agent/action" in result.compared) is not explore
        assert "steps/agent/observation" in result.compared and "steps/agent/reward" in result.compared


def test_recurrent_policies_and_dying_agents(tmp_path: Path) -> None:
    recording = recorded(tmp_path, LivesConfig(), GRUConfig(), every=2)
    result = is_replayed(recording, 3)
    assert result.actions == "recomputed"
    assert any(path.startswith("recurrent/") for path in result.compared)


@pytest.mark.parametrize("name", ["pettingzoo/simple_speaker_listener", "pettingzoo/tictactoe"])
def test_pettingzoo_and_turns(tmp_path: Path, name: str) -> None:
    recording = recorded(tmp_path, ENVIRONMENTS.get(name)(workers=0), n_envs=2, episodes=3)
    is_replayed(recording, 2)


def test_captured_activations_are_captured_again(tmp_path: Path) -> None:
    recording = recorded(tmp_path, SimpleSpreadConfig(max_cycles=25), GRUConfig(), fill="captured", values=False)
    result = mnb.replay(recording, 1)
    assert result.exact and any(path.startswith("activations/") for path in result.compared), result


def test_edits_read_the_number_of_the_episode(tmp_path: Path) -> None:
    donor = recorded(tmp_path, SimpleSpreadConfig(max_cycles=6))
    patch = mnb.Patch("agent/actor/hidden_1", source=donor, episode="other")  # type: ignore[arg-type]
    with record(Run.open(tmp_path / "run"), edits=[patch], episodes=5, n_envs=2, name="patched", progress=False) as it:
        for episode in (1, 4):
            is_replayed(it, episode)
    donor.close()


def test_a_changed_number_is_located(tmp_path: Path) -> None:
    recording = recorded(tmp_path, SimpleSpreadConfig(max_cycles=6))
    recording.close()
    with h5py.File(recording.path, "r+") as file:
        row = int(file["episodes/start"][:][file["episodes/episode"][:] == 2][0]) + 4
        file["steps/agent/reward"][row, 1] += 0.5
    diff = mnb.replay(Recording.open(recording.path), 2)
    worst = diff.differences[0]
    assert not diff.exact and (worst.path, worst.t, worst.agent, worst.rows) == ("steps/agent/reward", 4, "agent_1", 1)
    assert worst.largest == pytest.approx(0.5, abs=1e-5)
    assert "most of all steps/agent/reward by 0.5 at t=4, agent_1" in repr(diff)
    assert len(diff.table()) == len(diff.compared)


def test_refusals(tmp_path: Path) -> None:
    recording = recorded(tmp_path, SimpleSpreadConfig(max_cycles=6), explore=True, agents=["agent_0"])
    with pytest.raises(RecordingError, match=r"sampled, and those of \['agent_1', 'agent_2'\] were not recorded"):
        mnb.replay(recording, 0)
    with pytest.raises(RecordingError, match="no finished episode 9"):
        mnb.replay(recording, 9)
    elsewhere = tmp_path / "elsewhere.h5"
    shutil.copy(recording.path, elsewhere)
    with pytest.raises(RecordingError, match="give policy_source="):
        mnb.replay(Recording.open(elsewhere), 0)
    shorter = SimpleSpreadConfig(max_cycles=6, local_ratio=0.1)
    run = Run.open(tmp_path / "run")
    with record(run, episodes=2, env=shorter, sites=[], name="other_env", progress=False) as in_other:
        for play_again in (mnb.replay, mnb.animate):
            with pytest.raises(
                RecordingError, match=r"in an environment with local_ratio=0\.1, but .* local_ratio=0\.5"
            ):
                play_again(in_other, 0)
        assert mnb.replay(in_other, 1, env=shorter).exact
    other = make_run(tmp_path / "other", SimpleSpreadConfig(max_cycles=6), centralised=False, seed=5)
    with pytest.raises(RecordingError, match="was made by weights"):
        mnb.replay(Recording.open(elsewhere), 0, policy_source=other)
