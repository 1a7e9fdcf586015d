"""Segments: a recording in several files, and one file that joins them.

The joined file holds no rows: its datasets are HDF5 virtual datasets over those of the segments, so that any reader
sees one file. It stores the small tables itself: attributes, agents, episodes, checkpoints. Where a segment is missing
HDF5 silently returns fill values, so `open_joined` checks the segments first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.disk import replacing, writing
from marlnb.display.formatting import count
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.recording.file.checksums import append_checksums
from marlnb.recording.file.episode_index import COLUMNS, EpisodeIndex
from marlnb.recording.file.inspection import is_below, remember, walk_ahead
from marlnb.recording.file.journal import JournaledFile, is_being_written
from marlnb.recording.file.layout import (
    Field,
    axis_names,
    count_rows,
    create_labelled,
    field_of,
    further_attributes,
    row_paths,
)
from marlnb.recording.file.opening import Locking, open_file, open_recording_file, reading

EPISODE = "steps/episode"
CHECKPOINT_COLUMNS = ("iteration", "sha256", "row_start", "row_stop")
INDEX_COLUMNS = {"episode": "number", "return": "returns"} | {name: name for name in (*COLUMNS, "finished")}


def segments_folder(path: Path) -> Path:
    """The folder of a recording's segments: `talk.segments/` for `talk.h5`."""
    return path.with_suffix(".segments")


def join(
    segments: Sequence[Path],
    path: Path,
    *,
    complete: bool | None = None,
    renumber: bool = False,
    attributes: Mapping[str, Any] | None = None,
    locking: Locking = None,
) -> None:
    """Writes the joined file of some recordings to `path`, and replaces an existing one atomically.

    Args:
        segments: files in the order of their rows; the joined file refers to them by relative paths.
        complete: whether the joined file is marked complete; None: if every segment is.
        renumber: number the episodes 0, 1, ... in the segments' order; otherwise the numbers must differ.
        attributes: of the root, in addition to those of the first segment.
    Raises:
        RecordingError: a segment is missing, still being written, not below the folder of `path`, or has other datasets
            or agents than the first.
    """
    if not segments:
        raise RecordingError(f"{path}: there are no segments to join")
    outside = [segment for segment in segments if not is_below(path.parent, _relative(segment, path))]
    if outside:
        raise RecordingError(f"{outside[0]} cannot be joined as {path}: segments must be below the folder of that file")
    with ExitStack() as stack:
        files = [stack.enter_context(open_recording_file(segment, locking)) for segment in segments]
        is_complete = all(bool(file.attrs["complete"]) for file in files) if complete is None else complete
        all_attributes = {**(attributes or {}), "complete": np.bool_(is_complete)}
        write_joined(files, segments, path, renumber=renumber, attributes=all_attributes)


def write_joined(
    files: Sequence[h5py.File],
    segments: Sequence[Path],
    path: Path,
    *,
    renumber: bool = False,
    attributes: Mapping[str, Any],
) -> None:
    """`join`, for files that are open already."""
    fields = _checked_fields(files, segments)
    with writing(path, kind=RecordingWriteError, saved=f"the segments in {segments[0].parent} are whole"):
        with replacing(path) as part:
            # HDF5 ends the process where it cannot write to a path
            with JournaledFile(part, locking=False) as storage, h5py.File(storage, "w") as target:
                _write(target, files, [_relative(segment, path) for segment in segments], fields, renumber, path)
                target.attrs.update(attributes)
            with open(part, "r+b") as raw:
                append_checksums(raw.fileno(), part.stat().st_size)
    remember(path)


def open_joined(path: Path, locking: Locking) -> h5py.File:
    """Opens an existing recording for reading. Segments that a kill left unjoined are joined first.

    Raises:
        RecordingError: as `open_recording_file`; or a segment is missing or too short.
    """
    segments = readable_segments(path)
    walk_ahead([path, *segments])
    if segments and not path.exists() and os.access(path.parent, os.W_OK) and not is_being_written(segments[-1]):
        rejoin(path, locking)
    file = open_recording_file(path, locking)
    try:
        with reading(path, "its list of segments"):
            if "segments" not in file.attrs:
                return file
            if not file.attrs["complete"] and _is_outdated(file, path):
                file.close()
                rejoin(path, locking)
                file = open_recording_file(path, locking)
            _check_segments(file, path, locking)
    except RecordingError:
        file.close()
        raise
    return file


