"""RecordingWriter: collects rows into blocks and writes whole blocks, so that a killed process leaves a valid file.

Blocks are in memory in the order of the file's chunks, and HDF5 writes them unchanged. After each block the file is
committed: it goes from one valid state to the next (`marlnb.recording.file.journal`). The file has HDF5's default
format, because newer formats and SWMR files do not open after a kill. Disk space is reserved before HDF5 writes a
block, so that a full disk never leaves half a block. A file that is closed gets checksums (`checksums.py`). A new file
gets its name with its first commit, so that under this name there is always a recording.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from marlnb.disk import PROBLEMS, errno_of, left_behind, problem_of, temporary_of
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.recording.file.block import Block
from marlnb.recording.file.checksums import chunk_ranges
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.inspection import remember
from marlnb.recording.file.journal import JournaledFile, journal_of
from marlnb.recording.file.layout import Field, block_rows, write_rows
from marlnb.recording.file.opening import Locking, opening_failed

FLUSH_EVERY_S = 5.0
SPARE_BYTES = 1024 * 1024
NEW = "new"  # purpose of a file without its name
EPISODE_COLUMNS = {"episode": "int64", "start": "int64", "length": "int64", "n_steps": "int64", "seed": "int64"}


class RowWriter(Protocol):
    """Takes the rows of whole episodes. RecordingWriter documents each method."""

    path: Path

    @property
    def rows(self) -> int: ...

    @property
    def block_rows(self) -> int:
        """Rows that are collected before they are written."""

    @property
    def flush_is_due(self) -> bool: ...

    def append(self, sources: Sequence[np.ndarray]) -> None: ...

    def add_episodes(self, columns: Mapping[str, np.ndarray], returns: np.ndarray) -> None: ...

    def flush_if_due(self) -> None: ...


@dataclass(eq=False, repr=False)
class RecordingOutput:
    """The arguments of a recording's writer; RecordingWriter documents them."""

    path: Path
    fields: Sequence[Field]
    attributes: Mapping[str, Any]
    agents: Mapping[str, Sequence[Any]]
    _: KW_ONLY
    expected_rows: int
    frames: FrameStore | None = None
    locking: Locking = None


