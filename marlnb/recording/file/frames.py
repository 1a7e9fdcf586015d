"""Rendered frames of recorded steps, compressed at once so that unfinished episodes take little memory.

They are stored as an ordinary HDF5 dataset with the deflate filter, which any reader can open.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import h5py
import numpy as np

from marlnb.envs.vector import VectorEnv

COMPRESSION_LEVEL = 1


class FrameStore:
    """Frames of unfinished episodes, and `/frames/{image, row}` of the file.

    Args:
        every: renders the recorded steps t = 0, `every`, 2 `every`, ...
        shape: (height, width, channel) of one image, uint8.
    """

    def __init__(self, every: int, shape: tuple[int, ...]) -> None:
        self.every, self.shape = every, shape
        self._rendered: dict[tuple[int, int], bytes] = {}
        self._pending: list[tuple[int, bytes]] = []
        self._file: h5py.File | None = None
        self._first_row = 0

    @property
    def pending_bytes(self) -> int:
        return sum(len(image) for _, image in self._pending)

    def attach(self, file: h5py.File, first_row: int = 0) -> None:
        """Creates the datasets in a file whose first row is the recording's `first_row`."""
        self._file, self._first_row = file, first_row
        image = file.create_dataset(
            "frames/image",
            (0, *self.shape),
            "uint8",
            maxshape=(None, *self.shape),
            chunks=(1, *self.shape),
            compression="gzip",
            compression_opts=COMPRESSION_LEVEL,
        )
        for axis, name in enumerate(("frame", "height", "width", "channel")):
            image.dims[axis].label = name
        file.create_dataset("frames/row", (0,), "int64", maxshape=(None,), chunks=(1024,))

    def render(self, env: VectorEnv, counts: np.ndarray, t: np.ndarray, position: int) -> None:
        """Renders the envs that are at a step to be rendered.

        Args:
            counts: `[env]` bool, whether the env's episode counts.
            t: `[env]`, steps since its episode began.
            position: of this step in the ring buffer.
        """
        for env_index in np.flatnonzero(counts & (t % self.every == 0)):
            self._rendered[int(env_index), position] = compress(env.render(int(env_index)))

    def append(self, env_index: int, positions: Iterable[int], start_row: int) -> None:
        """Queues an env's frames at these ring positions, which become rows `start_row`, `start_row` + 1, ..."""
        for row, position in enumerate(positions, start_row):
            image = self._rendered.pop((env_index, position), None)
            if image is not None:
                self._pending.append((row, image))

    def put_image(self, row: int, image: np.ndarray) -> None:
        """Queues an image of a row."""
        self._pending.append((row, compress(image)))

    def write(self) -> None:
        """Writes the queued frames."""
        if not self._pending or self._file is None:
            return
        images, rows = self._file["frames/image"], self._file["frames/row"]
        start = len(rows)
        images.resize(start + len(self._pending), axis=0)
        rows.resize(start + len(self._pending), axis=0)
        for index, (_, image) in enumerate(self._pending, start):
            images.id.write_direct_chunk((index, 0, 0, 0), image)
        rows[start:] = [row - self._first_row for row, _ in self._pending]
        self._pending.clear()


def compress(image: np.ndarray) -> bytes:
    """An image as HDF5's deflate filter stores it."""
    return zlib.compress(np.ascontiguousarray(image).data, COMPRESSION_LEVEL)
