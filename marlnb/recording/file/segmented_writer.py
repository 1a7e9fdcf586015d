"""SegmentedWriter: a RecordingWriter that starts a new file when one is full.

An episode is never split over two segments. After each segment the joined file is rewritten. A kill loses as much as it
does with RecordingWriter, and `Recording.open` joins the segment that was being written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.segments import join, segments_folder, write_joined
from marlnb.recording.file.writer import RecordingOutput, RecordingWriter


@dataclass(eq=False, repr=False)
class SegmentedWriter(RecordingOutput):
    """Writes one recording to `<name>.segments/0000.h5`, `0001.h5`, ..., joined as `path`.

    Args:
        segment_bytes: a segment of this size is full; the rows of the episode that fills it still go there, and of
            those that ended with it. The others are those of RecordingWriter.
    Raises:
        RecordingError: the file or the folder exists or cannot be created.
    """

    segment_bytes: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.path.exists() or any(segments_folder(self.path).glob("*.h5")):
            raise RecordingError(f"{self.path} already exists, or its segments do; give another name")
        self._row_bytes = sum(item.row_bytes for item in self.fields)
        self._described: list[Mapping[str, Mapping[str, Any]]] = []
        self._checkpoint: tuple[int, str] | None = None
        self._rows_in_table = 0
        self.segments: list[Path] = []
        self._start_segment(0)
        write_joined([self._writer.file], self.segments, self.path, attributes={"complete": np.bool_(False)})

    @property
    def rows(self) -> int:
        """Rows of all segments."""
        return self._first_row + self._writer.rows

    @property
    def block_rows(self) -> int:
        return self._writer.block_rows

    def append(self, sources: Sequence[np.ndarray]) -> None:
        """As `RecordingWriter`."""
        self._rotate_if_full()
        self._writer.append(sources)

    def add_episodes(self, columns: Mapping[str, np.ndarray], returns: np.ndarray) -> None:
        """As `RecordingWriter`; `start` counts over all segments."""
        self._rotate_if_full()
        self._rows_in_table = int((columns["start"] + columns["length"]).max(initial=self._rows_in_table))
        self._writer.add_episodes({**columns, "start": columns["start"] - self._first_row}, returns)

    def describe(self, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        self._described.append(attributes)
        self._writer.describe(attributes)

    def enter_checkpoint(self, iteration: int, sha256: str) -> None:
        """As `RecordingWriter`."""
        self._checkpoint = (iteration, sha256)
        self._writer.enter_checkpoint(iteration, sha256)

    def flush_if_due(self) -> None:
        self._writer.flush_if_due()

    @property
    def flush_is_due(self) -> bool:
        return self._writer.flush_is_due

    def close(self, *, complete: bool) -> None:
        """Writes the rest, joins the segments and closes; safe to call twice."""
        if not self._writer.file:
            return
        try:
            self._writer.close(complete=complete)
        except BaseException:
            self._join(complete=False)
            raise
        self._join(complete=complete)

    def _rotate_if_full(self) -> None:
        """Starts a new segment where this one is full and ends with an episode."""
        if self._rows_in_table != self.rows or not self._writer.rows:
            return
        size_bytes = max(self._writer.rows * self._row_bytes, self._writer.file.id.get_filesize() - self._empty_bytes)
        if size_bytes < self.segment_bytes:
            return
        first_row = self.rows
        self._writer.close(complete=True)
        self._join(complete=False)
        self._start_segment(first_row)

    def _start_segment(self, first_row: int) -> None:
        self._first_row = first_row
        self.segments.append(segments_folder(self.path) / f"{len(self.segments):04d}.h5")
        self._writer = RecordingWriter(
            self.segments[-1],
            self.fields,
            self.attributes,
            self.agents,
            expected_rows=min(self.expected_rows, 1 + self.segment_bytes // max(1, self._row_bytes)),
            frames=self.frames,
            locking=self.locking,
            first_row=first_row,
        )
        self._empty_bytes = self._writer.file.id.get_filesize()
        for attributes in self._described:
            self._writer.describe(attributes)
        if self._checkpoint is not None:
            self._writer.add_checkpoint(*self._checkpoint)

    def _join(self, *, complete: bool) -> None:
        closed = self.segments if not self._writer.file else self.segments[:-1]
        if closed:
            join(closed, self.path, complete=complete, locking=self.locking)
