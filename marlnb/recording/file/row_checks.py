"""RowChecks: checks the chunks of a recording's rows before their first use, also where they are in segments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import h5py

from marlnb.recording.file.checksums import Checksums
from marlnb.recording.file.opening import Locking, open_file
from marlnb.recording.file.segments import segment_paths


class RowChecks:
    """The checks of one open file. Each chunk is checked once.

    Args:
        file: the open recording.
        path: of the file.
        locking: with which it was opened.
    """

    def __init__(self, file: h5py.File, path: Path, locking: Locking) -> None:
        self.file, self.locking = file, locking
        self._checksums = Checksums.read(path)
        self._segments: list[tuple[int, int, Path]] = []  # first row, row after the last, file
        self._opened: dict[Path, RowChecks] = {}
        self._stack = ExitStack()
        first = 0
        for segment, n_rows in zip(segment_paths(file, path), file.attrs.get("segment_rows", ())):
            self._segments.append((first, first + int(n_rows), segment))
            first += int(n_rows)

    def check(self, path: str, box: Sequence[tuple[int, int]]) -> None:
        """Checks a box of a dataset, [(start, stop), ...] by axis; a file without checksums passes.

        Raises:
            RecordingError: something differs from what was written.
        """
        dataset = self.file[path]
        if dataset.is_virtual:
            (start, stop), *others = box
            for first, last, segment in self._segments:
                if max(start, first) < min(stop, last):
                    self._checks_of(segment).check(
                        path, [(max(start, first) - first, min(stop, last) - first), *others]
                    )
        elif self._checksums is not None:
            self._checksums.check_box(dataset, box)

    def close(self) -> None:
        self._stack.close()
        self._opened.clear()

    def _checks_of(self, segment: Path) -> RowChecks:
        if segment not in self._opened:
            file = self._stack.enter_context(open_file(segment, self.locking))
            self._opened[segment] = RowChecks(file, segment, self.locking)
        return self._opened[segment]
