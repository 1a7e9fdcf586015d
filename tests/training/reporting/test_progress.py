from __future__ import annotations

import io
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marlnb.training.limits import Trained
from marlnb.training.reporting.progress import Progress, describe, describe_end
from marlnb.training.reporting.report import Report
from marlnb.training.runs.states import RunState
from marlnb.training.train import train
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


def test_agents_of_one_group_that_play_against_each_other_are_shown_one_by_one() -> None:
    game = replace(REPORT, returns={"player": 0.0}, agent_returns={"player_1": 0.25, "player_2": -0.25})
    assert describe(game, 640, 80.0).endswith("return player_1 0.25 player_2 -0.25")
    team = replace(game, returns={"player": 0.5}, agent_returns={"player_1": 0.75, "player_2": 0.25})
    assert describe(team, 640, 80.0).endswith("return player 0.50")


def test_a_log_gets_the_first_and_the_last_line_and_few_between() -> None:
    stream = io.StringIO()
    progress = Progress(count_experiment(), stream=stream)
    for frames in range(32, 672, 32):
        progress.show(replace(REPORT, frames=frames))
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and lines[0].startswith("  5%") and lines[1].startswith("100%  640/640 frames")


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    stream = Terminal()
    progress = Progress(count_experiment(), stream=stream)
    progress.show(REPORT)
    progress.show(replace(REPORT, frames=640))
    progress.close()
    assert stream.getvalue().count("\r") == 2 and stream.getvalue().count("\n") == 1
    assert all(len(line) <= 80 for line in stream.getvalue().replace("\x1b[2K", "").split("\r"))


@pytest.mark.parametrize(
    ("state", "frames", "target", "reason", "ending"),
    [
        ("complete", 640, None, "", "done"),
        ("complete", 640, -8.5, "", "done"),
        ("complete", 320, -8.5, "", "done: target return -8.5 reached"),
        ("complete", 320, 0.0, "", "done: target return 0 reached"),
        ("stopped", 320, None, "SIGTERM", "stopped: SIGTERM"),
        ("stopped", 320, None, "", "interrupted"),
        ("running", 320, None, "", "interrupted"),
        ("failed", 320, None, "", "failed; the last checkpoint is complete"),
    ],
)
def test_why_it_ended(state: RunState, frames: int, target: float | None, reason: str, ending: str) -> None:
    experiment = replace(count_experiment(), target_return=target)
    assert experiment.frames == 640 and describe_end(state, Trained(10, frames), experiment, reason=reason) == ending


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_the_last_line_says_why_it_is_the_last(stream: io.StringIO) -> None:
    progress = Progress(count_experiment(), stream=stream)
    progress.show(REPORT)
    progress.close("stopped: SIGTERM")
    first, last = stream.getvalue().replace("\r\x1b[2K", "\n").strip().split("\n")
    assert "left" in first and "left" not in last and last.startswith(" 50%")
    assert "  stopped: SIGTERM  " in last  # the rest is cut off where the rate is long


def test_the_last_text_in_a_notebook_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            shown.append(bundle["text/plain"])

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(bundle["text/plain"])
        return Handle()

    monkeypatch.setattr("marlnb.display.status_line._in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    progress = Progress(count_experiment())
    progress.show(REPORT)
    progress.close("done: target return -9 reached")
    assert "left" in shown[0] and "left" not in shown[-1] and "  done: target return -9 reached  " in shown[-1]


def test_a_training_that_ended_earlier_is_recalled_with_its_end() -> None:
    stream = io.StringIO()
    progress = Progress(replace(count_experiment(), target_return=-9.0), stream=stream)
    row = {name: value for name, value in REPORT.to_json().items() if name != "learning_s"}
    progress.recall([{**row, "of_another_version": 1}])
    assert stream.getvalue() == " 50%  320/640 frames  80/s  done: target return -9 reached  return a -8.12\n"


@pytest.mark.parametrize(
    ("overrides", "raises", "ending"),
    [
        ({}, None, "100%  640/640 frames .*  done"),
        ({"target_return": -1e6, "target_group": "a"}, None, "%  .*  done: target return -1e\\+06 reached"),
        ({}, RuntimeError, " 50%  320/640 frames .*  interrupted"),
    ],
)
def test_train_tells_its_end_in_a_log(
    overrides: dict[str, Any],
    raises: type[Exception] | None,
    ending: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def callback(report: Report) -> None:
        if raises and report.frames >= 320:
            raise raises

    experiment = replace(count_experiment(), **overrides)
    with pytest.raises(raises) if raises else nullcontext():
        train(experiment, tmp_path / "run", on_report=[callback])
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(ending, last) and " left" not in last


def test_a_stop_is_written_to_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def callback(report: Report) -> None:
        (tmp_path / "run" / "STOP").write_text("enough is known")

    train(count_experiment(), tmp_path / "run", on_report=[callback])
    assert "  stopped: enough is known" in capsys.readouterr().err.splitlines()[-1]


def test_numbers_that_are_not_finite_become_null_in_json() -> None:
    assert REPORT.to_json()["learning"] == {"a": {"entropy": 1.5, "kl": None}}