def rejoin(path: Path, locking: Locking = None, *, complete: bool = False) -> None:
    """Joins all files in the folder of segments, in the order of their names."""
    try:
        with open_file(path, locking) as file, reading(path, "its attributes"):
            attributes = _own_attributes(file)
    except RecordingError:  # it is damaged; the segments have all but what it adds to theirs
        attributes = {}
    join(readable_segments(path), path, complete=complete, attributes=attributes, locking=locking)


def _own_attributes(file: h5py.File) -> dict[str, Any]:
    """What a joined file adds to the attributes of its segments."""
    return {name: file.attrs[name] for name in ("settings", "seed") if name in file.attrs}


def segment_paths(file: h5py.File, path: Path) -> list[Path]:
    """The segments of a joined file; empty for an ordinary recording."""
    names = [str(name) for name in np.atleast_1d(file.attrs.get("segments", ()))]
    others = [name for name in names if not is_below(path.parent, name)]
    if others:
        raise RecordingError(
            f"{path} is joined from {others[0]}, which is not below its folder; the segments of a recording are next "
            "to it"
        )
    return [path.parent / name for name in names]


def move_recording(path: Path, target: Path) -> None:
    """Renames a recording together with its segments."""
    folder = segments_folder(path)
    if not folder.is_dir():
        path.rename(target)
        return
    if path.exists():
        with open_file(path, False) as file:
            complete = bool(file.attrs["complete"])
            attributes = _own_attributes(file)
    else:
        complete, attributes = False, {}
    path.unlink(missing_ok=True)  # the segments alone are enough to join them again, wherever a kill ends this
    folder.rename(segments_folder(target))
    if segments := readable_segments(target):
        join(segments, target, complete=complete, attributes=attributes)


def _is_outdated(file: h5py.File, path: Path) -> bool:
    """Whether the folder has rows that the joined file lacks, and no process is writing them."""
    segments = readable_segments(path)
    if not segments or not os.access(path.parent, os.W_OK) or is_being_written(segments[-1]):
        return False
    rows = dict(zip((str(name) for name in file.attrs["segments"]), file.attrs["segment_rows"]))
    if len(segments) != len(rows):
        return len(segments) > len(rows)
    with open_recording_file(segments[-1], None) as last:
        return count_rows(last) != rows.get(_relative(segments[-1], path))


def readable_segments(path: Path) -> list[Path]:
    """A recording's segments in order, without one whose writer was killed while it created the file."""
    segments = []
    for segment in sorted(segments_folder(path).glob("*.h5")):
        if not segment.is_file() or not is_below(path.parent, _relative(segment, path)):
            continue
        with open(segment, "rb") as file:
            if any(file.read(8)):  # HDF5 writes the first bytes of a new file last
                segments.append(segment)
    return segments


def _check_segments(file: h5py.File, path: Path, locking: Locking) -> None:
    paths, row_counts = segment_paths(file, path), np.atleast_1d(file.attrs["segment_rows"])
    if len(paths) != len(row_counts):
        raise RecordingError(f"{path} is damaged: it lists {len(paths)} segments, and rows of {len(row_counts)}")
    walk_ahead(paths)
    for segment, rows in zip(paths, row_counts):
        if not segment.exists():
            raise RecordingError(
                f"{path} is joined from segments, and {segment} with {rows:,} rows is missing. Restore it, or join "
                f"the remaining ones with marlnb.recording.file.segments.rejoin"
            )
        with open_recording_file(segment, locking) as segment_file:
            if "segments" in segment_file.attrs:
                raise RecordingError(f"{segment}, a segment of {path.name}, is itself joined from segments")
            n_rows = count_rows(segment_file)
        if n_rows < rows:
            raise RecordingError(f"{segment}, a segment of {path.name}, has {count(n_rows, 'row')}; expected {rows:,}")


def _relative(segment: Path, path: Path) -> str:
    return os.path.relpath(segment.absolute(), path.absolute().parent)


def _checked_fields(files: Sequence[h5py.File], segments: Sequence[Path]) -> list[Field]:
    fields = [field_of(files[0], name) for name in row_paths(files[0])]
    agents = files[0]["agents/name"][:].tolist()
    for file, segment in zip(files[1:], segments[1:]):
        segment_fields = [field_of(file, name) for name in row_paths(file)]
        differing = sorted({field.path for field in set(segment_fields) ^ set(fields)})
        if differing:
            raise RecordingError(
                f"{segment} cannot be joined to {segments[0]}: their datasets differ: {', '.join(differing)}"
            )
        if file["agents/name"][:].tolist() != agents:
            raise RecordingError(f"{segment} cannot be joined to {segments[0]}: their agents differ")
    return fields


