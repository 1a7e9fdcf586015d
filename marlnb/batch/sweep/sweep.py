"""Sweep: the values that a notebook's parameters take, and the jobs that they come to."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.errors import BatchError

LONGEST_NAME = 80  # characters, all of them ASCII
DIGEST = 12
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
            twice = sorted(text for text, count in Counter(texts).items() if count > 1)
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
        safe = _harmless(text)
        exact = exact and safe == text and _harmless(name) == name and not _is_taken_for_another(value)
        parts.append(f"{_harmless(name)}={safe}")
    joined = ",".join(parts)
    if exact and len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256(json.dumps(dict(swept), sort_keys=True).encode()).hexdigest()[:DIGEST]
    return f"{joined[: LONGEST_NAME - DIGEST - 1]},{digest}"


def _harmless(text: str) -> str:
    return "".join(_PLAIN.findall(text)) or "x"


def _is_taken_for_another(value: Any) -> bool:
    """Whether it is a text that a number, true, false or none is written as: "1" and 1 may be in one sweep."""
    if not isinstance(value, str):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
