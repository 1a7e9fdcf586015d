"""How far a recording is, as one line: in a notebook replaced in place, so that an executed one keeps the last."""

from __future__ import annotations

from types import TracebackType

from marlnb.training.progress import StatusLine


class EpisodeProgress:
    """Counts episodes; shows the count seldom enough to cost nothing, and at the end."""

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title, self._total, self._done = title, total, 0
        self._line = StatusLine() if shown else None

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