def _write(
    target: h5py.File,
    files: Sequence[h5py.File],
    names: Sequence[str],
    fields: Sequence[Field],
    renumber: bool,
    path: Path,
) -> None:
    rows = [count_rows(file) for file in files]
    target.attrs.update(files[0].attrs)
    files[0].copy("agents", target)
    target.attrs["segments"] = np.array(list(names), dtype=h5py.string_dtype())
    target.attrs["segment_rows"] = np.array(rows, np.int64)
    numbers = _write_episodes(target, files, rows, renumber, path)
    for field in fields:
        if renumber and field.path == EPISODE:
            target[EPISODE] = np.concatenate(numbers)
            target[EPISODE].dims[0].label = "row"
        else:
            _virtual(target, field, names, rows)
        target[field.path].attrs.update(further_attributes(files[0][field.path]))
    _write_frames(target, files, names, rows)
    _write_checkpoints(target, files, rows)


def _write_episodes(
    target: h5py.File, files: Sequence[h5py.File], rows: Sequence[int], renumber: bool, path: Path
) -> list[np.ndarray]:
    """Writes the joined table. Returns, by file, each row's episode number where episodes are renumbered."""
    tables, numbers, first_row, first_number = [], [], 0, 0
    for file, n_rows in zip(files, rows):
        index = EpisodeIndex.read(file, n_rows)
        table = {name: getattr(index, attribute) for name, attribute in INDEX_COLUMNS.items()}
        if renumber:
            table["episode"] = first_number + np.arange(len(index))
            row_numbers = np.empty(n_rows, np.int64)
            for start, length, number in zip(index.start, index.length, table["episode"]):
                row_numbers[start : start + length] = number
            numbers.append(row_numbers)
            first_number += len(index)
        tables.append({**table, "start": index.start + first_row})
        first_row += n_rows
    joined = {name: np.concatenate([table[name] for table in tables]) for name in INDEX_COLUMNS}
    n_duplicates = len(joined["episode"]) - len(np.unique(joined["episode"]))
    if n_duplicates:
        raise RecordingError(f"{path}: {n_duplicates} episode numbers occur in two segments; give renumber=True")
    for name, values in joined.items():
        target[f"episodes/{name}"] = values
    return numbers


def _virtual(target: h5py.File, field: Field, names: Sequence[str], rows: Sequence[int]) -> None:
    """A virtual dataset over the segments'. It uses low-level calls, since h5py's layouts have no bfloat16."""
    total, properties = sum(rows), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space, start = h5py.h5s.create_simple((total, *field.shape)), 0
    for name, n_rows in zip(names, rows):
        if not n_rows:
            continue
        source = h5py.h5s.create_simple((n_rows, *field.shape), (h5py.h5s.UNLIMITED, *field.shape))
        source.select_hyperslab((0,) * (1 + len(field.shape)), (n_rows, *field.shape))
        space.select_hyperslab((start, *(0 for _ in field.shape)), (n_rows, *field.shape))
        properties.set_virtual(space, name.encode(), f"/{field.path}".encode(), source)
        start += n_rows
    space.select_all()
    create_labelled(target, field, space, properties)


def _write_frames(target: h5py.File, files: Sequence[h5py.File], names: Sequence[str], rows: Sequence[int]) -> None:
    if "frames" not in files[0]:
        return
    counts = [len(file["frames/row"]) for file in files]
    dims = axis_names(files[0]["frames/image"])[1:]
    images = Field("frames/image", dims, tuple(files[0]["frames/image"].shape[1:]), "uint8")
    _virtual(target, images, names, counts)
    target["frames/image"].dims[0].label = "frame"
    starts = np.cumsum([0, *rows])
    target["frames/row"] = np.concatenate([file["frames/row"][:] + start for file, start in zip(files, starts)])


def _write_checkpoints(target: h5py.File, files: Sequence[h5py.File], rows: Sequence[int]) -> None:
    """Adjacent segments of one checkpoint get one entry."""
    entries: list[list[Any]] = []
    for file, start, n_rows in zip(files, np.cumsum([0, *rows]), rows):
        table = file["checkpoints"]
        for iteration, sha256, first, stop in zip(*(table[name][:] for name in CHECKPOINT_COLUMNS)):
            first, stop = int(start) + int(first), int(start) + min(int(stop), n_rows)
            if entries and entries[-1][:2] == [iteration, sha256]:
                entries[-1][3] = stop
            else:
                entries.append([iteration, sha256, first, stop])
    for column, name in enumerate(CHECKPOINT_COLUMNS):
        kind = h5py.string_dtype() if name == "sha256" else "int64"
        target.create_dataset(f"checkpoints/{name}", data=[entry[column] for entry in entries], dtype=kind)
