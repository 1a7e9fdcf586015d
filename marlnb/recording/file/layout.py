"""The HDF5 layout of a recording: what one dataset holds, how it is cut into chunks, and the names of everything else.

Rows are steps of episodes; the rows of one episode lie next to each other. Chunks serve both a whole episode and one
unit over all rows: about a thousand rows of one agent and 64 units (measured against other shapes: one unit over
512 MiB reads in 3 ms instead of 63 ms, an episode in 0.5 ms).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import h5py
import numpy as np
import torch

FORMAT = "marlnb-recording"
VERSION = 1
CHUNK_BYTES = 256 * 1024
CHUNK_UNITS = 64
WHOLE_ROW_BYTES = 256
BLOCK_BYTES = 32 * 1024 * 1024
MOST_BLOCK_ROWS = 32768
BFLOAT16 = "bfloat16"
DTYPES = ("float32", "float16", BFLOAT16)
ROW_TOPS = ("steps", "activations", "recurrent", "labels")


@dataclass(frozen=True)
class Field:
    """One dataset with a row a step.

    Attributes:
        path: where in the file, as `activations/listener/actor/hidden_1`.
        dims: the names of the axes after `row`; an axis of agents holds the recorded agents of `group`.
        shape: the lengths of those axes.
        dtype: as numpy names it, or bfloat16.
        group: whose agents `dims` means; empty where there is no such axis.
        agents: their names, where they are not all recorded agents of the group.
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    group: str = ""
    agents: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        return prod(self.shape) * self.item_bytes

    @property
    def item_bytes(self) -> int:
        return self.stored_dtype.itemsize

    @property
    def stored_dtype(self) -> np.dtype:
        """The numpy type whose bytes are written: int16 stands for the bits of a bfloat16."""
        return np.dtype(np.int16 if self.dtype == BFLOAT16 else self.dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found

    @property
    def cell(self) -> tuple[int, ...]:
        """One chunk's extent along the axes after `row`; each divides the axis."""
        if self.row_bytes <= WHOLE_ROW_BYTES:
            return self.shape
        return tuple(_cell_length(name, length) for name, length in zip(self.dims, self.shape))

    def chunk_rows(self, block_rows: int) -> int:
        """Rows in one chunk: a power of two that divides `block_rows`, about CHUNK_BYTES in all."""
        fitting = max(1, CHUNK_BYTES // max(1, prod(self.cell) * self.item_bytes))
        return min(block_rows, 1 << (fitting.bit_length() - 1))


def _cell_length(name: str, length: int) -> int:
    if name in ("agent", "layer"):
        return 1
    if name != "unit" or length <= CHUNK_UNITS:
        return length
    divisor = max(n for n in range(1, CHUNK_UNITS + 1) if length % n == 0)
    return divisor if divisor >= 16 else length


def block_rows(fields: list[Field], expected_rows: int) -> int:
    """Rows gathered before they are written: a power of two, at most 32 MiB and 32768 rows.

    A recording expected to be short gets blocks no longer than itself, since the last one is filled up on disk.
    """
    row_bytes = sum(field.row_bytes for field in fields)
    fitting = max(1, min(MOST_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))
    needed = 1 << max(0, max(1, expected_rows) - 1).bit_length()
    return min(1 << (fitting.bit_length() - 1), needed)


def create_dataset(file: h5py.File, field: Field, rows: int) -> h5py.Dataset:
    """An empty dataset for `field`, extendable along rows, with `rows` rows to a chunk and its axes labelled.

    A bfloat16 is declared as a 16-bit float, which HDF5 itself converts: any reader sees numbers.
    """
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((rows, *field.cell))
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple((0, *field.shape), (h5py.h5s.UNLIMITED, *field.shape))
    handle = h5py.h5d.create(file.id, field.path.encode(), hdf5_type(field.dtype), space, properties, links)
    dataset = h5py.Dataset(handle)
    for axis, name in enumerate(("row", *field.dims)):
        h5py.h5ds.set_label(handle, axis, name.encode())
    if field.group:
        dataset.attrs["group"] = field.group
    if field.agents:
        dataset.attrs["agents"] = list(field.agents)
    return dataset


def hdf5_type(dtype: str) -> h5py.h5t.TypeID:
    if dtype != BFLOAT16:
        return h5py.h5t.py_create(np.dtype(dtype), logical=True)
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def is_bfloat16(dataset: h5py.Dataset) -> bool:
    kind = dataset.id.get_type()
    return isinstance(kind, h5py.h5t.TypeFloatID) and kind.get_size() == 2 and kind.get_ebias() == 127


def datasets_below(file: h5py.File, group: str) -> list[str]:
    """Paths of the datasets below a group, relative to it."""
    found: list[str] = []
    if group in file:
        file[group].visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


def row_paths(file: h5py.File) -> list[str]:
    """Paths of all datasets with a row a step."""
    return [f"{top}/{path}" for top in ROW_TOPS for path in datasets_below(file, top)]


def count_rows(file: h5py.File) -> int:
    """Rows of every dataset: all have as many, unless something else than marlnb has changed them."""
    return min((int(file[path].shape[0]) for path in row_paths(file)), default=0)


def field_of(file: h5py.File, path: str) -> Field:
    """What `create_dataset` was told of a dataset."""
    dataset = file[path]
    return Field(
        path=path,
        dims=tuple(dimension.label for dimension in dataset.dims)[1:],
        shape=tuple(dataset.shape[1:]),
        dtype=BFLOAT16 if is_bfloat16(dataset) else dataset.dtype.name,
        group=str(dataset.attrs.get("group", "")),
        agents=tuple(str(name) for name in dataset.attrs.get("agents", ())),
    )
