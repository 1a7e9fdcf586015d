"""The tables of what default settings reach: of curves written by hand, and those of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tune.curve import Point
from benchmarks.tune.journal import append_line
from benchmarks.verify.default_settings import settings
from benchmarks.verify.score_tables import tables

ROOT = Path(__file__).resolve().parents[2]
Scores = dict[str, float]


def _write(folder: Path, machine: str, env: str, algorithm: str, random: Scores, *curves: dict[float, Scores]) -> None:
    append_line(folder / machine / "random.jsonl", {"env": env, "scores": random})
    for seed, curve in enumerate(curves):
        points = [Point(seconds, 100, scores, scores).to_json() for seconds, scores in curve.items()]
        row = {"env": env, "algorithm": algorithm, "seed": seed, "settings": settings(env, algorithm), "points": points}
        append_line(folder / machine / "curves.jsonl", row)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for machine in ("cpu-genoa", "cpu-avx512", "wall", "cpu-xeon", "cpu"):
        (tmp_path / machine).mkdir()
    return tmp_path


def test_a_cell_is_of_the_first_machine_with_three_seeds(folder: Path) -> None:
    """By hand: random -26, best the scripted policy's -7.67, so 90% of the way is -9.503."""
    random = {"agent": -26.0}
    slow = [{30.0: {"agent": a}, 61.0: {"agent": b}} for a, b in ((-15.0, -9.0), (-20.0, -9.5), (-9.0, -12.0))]
    _write(folder, "cpu-genoa", "mpe/simple_spread", "ippo", random, {60.5: {"agent": -8.0}})
    _write(folder, "cpu-avx512", "mpe/simple_spread", "ippo", random, *slow)
    long = {60.2: {"agent": -30.0}, 300.4: {"agent": -9.6}}
    _write(folder, "cpu-xeon", "mpe/simple_spread", "vdn", random, long, long)
    _write(folder, "cpu", "mpe/simple_spread", "ippo", random, long)  # longer, but only one seed
    shown = tables(folder)
    assert shown["after 60 seconds"].splitlines()[2:] == [
        "| `mpe/simple_spread` | −26.0; −7.7 | −9.5 (−12.0 to −9.0)ᵃ |  |  |  |  | −30.0, 2 seedsˣ |"
    ]
    assert shown["after 300 seconds"].splitlines()[2:] == [
        "| `mpe/simple_spread` | −26.0; −7.7 | −9.6, 1 seedᵛ |  |  |  |  | −9.6, 2 seedsˣ |"
    ]
    assert shown["seconds to 90%"].splitlines()[2:] == [
        "| `mpe/simple_spread` | −7.7 | 61 (30 to 61)ᵃ |  |  |  |  | > 300, 2 seedsˣ |"
    ]
    assert shown["goals"].splitlines() == [
        "| task | algorithm | goal | AVX-512ᵃ |",
        "| --- | --- | --- | --- |",
        "| `mpe/simple_spread` | ippo | ≥ −10 | −9.5 (−12.0 to −9.0) |",
    ]


def test_sides_have_rows_of_their_own_and_a_goal_is_of_the_ranked_one(folder: Path) -> None:
    random = {"adversary": 4.0, "agent": -16.0}
    curves = [{60.1: {"adversary": score, "agent": -score}} for score in (28.0, 31.0, 29.0)]
    _write(folder, "cpu-genoa", "mpe/simple_tag", "qmix", random, *curves)
    shown = tables(folder)
    assert [line.split(" | ")[0] for line in shown["after 60 seconds"].splitlines()[2:]] == [
        "| `mpe/simple_tag`, adversary",
        "| `mpe/simple_tag`, agent",
    ]
    assert shown["goals"].splitlines()[2:] == [
        "| `mpe/simple_tag`, adversary | qmix | ≥ 30 | 29.0 (28.0 to 31.0), missed |"
    ]


def test_the_page_has_the_tables_of_the_measurements() -> None:
    page = (ROOT / "docs" / "verification.md").read_text()
    for caption, table in tables().items():
        assert table in page, f"{caption}: copy the tables of `python -m benchmarks.verify.score_tables`"
