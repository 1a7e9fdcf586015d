"""Walks over an HDF5 file's structure and says what no recording has. `inspection` runs it in a process of its own.

HDF5 trusts its files: a hostile or damaged one makes it read other files, load plug-ins, allocate what the file claims,
loop forever or crash. So this program opens the file first, under limits of time and memory, touches all metadata
that marlnb reads, and reads no rows. It imports h5py and nothing of marlnb, which takes 0.15 s.

    python -I structure.py FOLDERS MEMORY_BYTES CPU_S DAMAGED PATH...    FOLDERS, of h5py and numpy, separated by ":"

It prints a line of JSON for each file: its `problem` ("" for none), and the `sources` of its virtual datasets.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from math import prod
from typing import Any

if __name__ == "__main__":
    sys.path += sys.argv[1].split(":")

import h5py
import numpy as np

MAX_OBJECTS = 20_000
MAX_DEPTH = 16
MAX_NAME_BYTES = 1024
MAX_RANK = 8
MAX_ATTRIBUTES = 256  # of one object
MAX_ELEMENTS = 1_000_000  # of an attribute, and of a dataset of texts
MAX_TEXT_BYTES = 64 * 1024 * 1024  # of an attribute's or a small dataset's texts
MAX_CHUNK_BYTES = 256 * 1024 * 1024
MAX_EMPTY_BYTES = 1024 * 1024  # of a dataset that has no place in the file
TEXT_REFERENCE_BYTES = 16  # length, address and index; HDF5 states the size of a pointer
MAX_GROWTH = 64  # a damaged file's datasets claim at most so often its size
FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
DATA_TYPES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM, h5py.h5t.STRING)


class Finding(Exception):
    """What no recording has."""


class Walk:
    """Visits every object of one file.

    Args:
        damaged: pass over what cannot be read, as `repair` does; refuse only what is dangerous.
    """

    def __init__(self, path: str, *, damaged: bool) -> None:
        self.path, self.damaged = path, damaged
        self.size_bytes = os.stat(path).st_size
        self.stored_bytes = 0
        self.addresses: set[int] = set()
        self.sources: set[str] = set()

    def run(self) -> None:
        with h5py.File(self.path, "r", locking=False) as file:
            self._group(file.id, "", 0)

    def _group(self, group: Any, path: str, depth: int) -> None:
        self._enter(group, path or "/", depth)
        self._attributes(group, path or "/")
        links: list[tuple[bytes, int]] = []

        def note(name: bytes, info: Any) -> int | None:
            links.append((name, info.type))
            return 1 if len(links) > MAX_OBJECTS else None

        self._tolerate(lambda: group.links.iterate(note, info=True))
        for name, kind in links:
            self._link(group, name, kind, path, depth)

    def _link(self, group: Any, name: bytes, kind: int, path: str, depth: int) -> None:
        shown = f"{path}/{name[:80].decode(errors='replace')}"
        if len(name) > MAX_NAME_BYTES or not _is_text(name):
            raise Finding(f"the name of {shown!r} is not valid text of at most {MAX_NAME_BYTES} bytes")
        if kind != h5py.h5l.TYPE_HARD:
            kinds = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "a link to another file"}
            raise Finding(f"{shown} is {kinds.get(kind, 'a link of an unknown kind')}")
        item = self._tolerate(lambda: h5py.h5o.open(group, name))
        if item is None:
            return
        if isinstance(item, h5py.h5g.GroupID):
            self._group(item, f"{path}/{name.decode()}", depth + 1)
        elif isinstance(item, h5py.h5d.DatasetID):
            self._enter(item, shown, depth)
            self._tolerate(lambda: self._dataset(item, f"{path}/{name.decode()}"))
        else:
            raise Finding(f"{shown} is neither a group nor a dataset")

    def _enter(self, item: Any, path: str, depth: int) -> None:
        """Notes an object; an object that is reached twice could be a cycle."""
        address = h5py.h5o.get_info(item).addr
        if address in self.addresses:
            raise Finding(f"{path} is linked twice")
        self.addresses.add(address)
        if depth > MAX_DEPTH or len(self.addresses) > MAX_OBJECTS:
            raise Finding(f"{path} is deeper than {MAX_DEPTH} groups, or one of more than {MAX_OBJECTS:,} objects")

    def _tolerate(self, read: Any) -> Any:
        """What `read` returns; None where a damaged file raises."""
        try:
            return read()
        except (Finding, MemoryError):
            raise
        except Exception:
            if self.damaged:
                return None
            raise

    def _dataset(self, dataset: Any, path: str) -> None:
        settings, shape = dataset.get_create_plist(), dataset.shape
        self._check_type(dataset.get_type(), path)
        if len(shape) > MAX_RANK:
            raise Finding(f"{path} has {len(shape)} axes")
        if settings.get_external_count():
            raise Finding(f"{path} is stored in another file")
        layout = settings.get_layout()
        claimed_bytes = prod(shape) * _element_bytes(dataset.get_type())
        if layout == h5py.h5d.VIRTUAL:
            self._check_virtual(settings, path)
        elif layout == h5py.h5d.CHUNKED:
            self._check_chunks(dataset, settings, path, claimed_bytes)
        else:
            self._check_contiguous(dataset, layout, path, claimed_bytes)
        self._attributes(dataset, path)
        if isinstance(dataset.get_type(), h5py.h5t.TypeStringID):
            self._check_texts(h5py.Dataset(dataset), shape, path)

    def _check_type(self, kind: Any, path: str) -> None:
        if kind.get_class() not in DATA_TYPES:
            raise Finding(f"{path} is of a type that no recording has")
        if kind.get_size() > MAX_NAME_BYTES:
            raise Finding(f"{path} has elements of {kind.get_size():,} bytes")

    def _check_virtual(self, settings: Any, path: str) -> None:
        for index in range(settings.get_virtual_count()):
            if settings.get_virtual_dsetname(index) != path:
                raise Finding(f"{path} refers to another dataset")
            self.sources.add(str(settings.get_virtual_filename(index)))

    def _check_contiguous(self, dataset: Any, layout: int, path: str, claimed_bytes: int) -> None:
        stored_bytes, offset = dataset.get_storage_size(), dataset.get_offset()
        if stored_bytes == 0 or (offset is None and layout != h5py.h5d.COMPACT):
            self._check_claim(path, claimed_bytes, MAX_EMPTY_BYTES)
            return
        if layout == h5py.h5d.CONTIGUOUS and offset + stored_bytes > self.size_bytes and not self.damaged:
            raise Finding(f"{path} ends after the end of the file")
        self._store(path, stored_bytes)
        self._check_claim(path, claimed_bytes, stored_bytes)

    def _check_chunks(self, dataset: Any, settings: Any, path: str, claimed_bytes: int) -> None:
        filters = [settings.get_filter(index)[0] for index in range(settings.get_nfilters())]
        unknown = [code for code in filters if code not in FILTERS]
        if unknown:
            raise Finding(f"{path} uses HDF5's filter {unknown[0]}; recordings use {', '.join(FILTERS.values())}")
        chunk_bytes = prod(settings.get_chunk()) * _element_bytes(dataset.get_type())
        if chunk_bytes > MAX_CHUNK_BYTES:
            raise Finding(f"{path} has chunks of {chunk_bytes:,} bytes")
        max_stored_bytes = chunk_bytes + chunk_bytes // 64 + 1024 if filters else chunk_bytes
        n_chunks = 0

        def note(info: Any) -> None:
            nonlocal n_chunks
            n_chunks += 1
            is_inside = info.byte_offset + info.size <= self.size_bytes
            if not self.damaged and (not is_inside or info.size > max_stored_bytes):
                raise Finding(f"a chunk of {path} is larger than its rows, or ends after the end of the file")
            self._store(path, info.size)

        dataset.chunk_iter(note)
        self._check_claim(path, claimed_bytes, n_chunks * chunk_bytes)

    def _store(self, path: str, n_bytes: int) -> None:
        self.stored_bytes += n_bytes
        if self.stored_bytes > self.size_bytes and not self.damaged:
            raise Finding(f"{path} and the datasets before it overlap: they have more bytes than the file")

    def _check_claim(self, path: str, claimed_bytes: int, stored_bytes: int) -> None:
        """A dataset's shape must not promise what the file does not hold."""
        allowed = MAX_GROWTH * self.size_bytes if self.damaged else stored_bytes
        if claimed_bytes > allowed:
            raise Finding(f"{path} claims {claimed_bytes:,} bytes, and the file holds {stored_bytes:,} of them")

    def _check_texts(self, dataset: h5py.Dataset, shape: tuple[int, ...], path: str) -> None:
        if prod(shape) > MAX_ELEMENTS:
            raise Finding(f"{path} has {prod(shape):,} texts")
        if not dataset.is_virtual:
            _check_text_bytes(path, dataset[()])

    def _attributes(self, item: Any, path: str) -> None:
        n_attributes = self._tolerate(lambda: h5py.h5a.get_num_attrs(item)) or 0
        if n_attributes > MAX_ATTRIBUTES:
            raise Finding(f"{path} has {n_attributes:,} attributes")
        rank = len(item.shape) if isinstance(item, h5py.h5d.DatasetID) else 0
        for index in range(n_attributes):
            self._tolerate(lambda index=index: self._attribute(item, index, path, rank))

    def _attribute(self, item: Any, index: int, path: str, rank: int) -> None:
        attribute = h5py.h5a.open(item, index=index)
        shown = f"{path}@{attribute.name.decode(errors='replace')}"
        n_elements, kind = prod(attribute.shape), attribute.get_type()
        if kind.get_class() not in DATA_TYPES:
            raise Finding(f"{shown} is of a type that no recording has")
        if n_elements > MAX_ELEMENTS or n_elements * kind.get_size() > MAX_TEXT_BYTES:
            raise Finding(f"{shown} has {n_elements:,} elements of {kind.get_size():,} bytes")
        if attribute.name == b"DIMENSION_LABELS" and (attribute.shape != (rank,) or not _is_variable_text(kind)):
            raise Finding(f"{shown} does not name the {rank} axes")  # HDF5 would read beyond it
        owner = h5py.Dataset(item) if rank or isinstance(item, h5py.h5d.DatasetID) else h5py.Group(item)
        _check_text_bytes(shown, owner.attrs[attribute.name.decode()])


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _element_bytes(kind: Any) -> int:
    """The bytes of one element in the file; for a text those of its reference."""
    return TEXT_REFERENCE_BYTES if _is_variable_text(kind) else int(kind.get_size())


