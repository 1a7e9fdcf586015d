"""Blocks of activations: read once where they fit into memory, the same values otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.data import activation_stream
from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def test_a_small_recording_is_read_once(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_stream, "BLOCK_ROWS", 100)

    def epochs(kept_bytes: int) -> tuple[torch.Tensor, int]:
        """All examples of two epochs, and the number of blocks that were read."""
        monkeypatch.setattr(activation_stream, "MAX_KEPT_BYTES", kept_bytes)
        stream, reads = ActivationStream(recording, SITE, None, seed=0), 0
        read = stream._read

        def counted(index: np.ndarray) -> activation_stream.Block:
            nonlocal reads
            reads += 1
            return read(index)

        monkeypatch.setattr(stream, "_read", counted)
        rng = np.random.default_rng(0)
        return torch.cat([batch for _ in range(2) for batch in stream.batches(stream.train, 64, rng)]), reads

    kept, n_kept = epochs(2**20)
    some, n_some = epochs(100_000)
    none, n_none = epochs(0)
    assert n_none == 2 * n_kept and n_kept < n_some < n_none
    assert torch.equal(kept, none) and torch.equal(kept, some)
