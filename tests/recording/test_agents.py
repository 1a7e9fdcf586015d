"""Agents from elsewhere: held to a run with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.errors import CheckpointError, ConfigError
from marlnb.recording.recorder import record
from marlnb.training.agents import Agents
from marlnb.training.evaluation import evaluate
from marlnb.training.run import Run
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


def test_what_does_not_fit_is_refused(run: Run, tmp_path: Path) -> None:
    policies = run.policies()
    with pytest.raises(ConfigError, match="listener"):
        Agents({"speaker": policies["speaker"]}, run.experiment.env, tmp_path)
    with pytest.raises(ConfigError, match="observation shape"):
        swapped = {"speaker": policies["listener"], "listener": policies["speaker"]}
        Agents(swapped, run.experiment.env, tmp_path)
    with pytest.raises(CheckpointError, match="one set of weights"):
        Agents(policies, run.experiment.env, tmp_path).policies(12)
