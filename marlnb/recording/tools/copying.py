"""Copying chosen episodes of a recording into a new one, block by block, however large they are."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.journal import journal_of
from marlnb.recording.file.layout import BFLOAT16, Field, field_of, row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter

EPISODE = "steps/episode"
ALWAYS = ("steps/t", "steps/env_id", EPISODE)
MOST_FRAME_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Portion:
    """What is taken of a recording.

    Attributes:
        paths: datasets with a row a step.
        agents: names; None: all that are recorded.
        episodes: numbers, None: all; every: the steps t = 0, `every`, 2 `every`, ...
    """

    paths: Sequence[str]
    agents: Sequence[str] | None = None
    episodes: Sequence[int] | None = None
    every: int = 1

    def fields(self, recording: Recording) -> list[Field]:
        """The new file's datasets."""
        return [self._field(recording, path) for path in self.paths]

    def array(self, recording: Recording, path: str) -> LabelledArray:
        array = recording._array(path)
        if self.agents is None or "agent" not in array.dims:
            return array
        return array.sel(agent=[name for name in array.labels["agent"] if name in self.agents])

    def agent_places(self, recording: Recording) -> list[int]:
        """Indices among the recorded agents."""
        return [i for i, name in enumerate(recording.agents) if self.agents is None or name in self.agents]

    def agent_columns(self, recording: Recording) -> dict[str, list[Any]]:
        """Of `/agents`."""
        places, table = self.agent_places(recording), recording.file["agents"]
        columns = {name: table[name][:].tolist() for name in table}
        text = {name: [v.decode() if isinstance(v, bytes) else v for v in values] for name, values in columns.items()}
        return {name: [values[place] for place in places] for name, values in text.items()}

    def _field(self, recording: Recording, path: str) -> Field:
        found, array = field_of(recording.file, path), self.array(recording, path)
        own = tuple(name for name in found.agents if self.agents is None or name in self.agents)
        return replace(found, shape=array.shape[1:], agents=own)


@contextmanager
def new_recording(
    path: Path,
    source: Recording,
    portion: Portion,
    *,
    attributes: Mapping[str, Any],
    expected_rows: int,
    complete: bool,
) -> Iterator[RecordingWriter]:
    """A writer of a file that appears under `path` when the block ends, and not at all when it fails.

    Raises:
        RecordingError: `path` is there already.
    """
    if path.exists():
        raise RecordingError(f"{path} is there already; give another name")
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    frames = None
    if "frames" in source.file:
        frames = FrameStore(1, tuple(source.file["frames/image"].shape[1:]))
    own = {name: value for name, value in source.file.attrs.items() if name not in ("segments", "segment_rows")}
    try:
        writer = RecordingWriter(
            part,
            portion.fields(source),
            {**own, **attributes},
            portion.agent_columns(source),
            expected_rows=expected_rows,
            frames=frames,
            locking="best-effort",
        )
        try:
            writer.describe(_descriptions(source, portion))
            yield writer
            writer.close(complete=complete)
        finally:
            writer.close(complete=False)
        os.link(part, path)  # unlike a rename this replaces nothing that came to be meanwhile
    except FileExistsError as error:
        raise RecordingError(f"{path} is there already; give another name") from error
    finally:
        part.unlink(missing_ok=True)
        journal_of(part).unlink(missing_ok=True)


def copy_episodes(
    source: Recording, writer: RecordingWriter, portion: Portion, *, first_number: int | None = None
) -> int:
    """Appends the chosen episodes, in the order of their rows, and returns how many.

    Args:
        first_number: number them from here on; None: they keep their numbers.
    """
    places = portion.agent_places(source)
    arrays = [portion.array(source, path) for path in portion.paths]
    checkpoints = source.checkpoints
    taken = 0
    for rows, numbers, table in _blocks(source, portion, writer.block_rows, first_number):
        if len(table):
            columns = {name: table[name].to_numpy() for name in ("n_steps", "seed", "length", "finished")}
            start = writer.rows + np.cumsum(table["length"]) - table["length"]
            columns |= {"episode": table["new"].to_numpy(), "start": start.to_numpy()}
            writer.add_episodes(columns, table[source.agents].to_numpy(np.float64)[:, places])
        for piece in _by_checkpoint(rows, checkpoints["row_start"].to_numpy()):
            _enter_checkpoint(writer, checkpoints, int(rows[piece.start]))
            _copy_rows(source, writer, arrays, rows[piece], numbers[piece])
        taken += len(table)
    return taken


