"""Attributions on disk: written batch by batch beside the recording, so that a break loses one batch; read lazily."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.errors import AnalysisError

FORMAT, VERSION = "marlnb.attribution", 2
BY_ROW = ("values", "score", "baseline_score")
WHOLE = ("episode", "t", "baseline")


def beside(recording: str | os.PathLike[str], name: str) -> Path:
    """Where an attribution of that name lies: `<recording>.attributions/<name>.h5`."""
    if not name or name != Path(name).name:
        raise AnalysisError(f"an attribution's name is a file's, without folders; got {name!r}")
    return Path(recording).absolute().with_suffix(".attributions") / f"{name}.h5"


class AttributionFile:
    """A file that rows are added to; one that broke off is gone on with, if it answers the same question.

    Attributes:
        done: rows that are in it.
    Raises:
        AnalysisError: it is there and whole, or asks something else, and `overwrite` is not set.
    """

    def __init__(
        self, path: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shape: tuple[int, ...],
        *, overwrite: bool = False,
    ) -> None:  # fmt: skip
        self.path, text = path, json.dumps(meta, sort_keys=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not overwrite:
            self._continue(text)
            return
        self.file = h5py.File(path, "w")
        self.file.attrs.update(format=FORMAT, version=VERSION, meta=text, complete=False, rows_done=0)
        for name, array in arrays.items():
            self.file[name] = array
        for name, its_shape in (("values", shape), ("score", shape[:2]), ("baseline_score", shape[:2])):
            _allocated(self.file, name, its_shape)
        self.file["values"].attrs.update(axes="row, agent, feature", units=str(meta["units"]))
        self.done = 0
        self.file.flush()

    def _continue(self, text: str) -> None:
        try:
            file = h5py.File(self.path, "r+")
        except OSError as error:
            raise AnalysisError(f"{self.path} cannot be gone on with: {error}") from error
        same = file.attrs.get("meta") == text
        if file.attrs.get("complete", True) or not same:
            file.close()
            why = "answers another question" if not same else "exists already; Attribution.load reads it"
            raise AnalysisError(f"{self.path} {why}; overwrite=True would replace it")
        self.file, self.done = file, int(file.attrs["rows_done"])

    def add(self, values: np.ndarray, score: np.ndarray, start: np.ndarray) -> None:
        """Adds a batch and makes sure that it stays."""
        rows = slice(self.done, self.done + len(values))
        for name, part in zip(BY_ROW, (values, score, start)):
            self.file[name][rows] = part
        self.file.flush()
        self.done += len(values)
        self.file.attrs["rows_done"] = self.done
        self.file.flush()

    def close(self, *, complete: bool) -> None:
        self.file.attrs["complete"] = complete
        self.file.close()


def _allocated(file: h5py.File, name: str, shape: tuple[int, ...]) -> None:
    """A contiguous dataset whose place in the file is fixed at once, so that it can be mapped into memory."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_value(np.array(np.nan, np.float32))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape), dcpl=settings)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray], int, int]:
    """Fields, arrays by name (those by row mapped, not read), rows that are there and rows that were asked for.

    Raises:
        AnalysisError: there is no such file, or it is not an attribution.
    """
    if not Path(path).is_file():
        raise AnalysisError(f"no attribution at {path}")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise AnalysisError(f"{path} is not an attribution: format {file.attrs.get('format')!r}")
            if file.attrs["version"] != VERSION:
                raise AnalysisError(
                    f"{path} is of version {file.attrs['version']} of the format; this marlnb reads {VERSION}"
                )
            meta, done = json.loads(file.attrs["meta"]), int(file.attrs["rows_done"])
            arrays = {name: file[name][()] for name in WHOLE}
            asked = len(arrays["t"])
            for name in BY_ROW:
                arrays[name] = _mapped(path, file[name])[:done]
    except (OSError, KeyError) as error:
        raise AnalysisError(f"{path} cannot be read as an attribution: {error}") from error
    for name in ("episode", "t"):
        arrays[name] = arrays[name][:done]
    return meta, arrays, done, asked


def _mapped(path: str | Path, dataset: h5py.Dataset) -> np.ndarray:
    if 0 in dataset.shape:
        return np.asarray(dataset[()])
    return np.memmap(path, mode="r", dtype=np.float32, offset=dataset.id.get_offset(), shape=dataset.shape)
