"""Nested state as JSON and one file of raw tensor bytes. It is safe to open from any source: it contains no code.

`manifest.json` holds the tree, in which a tensor is `{"$tensor": k}`, a table of dtype, shape and offset, and the
SHA-256 of `tensors.bin` and of itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marlnb.disk import writing
from marlnb.errors import CheckpointError, shown
from marlnb.text_files import read_bytes
from marlnb.training.runs.checkpoints.manifest import FORMAT, MANIFEST, VERSION, manifest_digest
from marlnb.training.runs.checkpoints.manifest import read_manifest as read_manifest
from marlnb.training.runs.files import numbered

TENSORS = "tensors.bin"
ALIGNMENT = 64
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def write_state(folder: Path, state: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """Writes `state` into an empty folder, synced to disk.

    Args:
        state: nested dicts, lists and tuples of tensors, numbers, strings, booleans and None.
        header: JSON that can be read without reading the tensors.
    Returns:
        the SHA-256 that names this content.
    Raises:
        CheckpointError: `state` contains another type.
        DiskError: the disk has too little space, which is claimed before anything is written, or it refuses a write.
        OSError: the folder cannot be written for another reason.
    """
    tensors: list[Tensor] = []
    tree = _encode(state, tensors, "state")
    table = _table_of(tensors)
    size_bytes = table[-1]["offset"] + table[-1]["size_bytes"] if table else 0
    with writing(folder, needed_bytes=size_bytes):
        digest = _write_tensors(folder / TENSORS, tensors, size_bytes)
        manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, **header, "tree": tree, "tensors": table}
        manifest["files"] = {TENSORS: {"sha256": digest, "size_bytes": size_bytes}}
        manifest["sha256"] = manifest_digest(manifest)
        with open(folder / MANIFEST, "x", encoding="utf-8") as file:
            file.write(json.dumps(manifest, allow_nan=False))  # json.dump, in Python, takes ten times as long
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)
    return str(manifest["sha256"])


def read_state(folder: Path) -> dict[str, Any]:
    """The state that `write_state` wrote, tensors on the CPU, every hash verified.

    Raises:
        CheckpointError: a file is missing, damaged, truncated or malformed.
    """
    manifest = read_manifest(folder)
    try:
        expected = manifest["files"][TENSORS]
        data = bytearray(read_bytes(folder / TENSORS, max_bytes=max(int(expected["size_bytes"]), 0), follow=False))
        if len(data) != expected["size_bytes"]:
            size = f"{len(data):,} of {expected['size_bytes']:,} bytes"
            raise CheckpointError(f"{folder / TENSORS} is damaged: it has {size}{_others(folder)}")
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            problem = "its content does not match its SHA-256"
            raise CheckpointError(f"{folder / TENSORS} is damaged: {problem}{_others(folder)}")
        tensors = [_read_tensor(entry, data) for entry in manifest["tensors"]]
        state = _decode(manifest["tree"], tensors)
    except OSError as error:
        raise CheckpointError(f"{folder} has no readable {TENSORS}: {error}") from error
    except MemoryError as error:
        raise CheckpointError(f"{folder / TENSORS} cannot be read: this process has no memory for it") from error
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise CheckpointError(f"{folder / MANIFEST} is malformed: {type(error).__name__}: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{folder / MANIFEST} is malformed: its tree is a {type(state).__name__}, not a dict")
    return state


def _others(folder: Path) -> str:
    """What to do about a damaged checkpoint: the others next to it."""
    others = ", ".join(str(number) for number in numbered(folder.parent) if str(number) != folder.name)
    return f"; give the iteration of another one: {others}" if others else ""


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(value: Any, tensors: list[Tensor], where: str) -> Any:
    if isinstance(value, Tensor):
        if str(value.dtype).removeprefix("torch.") not in DTYPES:
            raise CheckpointError(f"{where} is a tensor of {value.dtype}; valid: {', '.join(DTYPES)}")
        tensors.append(value)
        return {"$tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(item, tensors, f"{where}.{key}") for key, item in value.items()}
        pairs = [[_encode(k, tensors, where), _encode(v, tensors, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"$dict": pairs}
    if isinstance(value, (list, tuple)):
        items = [_encode(item, tensors, f"{where}[{index}]") for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    raise CheckpointError(
        f"{where} is a {type(value).__name__}; a state holds dicts, lists and tuples of tensors, numbers, strings, "
        "booleans and None only"
    )


def _decode(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, item), *_ = value.items()
        if key == "$tensor":
            return tensors[item]
        if key == "$float":
            return float(item)
        if key == "$tuple":
            return tuple(_decode(part, tensors) for part in item)
        if key == "$dict":
            return {_decode(k, tensors): _decode(v, tensors) for k, v in item}
    return {key: _decode(item, tensors) for key, item in value.items()}


def _table_of(tensors: list[Tensor]) -> list[dict[str, Any]]:
    """Where each tensor is in the file, one after the other, aligned."""
    table: list[dict[str, Any]] = []
    offset = 0
    for tensor in tensors:
        offset += -offset % ALIGNMENT
        dtype, size = str(tensor.dtype).removeprefix("torch."), tensor.numel() * tensor.element_size()
        table.append({"dtype": dtype, "shape": list(tensor.shape), "offset": offset, "size_bytes": size})
        offset += size
    return table


def _write_tensors(path: Path, tensors: list[Tensor], size_bytes: int) -> str:
    """Returns the SHA-256 of the file."""
    digest, offset = hashlib.sha256(), 0
    with open(path, "xb") as file:
        if size_bytes:
            os.posix_fallocate(file.fileno(), 0, size_bytes)  # a full disk is known before the first byte
        for tensor in tensors:
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            for chunk in (bytes(-offset % ALIGNMENT), data.data):
                file.write(chunk)
                digest.update(chunk)
            offset += -offset % ALIGNMENT + data.nbytes
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _read_tensor(entry: Mapping[str, Any], data: bytearray) -> Tensor:
    dtype, shape, offset, size = DTYPES[entry["dtype"]], entry["shape"], entry["offset"], entry["size_bytes"]
    if not all(type(number) is int and number >= 0 for number in (offset, size, *shape)):
        raise ValueError(f"offsets, sizes and shapes must be integers from 0; got {shown(entry)}")
    if math.prod(shape) * dtype.itemsize != size or offset + size > len(data):
        raise ValueError(f"a tensor of {size} bytes at {offset} does not fit its shape {shown(shape)} or the file")
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    try:
        raw = torch.frombuffer(data, dtype=torch.uint8, count=size, offset=offset).clone()
    except RuntimeError as error:  # the only one: sizes have been checked
        raise MemoryError(str(error)) from error
    return (raw != 0).reshape(shape) if dtype == torch.bool else raw.view(dtype).reshape(shape)
