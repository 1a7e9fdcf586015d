"""RowIndex: where the rows of a growing `metrics.jsonl` are, so that a page reads a few hundred of 100,000.

Few rows have evaluations, or returns where episodes are longer than a rollout. Each kind of row is therefore sampled by
itself: rows that are evenly spaced in the file are seldom those.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, BinaryIO

from marlnb.display.formatting import count
from marlnb.errors import RunError
from marlnb.text_files import open_ordinary
from marlnb.training.runs.files import parse_line
from marlnb.training.runs.listing import evenly_spaced
from marlnb.training.runs.metrics_rows import checked_row

KINDS = (b"", b'"returns": {"', b'"evaluation": {"')  # of rows, by what their lines contain
MAX_LINE_BYTES = 1024 * 1024  # a longer line is damaged


class RowIndex:
    """The rows of one file. Each byte is read once, and only the sampled lines are parsed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = {kind: array("q") for kind in KINDS}
        self._end = 0  # of the last line that was read
        self._last = b""

    def sample(self, n_rows: int, problems: list[str]) -> list[dict[str, Any]]:
        """At most `n_rows` rows of each kind, evenly spaced, with the first and the last; all in the file's order.

        Args:
            problems: receives what is wrong with damaged lines, which are skipped.
        Raises:
            OSError: the file cannot be read.
        """
        if not self._path.exists():
            return []
        with open_ordinary(self._path, follow=False) as file:
            self._read_new(file)
            samples = [[starts[k] for k in evenly_spaced(len(starts), n_rows)] for starts in self._starts.values()]
            lines = [_line_at(file, start) for start in sorted({start for starts in samples for start in starts})]
        return _rows(lines, f"{self._path}: a line", problems)

    def _read_new(self, file: BinaryIO) -> None:
        file.seek(self._end - len(self._last))
        if file.read(len(self._last)) != self._last:  # the file was cut or replaced, as a resume does
            for starts in self._starts.values():
                del starts[:]
            self._end, self._last = 0, b""
            file.seek(0)
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:  # it is being written
                break
            for kind, starts in self._starts.items():
                if kind in line:
                    starts.append(self._end)
            self._end += len(line)
            self._last = line


def _line_at(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.readline(MAX_LINE_BYTES)


def _rows(lines: list[bytes], where: str, problems: list[str]) -> list[dict[str, Any]]:
    rows, damages = [], []
    for line in lines:
        try:
            rows.append(checked_row(parse_line(line.decode("utf-8", "replace"), where), where, False))
        except RunError as error:
            damages.append(str(error))
    if damages:
        problems.append(damages[0] + (f"; {count(len(damages), 'damaged line')} in all" if damages[1:] else ""))
    return rows
