"""The comparison of evolution with its controls: equal steps for all, and a table of what is complete."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.verify.evolution import (
    AGILERL_ITSELF,
    DEFAULT,
    GENERATIONS,
    TASKS,
    overrides_of,
    score_path,
    table,
)
from marlnb.experiment import Experiment
from marlnb.populations.training.evolution.loop import generation_iterations


def test_every_method_has_the_same_steps() -> None:
    for env, task in TASKS.items():
        for method in set(task.methods) - {AGILERL_ITSELF}:
            experiment = Experiment.compose(*overrides_of(env, method, 3, 1.0))
            assert experiment.frames == task.frames and experiment.seed == 3 and not experiment.tuned
            assert (experiment.evolution is None) == (method == DEFAULT)
            if experiment.evolution is not None:
                member_frames = generation_iterations(experiment) * experiment.iteration_frames
                assert 8 <= task.frames / task.population / member_frames <= 14  # its evaluations included
    task = TASKS["pettingzoo/simple_speaker_listener"]  # AgileRL plays one episode in each of its 8 envs
    assert task.frames == GENERATIONS * task.population * (task.generation_frames + 8 * 25)


def test_the_table_has_interquartile_means_and_marks_what_is_shown(tmp_path: Path) -> None:
    scores = {DEFAULT: [0.0, 1.0, 2.0, 3.0, 100.0], "pbt": [200.0, 201.0, 202.0, 203.0, 204.0]}
    for method, values in scores.items():
        for seed, value in enumerate(values):
            score_path(tmp_path, "mpe/simple_spread", method, seed).write_text(json.dumps({"score": value}))
    lines = table(tmp_path, list(TASKS), list(range(5))).splitlines()
    assert len(lines) == 4  # a head of two lines, and the methods with scores
    assert "| one training run with the defaults | 5 | 2.00 " in lines[2]  # of 1, 2 and 3
    assert "| PBT | 5 | 202.00 " in lines[3] and "**1.00 (1.00 to 1.00)**" in lines[3]
