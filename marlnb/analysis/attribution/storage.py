"""Attributions on disk, written batch by batch next to the recording, so that an interruption loses one batch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.disk import replacing, writing
from marlnb.errors import AnalysisError, RecordingError
from marlnb.paths import is_file_name
from marlnb.recording.file.inspection import inspect

FORMAT, VERSION = "marlnb.attribution", 2
BY_ROW = ("values", "score", "baseline_score")
WHOLE = ("episode", "t", "baseline")


def attribution_path(recording: str | os.PathLike[str], name: str) -> Path:
    """`<recording>.attributions/<name>.h5`."""
    if not is_file_name(name):
        raise AnalysisError(f"save= must be a file name without folders; got {name!r}")
    return Path(recording).absolute().with_suffix(".attributions") / f"{name}.h5"


class AttributionFile:
    """A file that rows are appended to; an incomplete one with the same options is continued.

    Attributes:
        path: the file.
        done: rows that it holds.
    Raises:
        AnalysisError: the file exists and is complete, or has other options, rows, baselines or weights, and
            `overwrite` is not set.
    """

    def __init__(
        self, path: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shape: tuple[int, ...],
        *, overwrite: bool = False,
    ) -> None:  # fmt: skip
        self.path = path
        if path.exists() and not overwrite:
            self._resume(meta, arrays)
            return
        with writing(path, kind=AnalysisError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with nullcontext(path) if overwrite else replacing(path) as part, h5py.File(part, "w") as file:
                text = json.dumps(meta, sort_keys=True)
                file.attrs.update(format=FORMAT, version=VERSION, meta=text, complete=False, rows_done=0)
                for name, array in arrays.items():
                    file[name] = array
                for name in BY_ROW:
                    _allocate(file, name, shape if name == "values" else shape[:2])
                file["values"].attrs.update(axes="row, agent, feature", units=str(meta["units"]))
            self.file, self.done = h5py.File(path, "r+"), 0

    def _resume(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        try:
            inspect(self.path)
            file = h5py.File(self.path, "r+")
        except (OSError, RecordingError) as error:
            raise AnalysisError(f"{self.path} cannot be continued: {error}") from error
        different = _different(file, meta, arrays) if file.attrs.get("format") == FORMAT else ["format"]
        if file.attrs.get("complete", True) or different:
            file.close()
            why = "exists and is complete; Attribution.load reads it"
            if different:
                why = f"has other options, which differ in {', '.join(different)}"
            raise AnalysisError(f"{self.path} {why}; overwrite=True would replace it")
        self.file, self.done = file, int(file.attrs["rows_done"])

    def append(self, values: np.ndarray, score: np.ndarray, baseline_score: np.ndarray) -> None:
        """Appends a batch; `rows_done` changes only after the batch is on disk."""
        rows = slice(self.done, self.done + len(values))
        with writing(self.path, kind=AnalysisError, saved=f"{self.done:,} rows are, and the same call continues"):
            for name, part in zip(BY_ROW, (values, score, baseline_score)):
                dataset = self.file[name]
                dataset[rows] = part
                dataset.flush()  # raises where the disk refuses; closing would not, and HDF5 would crash later
            self.file.flush()
            self.done += len(values)
            self.file.attrs["rows_done"] = self.done
            self.file.flush()

    def __enter__(self) -> AttributionFile:
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        """Closes the file, which is complete unless an exception ended the block."""
        try:
            with writing(self.path, kind=AnalysisError):
                self.file.attrs["complete"] = error is None
                self.file.close()
        except AnalysisError:
            if error is None:  # else it is an error of this disk already
                raise


def _different(file: h5py.File, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the fields, of the parts of `origin` and of the arrays that a file does not share."""
    new, stored = (_fields_as_text(fields) for fields in (meta, json.loads(file.attrs["meta"])))
    names = [name for name in new if stored.get(name) != new[name]]
    return names + [name for name, array in arrays.items() if name not in file or not _close(file[name][()], array)]


def _fields_as_text(meta: Mapping[str, Any]) -> dict[str, str]:
    """Each option and part of `origin` as JSON; faithfulness is measured, no option."""
    fields = {**meta, **meta["origin"]}
    names = fields.keys() - {"origin", "faithfulness"}
    return {name: json.dumps(fields[name], sort_keys=True) for name in sorted(names)}


def _close(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether shapes and numbers agree up to rounding, since another machine may compute another last digit."""
    return first.shape == second.shape and np.allclose(first, second, equal_nan=True)


def _allocate(file: h5py.File, name: str, shape: tuple[int, ...]) -> None:
    """Creates a contiguous dataset, allocated at once, so that it can be mapped into memory."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_value(np.array(np.nan, np.float32))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape), dcpl=settings)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray], int, int]:
    """Fields, arrays by name (those by row mapped into memory), rows in the file and rows requested.

    Raises:
        AnalysisError: there is no such file, or it is not an attribution.
    """
    if not Path(path).is_file():
        raise AnalysisError(f"no attribution at {path}")
    try:
        inspect(Path(path))
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise AnalysisError(f"{path} is not an attribution: format {file.attrs.get('format')!r}")
            if file.attrs["version"] != VERSION:
                raise AnalysisError(
                    f"{path} has version {file.attrs['version']} of the format; this marlnb reads {VERSION}"
                )
            meta, done = json.loads(file.attrs["meta"]), int(file.attrs["rows_done"])
            arrays = {name: file[name][()] for name in WHOLE}
            requested = len(arrays["t"])
            for name in BY_ROW:
                data = file[name]
                is_empty = 0 in data.shape  # it has no place in the file
                values = data[()] if is_empty else np.memmap(path, np.float32, "r", data.id.get_offset(), data.shape)
                arrays[name] = values[:done]
    except AnalysisError:
        raise
    except Exception as error:  # whatever HDF5 and the contents of a damaged file raise
        raise AnalysisError(f"{path} cannot be read as an attribution: {error}") from error
    for name in ("episode", "t"):
        arrays[name] = arrays[name][:done]
    return meta, arrays, done, requested
