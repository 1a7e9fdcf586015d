"""What a training run left, for comparison with an undisturbed one's: its weights and its curve, less the timings."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

TIMINGS = ("crc", "seconds", "frames_per_second", "stepping_s", "acting_s", "learning_s")


class Evidence(NamedTuple):
    """Attributes:
    iteration: of the last checkpoint. tensors: the sha256 of all its tensors: weights, optimizers, random states.
    curve: each line of metrics.jsonl, without how long things took and the checksum of that.
    """

    iteration: int
    tensors: str
    curve: list[dict[str, Any]]


def evidence(run: Path) -> Evidence:
    """Read with nothing of marlnb's."""
    last = max((int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit()), default=-1)
    digest = hashlib.sha256((run / "checkpoints" / str(last) / "tensors.bin").read_bytes()).hexdigest()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return Evidence(last, digest, [{key: line[key] for key in line if key not in TIMINGS} for line in lines])


def iterations(run: Path) -> int:
    """The number of iterations in its metrics now."""
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0
