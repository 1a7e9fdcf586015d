"""The table of what the default settings reach, from curves written by hand, and from one small training run."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.tune.curve import Point
from benchmarks.tune.halving import SearchTask
from benchmarks.tune.journal import append_line
from benchmarks.verify.default_settings import curves, measure, random_scores, settings, table
from marlnb.training.runs.files import read_lines


def test_medians_and_time_to_most_of_the_best(tmp_path: Path) -> None:
    """By hand: random -26, best the scripted policy's -7.67, so 90% of the way is -9.503."""
    append_line(tmp_path / "random.jsonl", {"env": "mpe/simple_spread", "scores": {"agent": -26.0}})
    for seed, scores in enumerate(((-15.0, -9.0, -8.0), (-20.0, -9.5, -8.5), (-9.0, -12.0, -10.0))):
        points = [
            Point(seconds, 100, {"agent": score}, {"agent": -99.0}).to_json()
            for seconds, score in zip((30.0, 61.0, 301.5), scores)
        ]
        row = {"env": "mpe/simple_spread", "algorithm": "ippo", "seed": seed}
        append_line(
            tmp_path / "curves.jsonl", {**row, "settings": settings("mpe/simple_spread", "ippo"), "points": points}
        )
    line = table(tmp_path).splitlines()[-1]
    assert line == (
        "| `mpe/simple_spread` | ippo | -26.00 | -7.67 | -7.67 | -9.50 (-12.00 to -9.00) "
        "| 0: -9.00, 1: -9.50, 2: -12.00 | -10, met | -8.50 (-10.00 to -8.00) | 61 (30 to 61) |"
    )


def test_a_game_has_a_row_for_each_seat(tmp_path: Path) -> None:
    """Of returns from -1 to 1 the share won is (1 + return) / 2."""
    env = "pettingzoo/connect_four"
    append_line(tmp_path / "random.jsonl", {"env": env, "scores": {"first": 0.1, "second": -0.1}})
    point = Point(60.7, 100, {"first": 0.96, "second": 0.8}, {"first": 0.0, "second": 0.0})
    row = {"env": env, "algorithm": "ippo", "seed": 3, "settings": settings(env, "ippo"), "points": [point.to_json()]}
    append_line(tmp_path / "curves.jsonl", row)
    first, second = table(tmp_path).splitlines()[-2:]
    start = "| `pettingzoo/connect_four`, {} player's wins | ippo | {} |  | 1.000 | {} | 3: {} | {} |  | {} |"
    assert first == start.format("first", "0.550", "0.980", "0.980", "0.97, met", "61")
    assert second == start.format("second", "0.450", "0.900", "0.900", "0.92, missed", "not reached")


def test_a_measurement_is_not_repeated(tmp_path: Path) -> None:
    task = SearchTask("matrix/climbing", "ippo", {}, {}, (), episodes=2)
    measure([task], [0], 0.01, tmp_path)
    measure([task], [0, 1], 0.01, tmp_path)
    assert [curve.seed for curve in curves(tmp_path)] == [0, 1]
    (score,) = set(random_scores(tmp_path)["matrix/climbing"].values())
    assert -30 <= score <= 11  # the lowest and the highest reward of the game
    assert "| `matrix/climbing` | ippo |" in table(tmp_path)


def test_a_measurement_of_other_settings_does_not_count(tmp_path: Path) -> None:
    task = SearchTask("matrix/climbing", "ippo", {}, {}, (), episodes=2)
    measure([task], [0], 0.01, tmp_path)
    file = tmp_path / "curves.jsonl"
    (row,) = read_lines(file)
    assert row["settings"] == settings("matrix/climbing", "ippo")
    file.write_text(json.dumps({**row, "settings": {**row["settings"], "algorithm.lr": 9.0}}) + "\n")
    assert curves(tmp_path) == []
    measure([task], [0], 0.01, tmp_path)
    assert len(list(read_lines(file))) == 2 and len(curves(tmp_path)) == 1


def test_every_environment_has_its_first_seed_before_the_second(tmp_path: Path) -> None:
    tasks = [SearchTask(f"matrix/{name}", "ippo", {}, {}, (), episodes=2) for name in ("climbing", "penalty")]
    measure(tasks, [0, 1], 0.01, tmp_path, "cpu")
    order = [(curve.env, curve.seed) for curve in curves(tmp_path)]
    assert order == [(task.env, seed) for seed in (0, 1) for task in tasks]


def test_a_longer_measurement_replaces_a_shorter_one(tmp_path: Path) -> None:
    task = SearchTask("matrix/climbing", "ippo", {}, {}, (), episodes=2, marks_s=(0.01,))
    measure([task], [0], 0.02, tmp_path)
    measure([task], [0], 0.5, tmp_path)
    (curve,) = curves(tmp_path)
    assert len(curve.points) == 2 and curve.points[-1].seconds >= 0.5