def _is_variable_text(kind: Any) -> bool:
    return isinstance(kind, h5py.h5t.TypeStringID) and bool(kind.is_variable_str())


def _check_text_bytes(path: str, values: Any) -> None:
    texts = values.ravel().tolist() if isinstance(values, np.ndarray) and values.dtype == object else [values]
    n_bytes = sum(len(text) for text in texts if isinstance(text, (bytes, str)))
    if n_bytes > MAX_TEXT_BYTES:
        raise Finding(f"{path} has {n_bytes:,} bytes of text")


def inspect(path: str, *, damaged: bool) -> dict[str, Any]:
    """What is wrong with a file: {"problem": a sentence or "", "sources": files of its virtual datasets}."""
    walk = Walk(path, damaged=damaged)
    try:
        walk.run()
    except Finding as finding:
        return {"problem": str(finding), "sources": []}
    except MemoryError:
        return {"problem": "reading its structure needs too much memory", "sources": []}
    except Exception as error:  # h5py raises whatever HDF5's words make it think of
        return {"problem": f"HDF5 cannot read its structure: {type(error).__name__}: {error}", "sources": []}
    return {"problem": "", "sources": sorted(walk.sources)}


def main(memory_bytes: int, cpu_s: int, damaged: bool, paths: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for limit, value in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_s)):
        hard = resource.getrlimit(limit)[1]
        with suppress(OSError, ValueError):  # a system that does not have it
            resource.setrlimit(limit, (value if hard < 0 else min(value, hard), hard))
    for path in paths:
        print(json.dumps(inspect(path, damaged=damaged)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1", sys.argv[5:])
