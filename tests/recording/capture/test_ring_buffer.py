"""What is buffered in memory: steps of unfinished episodes, and blocks that are written more than once."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from marlnb.recording.capture.ring_buffer import RingBuffer
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RecordingWriter


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_each_slot_holds_the_values_of_its_step(tmp_path: Path, dtype: str) -> None:
    kind = getattr(torch, dtype)
    ring = RingBuffer([Field("x", ("agent",), (3,), dtype), Field("y", (), (), "int64")], 2, 4, tmp_path)
    buffer = torch.zeros(2, 3, dtype=kind)
    others = (torch.full((2, 3), 9, dtype=kind), buffer)
    for value in range(5):
        buffer.fill_(value)
        ring.put(0, [others[0] if value == 3 else buffer])
        ring.put(1, [torch.tensor([value, -value])])
        ring.position += 1
    flat = np.arange(8).reshape(4, 2)[[1, 2, 3, 0]].ravel()  # the fifth step took the first one's slot
    expected = torch.tensor([1.0, 2.0, 9.0, 4.0]).to(kind)
    assert torch.equal(ring.tensor_rows(0, flat), expected.repeat_interleave(2)[:, None].expand(8, 3))
    assert ring.rows(1, flat).tolist() == [1, -1, 2, -2, 3, -3, 4, -4]


def test_growing_keeps_the_unfinished_steps(tmp_path: Path) -> None:
    ring = RingBuffer([Field("x", (), (), "float32")], 2, 4, tmp_path)
    for step in range(11):
        if step == 6:
            ring.grow(oldest=3)
        ring.put(0, [torch.tensor([step, -step])])
        ring.position += 1
    flat = (np.arange(3, 11) % ring.capacity)[:, None] * 2 + np.arange(2)
    assert ring.capacity == 8
    assert ring.rows(0, flat.ravel()).tolist() == [sign * step for step in range(3, 11) for sign in (1, -1)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_values_are_converted_to_the_fields_dtype(tmp_path: Path, dtype: str) -> None:
    ring = RingBuffer([Field("x", ("unit",), (3,), dtype)], 1, 4, tmp_path)
    values = torch.tensor([[1.2345678, -7e-3, 3e4]])
    ring.put(0, [values])
    assert torch.equal(ring.tensor_rows(0, np.zeros(1, np.int64)), values.to(getattr(torch, dtype)))


def test_a_block_written_in_parts_is_complete(tmp_path: Path) -> None:
    fields = [Field("steps/t", (), (), "int64"), Field("activations/a/x", ("agent", "unit"), (2, 512), "float32", "a")]
    agents = {"id": [0, 1], "name": ["a", "b"]}
    writer = RecordingWriter(tmp_path / "x.h5", fields, {}, agents, expected_rows=4096)
    assert fields[1].chunk_rows(writer.block_rows) == 1024  # so that parts begin and end inside chunks
    values = np.random.default_rng(0).standard_normal((5000, 2, 512), dtype=np.float32)
    at = 0
    for stop in (3, 1000, 1024, 2500, 2501, 4096, 5000):
        writer.append([np.arange(at, stop)[None], values[None, at:stop]])
        writer.flush()
        at = stop
    writer.close(complete=True)
    with h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(file["steps/t"][:], np.arange(5000))
        np.testing.assert_array_equal(file["activations/a/x"][:], values)
