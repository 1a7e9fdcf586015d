"""Progress of a recording, as one line that a notebook replaces in place, so that a finished one keeps the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from marlnb.display.status_line import StatusLine
from marlnb.envs.vector import Step
from marlnb.training.collect.episodes import RolloutCallback, TimeStep


@dataclass(frozen=True)
class RecordingProgress:
    """How far a recording is.

    Attributes:
        path: its file.
        episodes: finished so far.
        total: episodes of the whole recording.
        rows: of the finished episodes; the newest of them are in memory until their block is full.
    """

    path: Path
    episodes: int
    total: int
    rows: int


@dataclass(frozen=True)
class ReportingCallback:
    """A rollout callback that passes every call on to another one and calls `report` after each step."""

    callback: RolloutCallback
    report: Callable[[], None]

    def before_step(self, time_step: TimeStep) -> None:
        self.callback.before_step(time_step)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        self.callback.after_step(time_step, step, ended)
        self.report()


class EpisodeProgress:
    """Counts episodes. Shows the count rarely enough to cost nothing, and once more at the end.

    Attributes:
        done: episodes so far.
    """

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title, self._total, self.done = title, total, 0
        self._line = StatusLine() if shown else None

    def add(self, episodes: int) -> None:
        self.done += episodes
        if self._line is not None and self._line.due:
            self._line.write(str(self))

    def __str__(self) -> str:
        return f"{self._title}: {self.done}/{self._total} episodes, {self.done / self._total:.0%}"

    def __enter__(self) -> EpisodeProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._line is not None:
            self._line.write(str(self))
            self._line.end()
