from __future__ import annotations

import io
from dataclasses import replace

import pytest

from marlnb.training.progress import Progress, count, describe, duration
from marlnb.training.report import Report
from tests.training.toys import count_experiment

REPORT = Report(
    iteration=2,
    frames=320,
    seconds=4.0,
    episodes=3,
    returns={"a": -8.123, "b": None},
    recent_return=-8.0,
    length=25.0,
    learning={"a": {"entropy": 1.5, "kl": float("nan")}},
    evaluation={},
    frames_per_second=80.0,
    stepping_s=1.0,
    acting_s=0.5,
    learning_s=0.5,
)


def test_a_line_says_how_far_how_fast_how_long_and_how_well() -> None:
    assert describe(REPORT, 640, 80.0) == " 50%  320/640 frames  80/s  0:04 left  return a -8.12"
    bar = describe(replace(REPORT, evaluation={"a": -7.0}), 640, 80.0, bar=True)
    assert "██████████··········" in bar and bar.endswith("evaluation a -7.00")


@pytest.mark.parametrize(("number", "text"), [(999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (1_250_000, "1.25M")])
def test_counts(number: float, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(41.6, "0:42"), (725, "12:05"), (11_220, "3:07:00")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_log_gets_the_first_and_the_last_line_and_few_between() -> None:
    stream = io.StringIO()
    progress = Progress(count_experiment(), stream=stream)
    for frames in range(32, 672, 32):
        progress.show(replace(REPORT, frames=frames))
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and lines[0].startswith("  5%") and lines[1].startswith("100%  640/640 frames")


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            raise OSError

    stream = Terminal()
    progress = Progress(count_experiment(), stream=stream)
    progress.show(REPORT)
    progress.show(replace(REPORT, frames=640))
    progress.close()
    assert stream.getvalue().count("\r") == 2 and stream.getvalue().count("\n") == 1
    assert all(len(line) <= 80 for line in stream.getvalue().replace("\x1b[2K", "").split("\r"))


def test_numbers_that_are_not_finite_become_null_in_json() -> None:
    assert REPORT.to_json()["learning"] == {"a": {"entropy": 1.5, "kl": None}}