@dataclass(eq=False, repr=False)
class RecordingWriter(RecordingOutput):
    """Writes one recording.

    Args:
        path: a file that does not exist yet.
        fields: the datasets with one row per step.
        attributes: of the root.
        agents: columns of `/agents`, one entry per agent.
        expected_rows: of the whole recording. Sets the block size; it is no limit.
        frames: rendered frames that are written with the rows.
        locking: HDF5's file locking: True, False (file systems without locks) or "best-effort".
        first_row: the recording's row at which this file starts, where it is one of several segments.
        hidden: keep the file under a temporary name until `publish`.
        replace: the file replaces the one that has this name.
    Raises:
        RecordingError: the file exists or cannot be created; or, in every method, the disk refuses a write. Then the
            file keeps the state after the last flush.
    Attributes:
        rows: appended so far, written or not.
    """

    first_row: int = field(default=0, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)
    replace: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.rows = self.written_bytes = 0
        self.block_rows = block_rows(self.fields, self.expected_rows)
        self._filled = self._written = 0  # rows in the block, and how many of them are in the file
        self._claimed = self._block_bytes = 0
        self._failed = False
        self._episodes: list[dict[str, np.ndarray]] = []
        self._flushed_at = time.monotonic()
        if os.path.exists(self.path) and not self.replace:
            _remove_parts(self.path)  # of a writer that was killed after it gave the file its name
            raise RecordingError(_exists(self.path))
        self._storage, self.file = _create(self.path, self.locking)
        try:
            with self._writing():
                self._create_content()
                self._commit()
            if not self.hidden:
                self.publish()
        except BaseException:
            self.discard()
            raise

    def append(self, sources: Sequence[np.ndarray]) -> None:
        """Appends the rows of episodes of one length: per field `[episode, t, ...]`, as the bytes that are stored."""
        n_episodes, length = sources[0].shape[:2]
        n_appended = 0
        while n_appended < n_episodes:
            n_fitting = min(n_episodes - n_appended, (self.block_rows - self._filled) // length)
            if n_fitting:
                self._fill([source[n_appended : n_appended + n_fitting] for source in sources])
            else:
                done = 0  # an episode longer than the rest of the block fills it part by part
                while done < length:
                    stop = min(length, done + self.block_rows - self._filled)
                    self._fill([source[n_appended : n_appended + 1, done:stop] for source in sources])
                    done = stop
            n_appended += n_fitting or 1

    def add_episodes(self, columns: Mapping[str, np.ndarray], returns: np.ndarray) -> None:
        """Adds entries to `/episodes` for the rows that are appended next.

        Args:
            columns: `[episode]` for each of `EPISODE_COLUMNS`, and `finished`, which may be missing if all are.
            returns: `[episode, agent]`, of the recorded agents.
        """
        finished = columns.get("finished", np.ones(len(returns), bool))
        self._episodes.append({**columns, "finished": finished, "return": returns})

    def describe(self, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        """Sets attributes of datasets, by path."""
        with self._writing():
            for path, values in attributes.items():
                if path in self.file:
                    self.file[path].attrs.update(values)

    def add_checkpoint(self, iteration: int, sha256: str) -> None:
        """Assigns the rows from here on to this checkpoint."""
        with self._writing():
            table = self.file["checkpoints"]
            n = len(table["iteration"])
            values = {"iteration": iteration, "sha256": sha256, "row_start": self.rows, "row_stop": self.rows}
            for name, value in values.items():
                table[name].resize(n + 1, axis=0)
                table[name][n] = value

    def enter_checkpoint(self, iteration: int, sha256: str) -> None:
        """`add_checkpoint`, unless the preceding rows belong to the same checkpoint."""
        table = self.file["checkpoints"]
        last = (int(table["iteration"][-1]), table["sha256"][-1].decode()) if len(table["iteration"]) else None
        if last == (iteration, sha256):
            return
        if last is not None:
            table["row_stop"][-1] = self.rows
        self.add_checkpoint(iteration, sha256)

    def flush_if_due(self) -> None:
        """Writes the collected rows if the last write was more than `FLUSH_EVERY_S` ago."""
        if self.flush_is_due:
            self.flush()

    @property
    def flush_is_due(self) -> bool:
        """Whether the last write was more than `FLUSH_EVERY_S` ago."""
        return time.monotonic() - self._flushed_at > FLUSH_EVERY_S

    def flush(self) -> None:
        """Writes the collected rows; the file is valid afterwards.

        Raises:
            RecordingError: the disk is full or a file size limit is reached; the file is unchanged.
        """
        self._claim_space()
        with self._writing():
            start = self.rows - self._filled
            for block in self._blocks:
                block.write(start, self._written, self._filled)
            if self.frames is not None:
                self.frames.write()
            if self._episodes:
                for name, dataset in self._table.items():
                    _extend(dataset, np.concatenate([entries[name] for entries in self._episodes]))
                self._episodes.clear()
            stops = self.file["checkpoints/row_stop"]
            if len(stops):
                stops[-1] = self.rows
            self._commit()
        self._flushed_at = time.monotonic()
        self._written = self._filled
        if self._filled == self.block_rows:
            self.written_bytes += self._block_bytes
            self._filled = self._written = 0

    def close(self, *, complete: bool) -> None:
        """Writes the rest and closes the file; safe to call twice.

        Raises:
            RecordingError: the disk refuses. The file is closed without the rest.
        """
        if self._storage.is_closed:
            return
        try:
            if not self._failed:
                with self._writing():
                    self.flush()
                    self.file.attrs.modify("complete", np.bool_(complete))
                    chunks = chunk_ranges(self.file)
                    self.file.close()
                    self._storage.commit_and_close(chunks)
        finally:
            self._abandon()
        if not self._failed:
            remember(self._storage.path)

    def publish(self) -> None:
        """Gives a file its name.

        Raises:
            RecordingError: there is a file of this name, which is not to be replaced.
        """
        with self._writing():
            if self.replace:
                shutil.copymode(self.path, self._storage.path)
                os.replace(self._storage.path, self.path)
                return
            try:
                self._storage.publish(self.path)
            except FileExistsError as error:
                raise RecordingError(_exists(self.path)) from error

    def discard(self) -> None:
        """Closes a hidden file and deletes it, unless it was published."""
        self._abandon()
        if self._storage.path != self.path:
            _remove_part(self._storage.path)

    def _commit(self) -> None:
        self.file.flush()
        self._storage.commit()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Names the disk where it refuses a write, whatever HDF5 makes of that. Nothing is written after it."""
        try:
            yield
            if self._storage.error is not None:
                raise self._storage.error
        except RecordingError:
            raise
        except Exception as error:
            self._failed = True
            cause = self._storage.error or error
            if errno_of(cause) not in PROBLEMS:
                raise
            raise RecordingWriteError(self._refusal(cause, self._block_bytes)) from error

    def _refusal(self, error: BaseException, needed_bytes: int) -> str:
        problem, n_rows = problem_of(error, self.path, needed_bytes), self.rows - self._filled + self._written
        kept = f"; the {n_rows:,} rows before it are kept, marked incomplete" if n_rows and not self.hidden else ""
        return f"{self.path} cannot be written: {problem}{kept}"

    def _abandon(self) -> None:
        """Closes the file, if it is open, in its last committed state."""
        self._storage.discard()
        with suppress(Exception):
            self.file.close()
        if not self._storage.is_closed:
            self._storage.discard_and_close()

    def _fill(self, sources: Sequence[np.ndarray]) -> None:
        n_rows = prod(sources[0].shape[:2])
        for block, source in zip(self._blocks, sources):
            block.put(self._filled, source)
        self._filled += n_rows
        self.rows += n_rows
        if self._filled == self.block_rows:
            self.flush()

    def _claim_space(self) -> None:
        """Reserves disk space for the next block, so that HDF5's writes cannot fail on a full disk."""
        frame_bytes = self.frames.pending_bytes if self.frames is not None else 0
        needed = self.file.id.get_filesize() + self._block_bytes + 2 * frame_bytes + SPARE_BYTES
        if needed <= self._claimed:
            return
        try:
            self._storage.claim(needed)
            self._claimed = needed
        except OSError as error:
            raise RecordingWriteError(self._refusal(error, needed - self._storage.allocated_bytes)) from error

    def _create_content(self) -> None:
        self.file.attrs.update({**self.attributes, "complete": False})
        for name, values in self.agents.items():
            self.file[f"agents/{name}"] = np.array(values, dtype=object) if isinstance(values[0], str) else values
        self._blocks = [Block(self.file, item, self.block_rows) for item in self.fields]
        self._block_bytes = sum(block.storage.nbytes for block in self._blocks)
        self._create_tables(len(self.agents["id"]))
        if self.frames is not None:
            self.frames.attach(self.file, self.first_row)

    def _create_tables(self, n_agents: int) -> None:
        create = self.file.create_dataset
        self._table = {
            name: create(f"episodes/{name}", (0,), dtype, maxshape=(None,), chunks=(1024,))
            for name, dtype in {**EPISODE_COLUMNS, "finished": "bool"}.items()
        }
        shape, chunks = (0, n_agents), (256, n_agents)
        self._table["return"] = create("episodes/return", shape, "float64", maxshape=(None, n_agents), chunks=chunks)
        kinds = {"iteration": "int64", "sha256": h5py.string_dtype(), "row_start": "int64", "row_stop": "int64"}
        for name, kind in kinds.items():
            create(f"checkpoints/{name}", (0,), kind, maxshape=(None,), chunks=(64,))


def _extend(dataset: h5py.Dataset, values: np.ndarray) -> None:
    """Appends rows."""
    n = dataset.id.shape[0]
    dataset.id.set_extent((n + len(values), *values.shape[1:]))
    write_rows(dataset, n, values.astype(dataset.dtype, copy=False))


def _create(path: Path, locking: Locking) -> tuple[JournaledFile, h5py.File]:
    """A new file under a temporary name. Those that killed writers left are deleted."""
    part = temporary_of(path, NEW)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_parts(path)
        _remove_part(part)
        storage = JournaledFile(part, locking)
        try:
            return storage, h5py.File(storage, "w")
        except BaseException:
            storage.discard_and_close()
            _remove_part(part)
            raise
    except OSError as error:
        if errno_of(error) in PROBLEMS:
            raise RecordingWriteError(f"{path} cannot be written: {problem_of(error, path)}") from error
        raise RecordingError(opening_failed(path, error)) from error


def _remove_parts(path: Path) -> None:
    for left in left_behind(path, NEW):
        _remove_part(left)


def _remove_part(part: Path) -> None:
    with suppress(OSError):
        journal_of(part).unlink(missing_ok=True)
        part.unlink(missing_ok=True)


def _exists(path: Path) -> str:
    return f"{path} already exists; give another name"
