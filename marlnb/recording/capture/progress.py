"""How far a recording is, as one line: in a notebook replaced in place, so that an executed one keeps the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from marlnb.envs.vector import Step
from marlnb.training.collect.episodes import TOLD_ALL, TimeStep, Rest, RolloutCallback
from marlnb.training.progress import StatusLine


@dataclass(frozen=True)
class RecordingProgress:
    """How far a recording is.

    Attributes:
        path: its file.
        episodes: that ended and were handed on, of `total`.
        rows: of these episodes; the newest of them wait in memory until their block is full.
    """

    path: Path
    episodes: int
    total: int
    rows: int


@dataclass(frozen=True)
class Telling:
    """A watcher of `play` that hands on to another watcher and calls `tell` after each step."""

    callback: RolloutCallback
    tell: Callable[[], None]

    def before_step(self, time_step: TimeStep) -> None:
        self.callback.before_step(time_step)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> Rest:
        rest = self.callback.after_step(time_step, step, ended) or TOLD_ALL
        self.tell()
        return Rest(before=rest.before)


class EpisodeProgress:
    """Counts episodes; shows the count seldom enough to cost nothing, and at the end."""

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title, self._total, self._done = title, total, 0
        self._line = StatusLine() if shown else None

    @property
    def done(self) -> int:
        return self._done

    def add(self, episodes: int) -> None:
        self._done += episodes
        if self._line is not None and self._line.due:
            self._line.write(str(self))

    def __str__(self) -> str:
        return f"{self._title}: {self._done}/{self._total} episodes, {self._done / self._total:.0%}"

    def __enter__(self) -> EpisodeProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.write(str(self))
            self._line.end()
