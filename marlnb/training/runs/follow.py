"""RunFollower: what is new in a run folder since one last looked, at the cost of the new lines alone.

The same for a training in this process, in another, on another node of a cluster over a shared folder, or of last
year: only files are read.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.training.runs.files import EVALUATIONS, EVENTS, METRICS
from marlnb.training.runs.run import Run


@dataclass(frozen=True)
class News:
    """What one look found.

    Attributes:
        rows: new lines of `metrics.jsonl`, one an iteration.
        evaluations: new lines of `evaluations.jsonl`.
        events: new lines of `events.log`.
        status: `Run.status()` now.
        again: whether the files were cut since the last look, as a resume does: what was read before counts no more,
            and everything that stands in them is in this news.
    """

    rows: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    events: list[str]
    status: dict[str, Any]
    again: bool = False


@dataclass
class RunFollower:
    """Reads on in the files of a run where it stopped reading."""

    run: Run
    _tails: dict[str, _Tail] = field(default_factory=dict)

    def look(self) -> News:
        """Everything new since the last look; at the first, everything."""
        names = (METRICS, EVALUATIONS, EVENTS)
        tails = {name: self._tails.setdefault(name, _Tail(self.run.path / name)) for name in names}
        again = [tails[name].was_cut() for name in (METRICS, EVALUATIONS)]
        if any(again):  # both are cut at the same iteration: read both anew
            for name in (METRICS, EVALUATIONS):
                tails[name].rewind()
        rows, evaluations = ([json.loads(line) for line in tails[name].read()] for name in (METRICS, EVALUATIONS))
        return News(rows, evaluations, tails[EVENTS].read(), self.run.status(), any(again))


@dataclass
class _Tail:
    """The whole lines of a growing file from where one last read."""

    path: Path
    _offset: int = 0
    _identity: tuple[int, int] | None = None

    def was_cut(self) -> bool:
        """Whether the file is another one than was read, or shorter: it is replaced when a training is resumed."""
        found = self._stat()
        if self._identity is None or found is None:
            return False
        return (found.st_dev, found.st_ino) != self._identity or found.st_size < self._offset

    def rewind(self) -> None:
        self._offset, self._identity = 0, None

    def read(self) -> list[str]:
        found = self._stat()
        if found is None:
            return []
        self._identity = (found.st_dev, found.st_ino)
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # a line that is being written is read the next time
        self._offset += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()

    def _stat(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None
