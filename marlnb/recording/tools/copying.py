"""Copies chosen episodes of a recording into a new one, block by block, in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.layout import BFLOAT16, Field, field_of, further_attributes
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter

EPISODE = "steps/episode"
STEP_COLUMNS = ("steps/t", "steps/env_id", EPISODE)
MAX_FRAME_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Portion:
    """A part of a recording.

    Attributes:
        paths: datasets with one row per step.
        agents: names; None: all recorded agents.
        episodes: numbers; None: all.
        every: the steps t = 0, `every`, 2 `every`, ...
    """

    paths: Sequence[str]
    agents: Sequence[str] | None = None
    episodes: Sequence[int] | None = None
    every: int = 1

    def fields(self, recording: Recording) -> list[Field]:
        """The new file's datasets."""
        return [self._field(recording, path) for path in self.paths]

    def array(self, recording: Recording, path: str) -> LabelledArray:
        """A dataset, restricted to the chosen agents."""
        array = recording._array(path)
        if self.agents is None or "agent" not in array.dims:
            return array
        return array.sel(agent=[name for name in array.labels["agent"] if name in self.agents])

    def agent_indices(self, recording: Recording) -> list[int]:
        """Indices of the chosen agents among the recorded ones."""
        return [i for i, name in enumerate(recording.agents) if self.agents is None or name in self.agents]

    def agent_columns(self, recording: Recording) -> dict[str, list[Any]]:
        """Columns of `/agents`."""
        indices, columns = self.agent_indices(recording), {}
        for name, dataset in recording.file["agents"].items():
            values = [value.decode() if isinstance(value, bytes) else value for value in dataset[:].tolist()]
            columns[name] = [values[index] for index in indices]
        return columns

    def _field(self, recording: Recording, path: str) -> Field:
        field = field_of(recording.file, path)
        agents = tuple(name for name in field.agents if self.agents is None or name in self.agents)
        return replace(field, shape=self.array(recording, path).shape[1:], agents=agents)


@contextmanager
def new_recording(
    path: Path,
    source: Recording,
    portion: Portion,
    *,
    attributes: Mapping[str, Any],
    expected_rows: int,
    complete: bool,
    replace: bool = False,
) -> Iterator[RecordingWriter]:
    """A writer of a file that appears at `path` when the block ends, and not at all if the block raises.

    Args:
        replace: the file replaces the one at `path`, and gets its permissions.
    Raises:
        RecordingError: `path` exists, and `replace` is False; or the disk refuses.
    """
    frames = None
    if "frames" in source.file:
        frames = FrameStore(1, tuple(source.file["frames/image"].shape[1:]))
    copied = {name: value for name, value in source.file.attrs.items() if name not in ("segments", "segment_rows")}
    writer = RecordingWriter(
        path,
        portion.fields(source),
        {**copied, **attributes},
        portion.agent_columns(source),
        expected_rows=expected_rows,
        frames=frames,
        locking="best-effort",
        hidden=True,
        replace=replace,
    )
    try:
        writer.describe({path: further_attributes(source.file[path]) for path in portion.paths})
        yield writer
        writer.close(complete=complete)
        writer.publish()
    finally:
        writer.discard()


def copy_episodes(
    source: Recording, writer: RecordingWriter, portion: Portion, *, first_number: int | None = None
) -> int:
    """Appends the chosen episodes in the order of their rows, and returns how many.

    Args:
        first_number: renumber the episodes from here on; None: they keep their numbers.
    """
    agent_indices = portion.agent_indices(source)
    arrays = [portion.array(source, path) for path in portion.paths]
    checkpoints = source.checkpoints
    row_starts = checkpoints["row_start"].to_numpy()
    n_episodes = 0
    for rows, numbers, table in _blocks(source, portion, writer.block_rows, first_number):
        if len(table):
            columns = {name: table[name].to_numpy() for name in ("n_steps", "seed", "length", "finished")}
            start = writer.rows + np.cumsum(table["length"]) - table["length"]
            columns |= {"episode": table["new"].to_numpy(), "start": start.to_numpy()}
            writer.add_episodes(columns, table[source.agents].to_numpy(np.float64)[:, agent_indices])
        for part in _by_checkpoint(rows, row_starts):
            for _, entry in checkpoints[checkpoints["row_start"] <= rows[part.start]].iloc[-1:].iterrows():
                writer.enter_checkpoint(int(entry["iteration"]), str(entry["sha256"]))
            _copy_rows(source, writer, arrays, rows[part], numbers[part])
        n_episodes += len(table)
    return n_episodes


def stored_rows(array: LabelledArray, rows: np.ndarray) -> np.ndarray:
    """Rows `[row, ...]` as the bytes that are stored."""
    values = replace(array, rows=rows)._read(rows, raw=True, keep=True)
    return values.view(np.int16) if array.dtype_stored == BFLOAT16 else values


def _copy_rows(
    source: Recording, writer: RecordingWriter, arrays: Sequence[LabelledArray], rows: np.ndarray, numbers: np.ndarray
) -> None:
    first_row = writer.rows
    stored = [numbers if array.path == EPISODE else stored_rows(array, rows) for array in arrays]
    writer.append([values[None] for values in stored])
    if writer.frames is not None:
        _copy_frames(source.file, writer.frames, rows, first_row)
        if writer.frames.pending_bytes > MAX_FRAME_BYTES:
            writer.flush()


def _blocks(
    source: Recording, portion: Portion, max_rows: int, first_number: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Blocks of rows to copy, with each row's new episode number and the table of the episodes that begin there."""
    table = source.episodes.sort_values("start")
    if portion.episodes is not None:
        table = table[table.index.isin(list(portion.episodes))]
    times = source._times()
    spans = [np.arange(start, start + length) for start, length in zip(table["start"], table["length"])]
    episode_rows = [span[times[span] % portion.every == 0] for span in spans]
    order = np.argsort(np.argsort(table.index.to_numpy()))
    new = table.index.to_numpy() if first_number is None else first_number + order
    table = table.assign(length=[len(rows) for rows in episode_rows], new=new)
    first = 0
    while first < len(table):
        stop, n_rows = first + 1, len(episode_rows[first])
        while stop < len(table) and n_rows + len(episode_rows[stop]) <= max_rows:
            n_rows, stop = n_rows + len(episode_rows[stop]), stop + 1
        rows = np.concatenate(episode_rows[first:stop])
        numbers = np.repeat(new[first:stop], [len(item) for item in episode_rows[first:stop]])
        for start in range(0, max(1, len(rows)), max_rows):
            part = slice(start, start + max_rows)
            yield rows[part], numbers[part], table.iloc[first:stop] if start == 0 else table.iloc[:0]
        first = stop


def _by_checkpoint(rows: np.ndarray, row_starts: np.ndarray) -> Iterator[slice]:
    """Slices of `rows` that belong to one checkpoint each."""
    checkpoint_index = np.searchsorted(row_starts, rows, side="right")
    edges = [0, *(np.flatnonzero(np.diff(checkpoint_index)) + 1), len(rows)]
    return (slice(int(a), int(b)) for a, b in itertools.pairwise(edges) if b > a)


def _copy_frames(file: h5py.File, frames: FrameStore, rows: np.ndarray, first_row: int) -> None:
    frame_rows, images = file["frames/row"][:], file["frames/image"]
    for index in np.flatnonzero(np.isin(frame_rows, rows)):
        row = first_row + int(np.searchsorted(rows, frame_rows[index]))
        frames.put_image(row, images[int(index)])
