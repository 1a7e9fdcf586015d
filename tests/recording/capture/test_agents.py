"""Agents from elsewhere, compared with a run of the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.errors import CheckpointError, ConfigError
from marlnb.recording.capture.recorder import record
from marlnb.training.policies.agents import Agents
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run
from tests.recording.runs import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("agents") / "run", SimpleSpeakerListenerConfig())


def test_the_same_weights_score_and_record_the_same(run: Run, tmp_path: Path) -> None:
    agents = Agents(run.policies(), run.experiment.env, tmp_path / "copied", n_envs=run.n_envs, source="a copy")
    theirs, mine = evaluate(agents, episodes=6), evaluate(run, episodes=6)
    assert theirs.return_mean == mine.return_mean
    with record(agents, episodes=3, name="a", progress=False) as copied:
        assert copied.experiment is None and copied.source == "a copy"
        assert copied.checkpoint == agents.origin() and len(copied.checkpoints) == 1
        with record(run, episodes=3, name="b", progress=False) as own:
            for site in own.sites:
                assert (copied[site].to_numpy() == own[site].to_numpy()).all()


def test_another_weight_is_another_origin(run: Run, tmp_path: Path) -> None:
    policies = run.policies()
    before = Agents(policies, run.experiment.env, tmp_path).origin()
    parameter = next(policies["listener"].parameters())
    parameter.data.flatten()[0] += 1e-3
    assert Agents(policies, run.experiment.env, tmp_path).origin() != before


def test_policies_that_do_not_fit_are_an_error(run: Run, tmp_path: Path) -> None:
    policies = run.policies()
    with pytest.raises(ConfigError, match="listener"):
        Agents({"speaker": policies["speaker"]}, run.experiment.env, tmp_path)
    with pytest.raises(ConfigError, match="observation shape"):
        swapped = {"speaker": policies["listener"], "listener": policies["speaker"]}
        Agents(swapped, run.experiment.env, tmp_path)
    with pytest.raises(CheckpointError, match="one set of weights"):
        Agents(policies, run.experiment.env, tmp_path).policies(12)


def test_captured_sites_are_the_bits_that_fired_and_recomputed_ones_their_roundings(run: Run) -> None:
    with record(run, episodes=5, name="fired", fill="captured", progress=False) as fired:
        with record(run, episodes=5, name="computed", progress=False) as computed:
            for site in fired.sites:
                filled = [recording.file[f"activations/{site}"].attrs["filled"] for recording in (fired, computed)]
                assert filled == ["captured", "recomputed"]
                assert computed[site].to_numpy() == pytest.approx(fired[site].to_numpy(), abs=1e-5)
        head = fired["listener/actor/head"].to_numpy()
        assert (head == fired.steps("listener", "logits").to_numpy()).all()
    with pytest.raises(ConfigError, match="captured"):
        record(run, episodes=5, name="else", fill="hooked", progress=False)  # type: ignore[arg-type]


def test_episodes_of_equal_length_are_in_order(run: Run) -> None:
    with record(run, episodes=14, n_envs=4, name="order", progress=False) as recording:
        assert recording.episodes.index.tolist() == list(range(14))
        assert recording.rows["episode"].tolist() == [number for number in range(14) for _ in range(25)]
        assert (recording.episodes["start"].to_numpy() == 25 * np.arange(14)).all()
