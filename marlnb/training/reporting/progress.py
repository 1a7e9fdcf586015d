"""Progress of a training run as text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from marlnb.display.formatting import format_clock, format_count
from marlnb.display.status_line import StatusLine, progress_bar
from marlnb.experiment import Experiment
from marlnb.training.limits import Trained, expected_frames, reached_limit
from marlnb.training.reporting.report import Report

if TYPE_CHECKING:
    from marlnb.training.runs.states import RunState


class Progress:
    """Shows a training's latest report on a StatusLine."""

    def __init__(self, experiment: Experiment, *, frames: int = 0, stream: TextIO | None = None) -> None:
        self._experiment = experiment
        self._line = StatusLine(stream)
        self._start, self._start_frames = time.monotonic(), frames
        self._latest: Report | None = None
        self._shown: Report | None = None

    def show(self, report: Report) -> None:
        """Keeps the report, and shows it if enough time has passed."""
        self._latest = report
        if self._line.due:
            self._draw()

    def recall(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Shows a training run that was completed earlier, from its metrics."""
        if rows:
            report = Report.of_row(rows[-1])
            rate = report.frames / report.seconds if report.seconds else report.frames_per_second
            ending = describe_end("complete", trained_at(report), self._experiment)
            self._line.write(self._text(report, rate, ending))
        self._line.end()

    def close(self, ending: str = "") -> None:
        """Shows the latest report and why there will be no other, and ends the line."""
        if self._latest is not None and (ending or self._latest is not self._shown):
            self._draw(ending)
        self._line.end()

    def _draw(self, ending: str = "") -> None:
        assert self._latest is not None
        rate = self._rate(self._latest)
        self._line.write(self._text(self._latest, rate, ending))
        self._shown = self._latest

    def _text(self, report: Report, rate: float, ending: str) -> str:
        frames = expected_frames(self._experiment, trained_at(report), rate)
        return describe(report, frames, rate, bar=self._line.live, ending=ending)

    def _rate(self, report: Report) -> float:
        """Frames per second since this session started, with evaluations and checkpoints."""
        elapsed = time.monotonic() - self._start
        return (report.frames - self._start_frames) / elapsed if elapsed > 0 else report.frames_per_second


def trained_at(report: Report) -> Trained:
    """How much had been trained at a report."""
    return Trained(report.iteration, report.frames, report.seconds, report.agent_steps)


def describe_end(state: RunState, trained: Trained, experiment: Experiment, *, reason: str = "") -> str:
    """Why a training run ended, in words.

    Args:
        state: its state; running: a user's code raised.
        trained: so far.
        experiment: what was trained.
        reason: why it was stopped, if known.
    """
    if state == "complete":
        limit = reached_limit(experiment, trained)
        if not limit and experiment.target_return is not None:
            return f"done: target return {experiment.target_return:g} reached"
        return f"done: {limit} reached" if limit and not limit.startswith("frames=") else "done"
    if state == "failed":
        return "failed; the last checkpoint is complete"
    return f"stopped: {reason}" if reason else "interrupted"


def describe(report: Report, frames: int, rate: float, *, bar: bool = False, ending: str = "") -> str:
    """One line: progress, speed, remaining time or why it ended, and returns."""
    parts = [describe_progress(report.frames, frames, rate, bar=bar, ending=ending)]
    returns = " ".join(f"{name} {value:.2f}" for name, value in report.scored_returns.items())
    if report.turn:
        parts.append(describe_turn(report.turn))
    elif returns:
        parts.append(f"return {returns}")
    if report.evaluation:
        parts.append("evaluation " + " ".join(f"{name} {value:.2f}" for name, value in report.evaluation.items()))
    return "  ".join(parts)


def describe_turn(turn: Mapping[str, Any]) -> str:
    """Whose turn it was: `round 12  main_0 scored 64% in 40 matches` in a league, `generation 3  member_0`."""
    ((player, results),) = turn.items()
    if "generation" in results:
        return f"generation {results['generation']}  {player}"
    n_matches, outcome = results["matches"], results["outcome"]
    result = f"played {n_matches}" if outcome is None else f"scored {outcome:.0%} in {n_matches}"
    return f"round {results['round']}  {player} {result} matches"


def describe_progress(
    done: float, total: float, rate: float, unit: str = "frames", *, bar: bool = False, ending: str = ""
) -> str:
    """What is done in its unit, the rate per second, and the remaining time or why it ended."""
    share = min(1.0, done / total)
    parts = [f"{share:4.0%}", *([progress_bar(share)] if bar else [])]
    speed = format_count(rate) if rate >= 10 or rate == 0 else f"{rate:.2g}"
    parts += [f"{format_count(done)}/{format_count(total)} {unit}", f"{speed}/s"]
    if ending:
        parts.append(ending)
    elif rate > 0:
        parts.append(f"{format_clock(max(0, total - done) / rate)} left")
    return "  ".join(parts)
