"""RunFollower: what is new in a run folder since the last call, at the cost of the new lines alone.

It only reads files. So it works for a training run in this process, in another, on another node of a cluster with a
shared folder, or for one of last year.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.errors import RunError
from marlnb.text_files import read_bytes
from marlnb.training.runs.files import EVALUATIONS, EVENTS, METRICS
from marlnb.training.runs.metrics_rows import parse_rows
from marlnb.training.runs.run import Run


@dataclass(frozen=True)
class RunChanges:
    """What is new in a run folder.

    Attributes:
        rows: new lines of `metrics.jsonl`, one per iteration.
        evaluations: new lines of `evaluations.jsonl`.
        events: new lines of `events.log`.
        status: `Run.status()` now.
        restarted: whether the files were cut since the last call, as a resume does, or that call failed. Then what was
            read before is invalid, and this object holds their whole content.
    """

    rows: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    events: list[str]
    status: dict[str, Any]
    restarted: bool = False


@dataclass
class RunFollower:
    """Reads the files of a run, each time from where it stopped."""

    run: Run
    _tails: dict[str, _Tail] = field(default_factory=dict)
    _is_complete: bool = True  # whether the last call returned what it had read

    def read(self) -> RunChanges:
        """Everything new since the last call; at the first call, and after one that failed, everything.

        Raises:
            RunError: a file cannot be read, or is damaged.
        """
        names = (METRICS, EVALUATIONS, EVENTS)
        tails = {name: self._tails.setdefault(name, _Tail(self.run.path / name)) for name in names}
        restarted = not self._is_complete or any(tails[name].was_cut() for name in (METRICS, EVALUATIONS))
        self._is_complete = False
        if restarted:  # both are cut at the same iteration: read both from the start
            for name in (METRICS, EVALUATIONS):
                tails[name].rewind()
        rows, evaluations = (_rows(tails[name]) for name in (METRICS, EVALUATIONS))
        changes = RunChanges(rows, evaluations, tails[EVENTS].read(), self.run.status(), restarted)
        self._is_complete = True
        return changes


@dataclass
class _Tail:
    """The complete lines of a growing file, from where the last read stopped."""

    path: Path
    n_lines: int = 0  # that were read
    _offset: int = 0
    _identity: tuple[int, int] | None = None

    def was_cut(self) -> bool:
        """Whether the file was replaced or is shorter than before, as when a training run is resumed."""
        stat = self._stat()
        if self._identity is None or stat is None:
            return False
        return (stat.st_dev, stat.st_ino) != self._identity or stat.st_size < self._offset

    def rewind(self) -> None:
        self.n_lines, self._offset, self._identity = 0, 0, None

    def read(self) -> list[str]:
        stat = self._stat()
        if stat is None:
            return []
        self._identity = (stat.st_dev, stat.st_ino)
        try:
            data = read_bytes(self.path, offset=self._offset, follow=False)
        except FileNotFoundError:  # deleted meanwhile
            return []
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror or error}") from error
        complete = data[: data.rfind(b"\n") + 1]  # an incomplete line is read the next time
        self._offset += len(complete)
        lines = complete.decode("utf-8", errors="replace").splitlines()
        self.n_lines += len(lines)
        return lines

    def _stat(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror or error}") from error


def _rows(tail: _Tail) -> list[dict[str, Any]]:
    """The new rows of a file."""
    first = tail.n_lines + 1
    return parse_rows(tail.path, tail.read(), first)
