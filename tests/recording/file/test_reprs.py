"""What recordings, arrays, runs and agents print: shapes and names, never their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.training.policies.evaluation import evaluate

SITE = "agent/actor/hidden_1"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    options = ("env=mpe/simple_spread", "n_envs=4", "rollout_steps=25", "frames=100", "model.hidden=[8]", "threads=1")
    run = mnb.train(mnb.Experiment.compose(*options), tmp_path_factory.mktemp("runs") / "team", progress=False)
    with mnb.record(run, episodes=2, progress=False) as opened:
        yield opened


def test_an_array_shows_its_axes_and_their_names(recording: mnb.Recording) -> None:
    array = recording[SITE]
    assert repr(array) == f"<activations/{SITE} (row: 50, agent: 3, unit: 8) float32, not read yet>"
    page = array.sel(agent=["agent_0", "agent_2"])._repr_html_()
    assert "agent_0, agent_2" in page and "agent_1" not in page and "float32, 3.2 kB, not read yet" in page
    one = recording.steps("agent", "observation").sel(agent="agent_1")._repr_html_()
    assert "velocity_x, velocity_y" in one and " more</td>" in one and "agent_1" not in one


def test_a_recording_and_its_run_show_facts(recording: mnb.Recording) -> None:
    page = recording._repr_html_()
    assert "2 episodes, 50 rows, complete" in page and "8 units of agent_0, agent_1, agent_2" in page
    run = mnb.Run.open(recording.run_path or "")
    assert "complete, 100 of 100 frames" in run._repr_html_() and "<td style='text-align:left'>recording</td>" in (
        run._repr_html_()
    )
    view = mnb.View(recording, SITE, "agent_1", episodes=(0,))
    assert repr(view) == f"<View of {SITE}, agent_1, in {recording.path}, 1 episode>"
    assert repr(mnb.plan_recording(run, episodes=2, name="next")).startswith("recording ")


def test_episodes_and_checkpoints_show_their_mean_return(recording: mnb.Recording, tmp_path: Path) -> None:
    run = mnb.Run.open(recording.run_path or "")
    evaluation = evaluate(run, episodes=3)
    mean = f"agent {evaluation.return_mean['agent']:.4g}"
    assert repr(evaluation.table) == f"<3 episodes of mpe/simple_spread, mean return: {mean}>"
    assert f"mean return {mean} ±" in repr(evaluation) and "<th>agent_0</th>" in evaluation.table._repr_html_()
    assert repr(run.checkpoint()).startswith("<Checkpoint 1 in ") and "frames, mean return agent -" in repr(
        run.checkpoint()
    )
    agents = mnb.Agents(run.policies(), run.experiment.env, tmp_path)
    assert repr(agents) == "<Agents from elsewhere in mpe/simple_spread: agent (agent_0, agent_1, agent_2)>"
