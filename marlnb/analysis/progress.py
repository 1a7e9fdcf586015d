"""Progress of an analysis that takes more than two seconds: a line with the share done, the rate and the time left."""

from __future__ import annotations

import time

from marlnb.display.status_line import StatusLine
from marlnb.training.reporting.progress import describe_progress

MIN_TIME_S = 2.0


class AnalysisProgress:
    """Counts what an analysis has done, such as rows or edits, and shows the count if it takes long.

    Attributes:
        done: so far.
        total: of the whole analysis; may grow while it runs.
    """

    def __init__(self, title: str, unit: str, total: int = 0, *, shown: bool = True) -> None:
        self._title, self._unit, self.total, self.done = title, unit, total, 0.0
        self._line = StatusLine() if shown else None
        self._started, self._is_shown = time.monotonic(), False

    def expect(self, more: int) -> None:
        """Adds to the total."""
        self.total += more

    def add(self, done: float = 1) -> None:
        self.done += done
        elapsed = time.monotonic() - self._started
        if self._line is not None and elapsed > MIN_TIME_S and self._line.due:
            self._is_shown = True
            self._line.write(f"{self._title}: {self._describe(elapsed)}")

    def __enter__(self) -> AnalysisProgress:
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        if self._line is not None and self._is_shown:
            ending = "done" if error is None else "interrupted"
            self._line.write(f"{self._title}: {self._describe(time.monotonic() - self._started, ending)}")
            self._line.end()

    def _describe(self, elapsed_s: float, ending: str = "") -> str:
        total, live = max(self.total, self.done, 1), self._line is not None and self._line.live
        return describe_progress(self.done, total, self.done / elapsed_s, self._unit, bar=live, ending=ending)
