"""The HDF5 layout of a recording: what one dataset holds, how it is chunked, and how everything else is named.

Rows are steps of episodes, and an episode's rows are adjacent. Chunks serve both reading a whole episode and reading
one unit over all rows: they hold about a thousand rows of one agent and 64 units. Compared with other shapes, one unit
of a 512 MiB dataset reads in 3 ms instead of 63 ms, and an episode in 0.5 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from marlnb.errors import RecordingError

if TYPE_CHECKING:  # torch is imported where tensors are: a recording opens without it
    import torch
    from torch import Tensor

FORMAT = "marlnb-recording"
VERSION = 1
CHUNK_BYTES = 256 * 1024
CHUNK_UNITS = 64
MAX_UNSPLIT_ROW_BYTES = 256  # shorter rows are not split over chunks
BLOCK_BYTES = 32 * 1024 * 1024
MAX_BLOCK_ROWS = 32768
BFLOAT16 = "bfloat16"
DTYPES = ("float32", "float16", BFLOAT16)
ROW_TOPS = ("steps", "activations", "recurrent", "labels")  # groups whose datasets have one row per step


@dataclass(frozen=True)
class Field:
    """One dataset with one row per step.

    Attributes:
        path: in the file, such as `activations/listener/actor/hidden_1`.
        dims: names of the axes after `row`. An agent axis has the recorded agents of `group`.
        shape: lengths of those axes.
        dtype: as numpy names it, or bfloat16.
        group: the group of the agent axis; empty where there is no such axis.
        agents: names along the agent axis, where they are not all recorded agents of the group.
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
        """The numpy dtype of the stored bytes; int16 for the bits of bfloat16."""
        return np.dtype(np.int16 if self.dtype == BFLOAT16 else self.dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def cell(self) -> tuple[int, ...]:
        """A chunk's extent along the axes after `row`; each divides the length of its axis."""
        if self.row_bytes <= MAX_UNSPLIT_ROW_BYTES:
            return self.shape
        return tuple(_cell_length(name, length) for name, length in zip(self.dims, self.shape))

    def chunk_rows(self, block_rows: int) -> int:
        """Rows in one chunk: a power of two that divides `block_rows`, about CHUNK_BYTES in all."""
        max_rows = max(1, CHUNK_BYTES // max(1, prod(self.cell) * self.item_bytes))
        return min(block_rows, 1 << (max_rows.bit_length() - 1))


def _cell_length(name: str, length: int) -> int:
    if name in ("agent", "layer"):
        return 1
    if name != "unit" or length <= CHUNK_UNITS:
        return length
    divisor = max(n for n in range(1, CHUNK_UNITS + 1) if length % n == 0)
    return divisor if divisor >= 16 else length


def stored_bytes(tensor: Tensor, field: Field) -> np.ndarray:
    """A tensor as the bytes that are stored for `field`."""
    import torch

    stored = tensor.detach().to("cpu", field.torch_dtype)
    return stored.view(torch.int16).numpy() if field.dtype == BFLOAT16 else stored.numpy()


def check_float16(activations: Mapping[str, Tensor]) -> None:
    """Raises RecordingError where float16 would turn a finite activation into an infinity."""
    import torch

    maximum = torch.finfo(torch.float16).max
    for name, tensor in activations.items():
        largest = tensor.abs().nan_to_num(0.0, posinf=0.0).max() if tensor.numel() else 0.0
        if largest > maximum:
            raise RecordingError(
                f"{name} reaches {float(largest):.3g}, above float16's maximum of {maximum:g}; "
                "record with dtype='bfloat16' or 'float32'"
            )


def block_rows(fields: Sequence[Field], expected_rows: int) -> int:
    """Rows collected before they are written: a power of two, at most 32 MiB and 32768 rows.

    A short recording's block is no longer than the recording, since the last block takes its full size on disk.
    """
    row_bytes = sum(field.row_bytes for field in fields)
    max_rows = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))
    needed = 1 << max(0, max(1, expected_rows) - 1).bit_length()
    return min(1 << (max_rows.bit_length() - 1), needed)


