"""Sweep: the values of a notebook's parameters, and the jobs that result from them."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.errors import BatchError

MAX_NAME_LENGTH = 80  # characters, all ASCII
DIGEST_LENGTH = 12
MAX_JOBS = 100_000  # a file with a sweep may come from anyone
_SAFE = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class Sweep:
    """Every combination of some values.

    Attributes:
        axes: by parameter, its values; the last parameter varies fastest.
        fixed: by parameter, the value that it has in all jobs.
    """

    axes: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if not values:
                raise BatchError(f"parameter {name!r} has no values; give at least one")
            texts = [json.dumps(value, sort_keys=True) for value in values]
            duplicates = sorted(text for text, count in Counter(texts).items() if count > 1)
            if duplicates:
                raise BatchError(f"parameter {name!r}: {', '.join(duplicates)} given twice; give each value once")
        both = sorted(set(self.axes) & set(self.fixed))
        if both:
            raise BatchError(f"parameter {both[0]!r} has both one value and several; give one or the other")

        if (n_jobs := math.prod(map(len, self.axes.values()))) > MAX_JOBS:
            raise BatchError(f"the values give {n_jobs:,} jobs; a batch has at most {MAX_JOBS:,}")

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def jobs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and parameters of each job."""
        for values in itertools.product(*self.axes.values()):
            swept = dict(zip(self.axes, values, strict=True))
            yield job_name(swept), {**self.fixed, **swept}

    def to_json(self) -> dict[str, Any]:
        return {"axes": {name: list(values) for name, values in self.axes.items()}, "fixed": dict(self.fixed)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sweep:
        return Sweep({name: tuple(values) for name, values in data["axes"].items()}, dict(data["fixed"]))


def job_name(swept: Mapping[str, Any]) -> str:
    """`algorithm=mappo,seed=0`: the name of a job's folder, which says what differs between the jobs.

    Characters that a file system, a shell or a web page could misread are dropped; a hash of the exact values then
    makes the name unique. The job of a sweep without axes is called `only`.
    """
    if not swept:
        return "only"
    parts, exact = [], True
    for name, value in swept.items():
        text = value if isinstance(value, str) else json.dumps(value)
        safe = _safe(text)
        exact = exact and safe == text and _safe(name) == name and not _looks_like_json(value)
        parts.append(f"{_safe(name)}={safe}")
    joined = ",".join(parts)
    if exact and len(joined) <= MAX_NAME_LENGTH:
        return joined
    digest = hashlib.sha256(json.dumps(dict(swept), sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{joined[: MAX_NAME_LENGTH - DIGEST_LENGTH - 1]},{digest}"


def _safe(text: str) -> str:
    return "".join(_SAFE.findall(text)) or "x"


def _looks_like_json(value: Any) -> bool:
    """Whether a text reads as a number, true, false or null: "1" and 1 may be values of one sweep."""
    if not isinstance(value, str):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
