"""Sweep: the values that a notebook's parameters take, and the jobs that they come to."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.errors import BatchError

LONGEST_NAME = 80
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class Sweep:
    """Every combination of the values given.

    Attributes:
        axes: by parameter the values that it takes, in the order in which they vary, the last the fastest.
        fixed: by parameter the one value that it has in all jobs.
    """

    axes: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if not values:
                raise BatchError(f"parameter {name!r}: no values to sweep over")
            texts = [json.dumps(value, sort_keys=True) for value in values]
            twice = sorted({text for text in texts if texts.count(text) > 1})
            if twice:
                raise BatchError(f"parameter {name!r}: {', '.join(twice)} given twice")
        both = sorted(set(self.axes) & set(self.fixed))
        if both:
            raise BatchError(f"parameter {both[0]!r} is given both one value and several")

    def __len__(self) -> int:
        count = 1
        for values in self.axes.values():
            count *= len(values)
        return count

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
    """`algorithm=mappo,seed=0`: a folder's name that says what differs, whatever the values are.

    Values that a folder's name, a shell or a web page could take amiss are reduced to what is harmless, and a hash of
    the exact ones makes the name unique. One job without swept parameters is called `only`.
    """
    if not swept:
        return "only"
    parts, exact = [], True
    for name, value in swept.items():
        text = value if isinstance(value, str) else json.dumps(value)
        safe = "".join(_PLAIN.findall(text)) or "x"
        exact = exact and safe == text
        parts.append(f"{name}={safe}")
    joined = ",".join(parts)
    if exact and len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256(json.dumps(dict(swept), sort_keys=True).encode()).hexdigest()[:8]
    return f"{joined[: LONGEST_NAME - 9]},{digest}"
