"""The search's file: one line of JSON for every training run, appended when the training is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.tune.curve import Point
from benchmarks.tune.halving import Trial
from marlnb.training.runs.files import read_lines, write_atomically


@dataclass(frozen=True)
class Entry:
    """A complete training run.

    Attributes:
        trial: what was trained.
        points: scores at marks of CPU-seconds.
        score: by which it is ranked: of the last point, greedy; None if the training failed.
        total_cpu_s: that it took, with set-up and scoring.
        date: when it ended.
        error: why it failed; empty if it did not.
    """

    trial: Trial
    points: tuple[Point, ...]
    score: float | None
    total_cpu_s: float
    date: str
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        rest = {key: value for key, value in asdict(self).items() if key not in ("trial", "points")}
        return {**asdict(self.trial), "points": [point.to_json() for point in self.points], **rest}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Entry:
        trial = Trial(row["cell"], tuple(row["options"]), row["seed"], row["budget_s"])
        points = tuple(Point(**point) for point in row["points"])
        return Entry(trial, points, row["score"], row["total_cpu_s"], row["date"], row["error"])


class Journal:
    """The entries of a file, which is created with the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = [Entry.from_json(row) for row in read_lines(path)]

    def append(self, entry: Entry) -> None:
        append_line(self.path, entry.to_json())
        self.entries.append(entry)

    def results(self) -> dict[Trial, float]:
        """The score of each training run; minus infinity where it failed."""
        return {entry.trial: -inf if entry.score is None else entry.score for entry in self.entries}


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Appends a JSON object to a file of lines. A line that a killed process left incomplete is dropped first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        write_atomically(path, "".join(json.dumps(complete) + "\n" for complete in read_lines(path)))
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())
