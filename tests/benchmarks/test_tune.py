"""The search for tuned settings: which training is next, and that a killed search continues."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tune.by_frames import compare
from benchmarks.tune.halving import Options, Rung, SearchTask, Trial, candidates, next_trial, winner
from benchmarks.tune.journal import Journal
from benchmarks.tune.results import results
from benchmarks.tune.search import SHOWN_SEEDS, search
from benchmarks.tune.spaces import SEARCH_TASKS, choose
from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS
from marlnb.experiment import Experiment
from marlnb.training.runs.files import read_lines

RUNGS = (Rung(20, 3, (0,)), Rung(60, 2, (1, 2)))
TASK = SearchTask("mpe/simple", "ippo", {"algorithm.lr": "1"}, {"algorithm.lr": ("1", "2", "3", "4")}, RUNGS)
GAME = SearchTask(
    env="matrix/climbing",
    algorithm="ippo",
    start={"n_envs": "8", "rollout_steps": "4", "algorithm.lr": "1e-2"},
    space={"algorithm.lr": ("1e-2", "3e-2")},
    rungs=(Rung(0.02, 2, (0,)), Rung(0.04, 1, (1,))),
    episodes=4,
)


def test_the_worst_seed_decides() -> None:
    """By hand: of three candidates the best two continue, and the one with the better mean has the worse seed."""
    steady, lucky, bad = candidates(TASK, 3)
    scores: dict[Trial, float] = {}

    def train(options: Options, seed: int, budget_s: float, score: float) -> None:
        trial = next_trial(TASK, scores)
        assert trial == Trial(TASK.name, options, seed, budget_s) and winner(TASK, scores) is None
        scores[trial] = score

    train(steady, 0, 20, 5.0)
    train(lucky, 0, 20, 9.0)
    train(bad, 0, 20, 1.0)
    train(lucky, 1, 60, 30.0)  # the better one first
    train(lucky, 2, 60, -1.0)
    train(steady, 1, 60, 7.0)
    train(steady, 2, 60, 6.0)
    assert next_trial(TASK, scores) is None and winner(TASK, scores) == steady == ("algorithm.lr=1",)


def test_candidates_are_the_start_then_changes_of_it() -> None:
    drawn = candidates(TASK, 10)
    assert drawn[0] == ("algorithm.lr=1",) and sorted(drawn) == [(f"algorithm.lr={k}",) for k in (1, 2, 3, 4)]
    assert candidates(TASK, 10) == drawn  # the same ones when the search continues
    assert candidates(SearchTask("mpe/simple", "ippo", {"n_envs": "2"}, {}, RUNGS), 3) == [("n_envs=2",), ()]


def test_a_killed_search_continues(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    assert search([GAME], Journal(file), n_shown=1)
    whole = Journal(file).entries
    first, second, third, shown = (entry.trial for entry in whole)
    assert {first.options, second.options} == set(candidates(GAME, 2)) and third.budget_s == shown.budget_s == 0.04
    assert shown.seed == SHOWN_SEEDS[0] and shown.options == third.options

    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + lines[1][:40])  # killed while it wrote the second line
    assert not search([GAME], Journal(file), n_shown=1, end=0.0)  # no time: nothing changes
    assert len(Journal(file).entries) == 1
    assert search([GAME], Journal(file), n_shown=1)
    again = Journal(file).entries
    assert again[0] == whole[0]
    assert [entry.trial for entry in again[:2]] == [first, second] and len(again) == 4
    assert all(point.seconds >= 0.02 and point.frames % 32 == 0 for entry in again for point in entry.points)
    assert f"| {GAME.name} | 4 |" in results([GAME], Journal(file))


def test_settings_are_compared_after_the_same_frames(tmp_path: Path) -> None:
    file = tmp_path / "by_frames.jsonl"
    for _ in range(2):  # the second time there is nothing to train
        compare(GAME, ["algorithm.lr=3e-2"], [0], [64, 100], file)
    (row,) = read_lines(file)
    assert row["options"] == ["algorithm.lr=3e-2", "n_envs=8", "rollout_steps=4"]
    assert [point["frames"] for point in row["points"]] == [64, 128]  # an iteration has 32


def test_every_setting_is_an_option_and_no_shown_seed_is_searched() -> None:
    assert len({task.name for task in SEARCH_TASKS}) == len(SEARCH_TASKS)
    for task in SEARCH_TASKS:
        network = "cnn" if "model=cnn" in task.fixed else "mlp"
        configs: dict[str, Any] = {
            "": Experiment,
            "algorithm": ALGORITHMS.get(task.algorithm),
            "model": MODELS.get(network),
            "env": ENVIRONMENTS.get(task.env),
        }
        for name in {*task.start, *task.space}:
            part, _, option = name.rpartition(".")
            assert option in {field.name for field in fields(configs[part])}, f"{task.name}: {name}"
        assert task.env in ENVIRONMENTS.names()
        assert not {seed for rung in task.rungs for seed in rung.seeds} & set(SHOWN_SEEDS)


def test_an_unknown_cell_names_the_valid_ones() -> None:
    assert [task.name for task in choose(["spread", "vdn"])] == ["mpe/simple_spread vdn"]
    both = choose(["spread", "vdn,", "connect_four"])
    assert [task.name for task in both] == ["mpe/simple_spread vdn", "pettingzoo/connect_four ippo"]
    with pytest.raises(ValueError, match=r"no task has all of .*nothing.*mpe/simple_spread mappo"):
        choose(["nothing"])
