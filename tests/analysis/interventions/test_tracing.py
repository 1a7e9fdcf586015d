"""trace, on a trained speaker and listener: what must be recovered completely, and what cannot be."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.interventions.tracing import trace
from marlnb.errors import AnalysisError, RecordingError, RunError, SiteError
from marlnb.models.hooks.edits import Scale
from marlnb.models.hooks.edits_channel import PermuteChannel
from marlnb.recording.capture.recorder import record
from marlnb.recording.tools.extract import extract
from marlnb.training.runs.run import Run
from marlnb.training.runs.saved_edits import save_edits

TALKERS = Path(__file__).parents[3] / "data" / "speaker_listener"
OTHER_GOAL = PermuteChannel("speaker", units="goal_*")


@pytest.fixture
def talkers(tmp_path: Path) -> Run:
    shutil.copytree(TALKERS, tmp_path / "talkers")
    return Run.open(tmp_path / "talkers")


def test_restoring_all_steps_recovers_everything_and_before_the_first_message_nothing(talkers: Run) -> None:
    """Restoring the speaker's head, or the listener's observation, gives the clean episode. The listener's first step
    has received no message, so restoring it recovers nothing."""
    sites = ["speaker/actor/head", "listener/actor/hidden_1", "listener/observation"]
    complete = trace(talkers, OTHER_GOAL, sites=sites, span=25, episodes=32)
    np.testing.assert_allclose(complete.recovered, 1.0, atol=1e-9)
    assert complete.times == (0,) and complete.clean > -9 and complete.corrupted < -15 and not complete.warnings
    steps = trace(talkers, OTHER_GOAL, sites=sites, times=[0, 1, 24], episodes=32)
    assert steps.of("listener/actor/hidden_1")[0] == 0.0 == steps.of("listener/observation")[0]
    assert 0.02 < steps.of("speaker/actor/head")[0] < 0.15 and steps.of("speaker/actor/head")[2] == 0.0
    # the message of t is received at t + 1: restoring either has the same effect
    assert steps.of("speaker/actor/head")[0] == pytest.approx(steps.of("listener/observation")[1], abs=0.02)
    assert (steps.low <= steps.recovered + 1e-9).all() and (steps.recovered <= steps.high + 1e-9).all()
    assert len(steps.table()) == 9 and "recovered" in repr(steps)


def test_an_outcome_of_actions_and_a_recording(talkers: Run) -> None:
    with record(talkers, episodes=30, checkpoint=90, values=False, sites=[], progress=False) as recording:
        result = trace(recording, OTHER_GOAL, outcome="actions", group="speaker", sites="speaker/actor/*", span=25)
    assert result.clean == 0.0 > result.corrupted and result.settings["checkpoint"] == 90
    np.testing.assert_allclose(result.recovered, 1.0, atol=1e-6)
    assert result.settings["episodes"] == 30 and result.settings["seed"] == 2000


def test_the_episodes_of_a_recording_are_played_again(talkers: Run, tmp_path: Path) -> None:
    """Also of an extract, and in an environment with other options than the run's."""
    short = replace(talkers.experiment.env, max_cycles=10)
    line = {"sites": "speaker/actor/head", "span": 25}
    with record(talkers, name="short", episodes=8, env=short, sites=[], values=False, progress=False) as recording:
        part = extract(recording, talkers.path / "recordings" / "part.h5", episodes=[3, 6])
        with pytest.raises(RecordingError, match="max_cycles"):
            trace(recording, OTHER_GOAL, **line)
    with part:
        returns = part.episodes["listener_0"]
        result = trace(part, OTHER_GOAL, env=short, **line)
    assert result.clean == pytest.approx(returns.mean(), abs=1e-6) and result.settings["episodes"] == 2


def test_a_single_step_and_agent_and_saved_edits(talkers: Run) -> None:
    save_edits(talkers, "another_goal", OTHER_GOAL)
    options = {"sites": "*/actor/head", "episodes": 8, "progress": False}
    listed, single = (
        trace(talkers, corruption, agents=agents, times=times, **options)  # type: ignore[arg-type]
        for corruption, agents, times in (([OTHER_GOAL], ["speaker_0"], [3]), ("another_goal", "speaker_0", 3))
    )
    assert single.times == (3,) and single.agents == ("speaker_0",) and single.corruption == listed.corruption
    np.testing.assert_array_equal(single.recovered, listed.recovered)
    with pytest.raises(RunError, match="another_goal"):
        trace(talkers, "an_other_goal", **options)  # type: ignore[arg-type]


def test_recordings_that_other_actions_made_are_rejected(talkers: Run) -> None:
    options = {"episodes": 3, "sites": [], "values": False, "progress": False}
    with (
        record(talkers, name="sampled", explore=True, **options) as sampled,
        record(talkers, name="edited", edits=[OTHER_GOAL], **options) as edited,
        record(talkers, name="both", checkpoint=[90, 130], **options) as both,
    ):
        for recording, reason in ((sampled, "sampled"), (edited, "edits"), (both, r"checkpoints \[90, 130\]")):
            with pytest.raises(AnalysisError, match=reason):
                trace(recording, OTHER_GOAL)


def test_an_empty_corruption_draws_a_warning_and_invalid_requests_are_rejected(talkers: Run) -> None:
    nothing = trace(talkers, Scale("speaker/actor/head", 1.0), sites="speaker/actor/head", times=[0], episodes=8)
    assert "NOT TO BE TRUSTED" in repr(nothing) and len(nothing.warnings) == 2
    assert nothing.verdict.startswith("The corruption does not change the return of all groups (-")
    assert np.isnan(nothing.recovered).all()
    rounding = {"outcome": "actions", "group": "speaker", "sites": "speaker/actor/head", "times": [0], "episodes": 8}
    rounded = trace(talkers, Scale("speaker/actor/head", 1 + 1e-6), **rounding)  # type: ignore[arg-type]
    assert rounded.clean != rounded.corrupted and np.isnan(rounded.recovered).all() and "nan" not in rounded.verdict
    assert rounded.warnings[1] == "the corruption does not change the actions of speaker, so nothing can be recovered"
    slight = trace(talkers, Scale("speaker/actor/head", 0.9), **rounding)  # type: ignore[arg-type]
    assert slight.recovered[0, 0] > 0
    with pytest.raises(SiteError):
        trace(talkers, OTHER_GOAL, sites="speaker/actor/hed")
    with pytest.raises(AnalysisError, match="'spaker_0'; did"):
        trace(talkers, OTHER_GOAL, agents="spaker_0")
    with pytest.raises(AnalysisError, match="return"):
        trace(talkers, OTHER_GOAL, outcome="retrun")
    for times, message in (
        ([0, 99, -1], r"times=\[0, 99, -1\]: no episode has the steps \[99, -1\]; valid: 0 to 24"),
        ([], r"times=\[\]: an empty list chooses no step; valid: 0 to 24"),
    ):
        with pytest.raises(AnalysisError, match=message):
            trace(talkers, OTHER_GOAL, episodes=2, times=times)
    with pytest.raises(RecordingError, match="times takes integers"):
        trace(talkers, OTHER_GOAL, episodes=2, times="last")  # type: ignore[arg-type]
