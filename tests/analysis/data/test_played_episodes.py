"""Labels of episodes that an analysis plays itself: of the same groups as in a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.data.labels import resolve_label
from marlnb.analysis.data.played_episodes import PlayedEpisodes
from marlnb.analysis.data.trajectories import roll_out
from marlnb.errors import RecordingError
from marlnb.recording.capture.recorder import record
from tests.recording.runs import LivesConfig, make_run


def test_a_label_belongs_to_the_group_of_its_size_as_in_a_recording(tmp_path: Path) -> None:
    """Features 1 and 2 of group a are t / 10 and the agent's index / 10, while the agent lives."""
    run = make_run(tmp_path / "run", LivesConfig())
    labels = {
        "sum": lambda time_step: time_step.observation["a"][..., 1:].sum(-1),
        "a/named": lambda time_step: time_step.observation["a"][..., 1],
        "wrong": lambda time_step: time_step.observation["a"][:, :2, 1],
    }
    with run.build_env(4) as env:
        track = roll_out(env, run.policies(), (), seed=0, label_functions=labels)
    source, rows = PlayedEpisodes([track]).source("a")
    for name, added in (("sum", 2), ("a/named", 0)):
        expected = (rows.t + added) / 10
        label = resolve_label(source, rows, name)
        np.testing.assert_allclose(label.values[:, 2], expected, atol=1e-6)
        np.testing.assert_array_equal(label.known[:, 1], rows.t < 3)  # a_1 is dead then
    with pytest.raises(RecordingError, match=r"label 'wrong' has 2 agents, and the groups have \{'a': 3, 'b': 1\}"):
        resolve_label(source, rows, "wrong")
    del labels["wrong"]
    with record(run, episodes=4, seed=0, labels=labels, values=False, progress=False) as recording:
        assert recording.label("sum").labels["agent"] == source.recording.label("sum").labels["agent"]