def create_dataset(file: h5py.File, field: Field, rows: int) -> h5py.Dataset:
    """An empty dataset for `field`, extendable along rows, with `rows` rows per chunk and labelled axes.

    bfloat16 is declared as a 16-bit float that HDF5 itself converts, so that any reader gets numbers.
    """
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((rows, *field.cell))
    space = h5py.h5s.create_simple((0, *field.shape), (h5py.h5s.UNLIMITED, *field.shape))
    return create_labelled(file, field, space, properties)


def create_labelled(file: h5py.File, field: Field, space: h5py.h5s.SpaceID, properties: Any) -> h5py.Dataset:
    """A dataset with the field's type, labelled axes, group and agents. h5py's own calls have no bfloat16."""
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    handle = h5py.h5d.create(file.id, field.path.encode(), hdf5_type(field.dtype), space, properties, links)
    dataset = h5py.Dataset(handle)
    for axis, name in enumerate(("row", *field.dims)):
        h5py.h5ds.set_label(handle, axis, name.encode())
    if field.group:
        dataset.attrs["group"] = field.group
    if field.agents:
        dataset.attrs["agents"] = list(field.agents)
    return dataset


def axis_names(dataset: h5py.Dataset) -> tuple[str, ...]:
    """The names of a dataset's axes; empty where it has none. HDF5's own call crashes on some damaged files."""
    names = dataset.attrs.get("DIMENSION_LABELS")
    if not isinstance(names, np.ndarray) or names.shape != (dataset.ndim,):
        return ("",) * dataset.ndim
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


def further_attributes(dataset: h5py.Dataset) -> dict[str, Any]:
    """The attributes of a dataset that do not follow from its field."""
    return {key: value for key, value in dataset.attrs.items() if key not in ("DIMENSION_LABELS", "group", "agents")}


def write_rows(dataset: h5py.Dataset, start: int, values: np.ndarray, dtype: h5py.h5t.TypeID | None = None) -> None:
    """Writes `[row, ...]` from row `start` on by HDF5's low-level calls, which take half the time of h5py's slices.

    Args:
        dtype: the type of `values`; None: as numpy states it.
    """
    values = np.ascontiguousarray(values)
    space = dataset.id.get_space()
    space.select_hyperslab((start, *(0 for _ in values.shape[1:])), values.shape)
    dataset.id.write(h5py.h5s.create_simple(values.shape), space, values, dtype)


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


def bfloat16_numbers(bits: np.ndarray) -> np.ndarray:
    """bfloat16 as float32, from its 16 bits."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def datasets_below(file: h5py.File, group: str) -> list[str]:
    """Paths of the datasets below a group, relative to it."""
    paths: list[str] = []
    if group in file:
        file[group].visititems(lambda name, item: paths.append(name) if isinstance(item, h5py.Dataset) else None)
    return paths


def row_paths(file: h5py.File) -> list[str]:
    """Paths of all datasets with one row per step."""
    return [f"{top}/{path}" for top in ROW_TOPS for path in datasets_below(file, top)]


def count_rows(file: h5py.File) -> int:
    """The rows of every dataset; the fewest, where something other than marlnb changed the file."""
    return min((int(file[path].shape[0]) for path in row_paths(file)), default=0)


def field_of(file: h5py.File, path: str) -> Field:
    """The field that a dataset was created for."""
    dataset = file[path]
    return Field(
        path=path,
        dims=axis_names(dataset)[1:],
        shape=tuple(dataset.shape[1:]),
        dtype=BFLOAT16 if is_bfloat16(dataset) else dataset.dtype.name,
        group=str(dataset.attrs.get("group", "")),
        agents=tuple(str(name) for name in dataset.attrs.get("agents", ())),
    )