def _copy_rows(
    source: Recording, writer: RecordingWriter, arrays: Sequence[LabelledArray], rows: np.ndarray, numbers: np.ndarray
) -> None:
    first = writer.rows
    stored = [numbers if array.path == EPISODE else stored_rows(array, rows) for array in arrays]
    writer.append([values[None] for values in stored])
    if writer.frames is not None:
        _copy_frames(source.file, writer.frames, rows, first)
        if writer.frames.pending_bytes > MOST_FRAME_BYTES:
            writer.flush()


def stored_rows(array: LabelledArray, rows: np.ndarray) -> np.ndarray:
    """`[row, ...]` as the bytes that are stored."""
    read = replace(array, rows=rows)._read(rows, raw=True, keep=True)
    return read.view(np.int16) if array.dtype_stored == BFLOAT16 else read


def _blocks(
    source: Recording, portion: Portion, most_rows: int, first_number: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Rows to be copied, their new episode numbers and the entries of the episodes that begin among them."""
    table = source.episodes.sort_values("start")
    if portion.episodes is not None:
        table = table[table.index.isin(list(portion.episodes))]
    times = source._times()
    starts, lengths = table["start"].to_numpy(), table["length"].to_numpy()
    rows = [np.arange(start, start + length) for start, length in zip(starts, lengths)]
    rows = [found[times[found] % portion.every == 0] for found in rows]
    order = np.argsort(np.argsort(table.index.to_numpy()))
    new = table.index.to_numpy() if first_number is None else first_number + order
    table = table.assign(length=[len(found) for found in rows], new=new)
    at = 0
    while at < len(table):
        stop, n_rows = at + 1, len(rows[at])
        while stop < len(table) and n_rows + len(rows[stop]) <= most_rows:
            n_rows, stop = n_rows + len(rows[stop]), stop + 1
        chosen = np.concatenate(rows[at:stop])
        numbers = np.repeat(table["new"].to_numpy()[at:stop], [len(found) for found in rows[at:stop]])
        for first in range(0, max(1, len(chosen)), most_rows):
            part = slice(first, first + most_rows)
            yield chosen[part], numbers[part], table.iloc[at:stop] if first == 0 else table.iloc[:0]
        at = stop


def _by_checkpoint(rows: np.ndarray, row_starts: np.ndarray) -> Iterator[slice]:
    """Stretches of rows that are of one checkpoint."""
    of_row = np.searchsorted(row_starts, rows, side="right")
    edges = [0, *(np.flatnonzero(np.diff(of_row)) + 1), len(rows)]
    return (slice(int(a), int(b)) for a, b in itertools.pairwise(edges) if b > a)


def _enter_checkpoint(writer: RecordingWriter, checkpoints: Any, row: int) -> None:
    found = checkpoints[checkpoints["row_start"] <= row].iloc[-1:]
    for _, entry in found.iterrows():
        writer.enter_checkpoint(int(entry["iteration"]), str(entry["sha256"]))


def _copy_frames(file: h5py.File, frames: FrameStore, rows: np.ndarray, first: int) -> None:
    drawn = file["frames/row"][:]
    images = file["frames/image"]
    for place in np.flatnonzero(np.isin(drawn, rows)):
        row = first + int(np.searchsorted(rows, drawn[place]))
        frames.put_image(row, images[int(place)])


def _descriptions(source: Recording, portion: Portion) -> dict[str, dict[str, Any]]:
    kept = ("DIMENSION_LABELS", "group", "agents")
    return {
        path: {name: value for name, value in source.file[path].attrs.items() if name not in kept}
        for path in portion.paths
    }


def all_paths(recording: Recording) -> list[str]:
    return row_paths(recording.file)
