"""What `make exhaustive-test` runs: all cases of large grids, of which `make test` runs a sample, and long tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import pytest

Case = TypeVar("Case")
VARIABLE = "MARLNB_EXHAUSTIVE"  # 1: all cases

exhaustive = pytest.mark.skipif(os.environ.get(VARIABLE) != "1", reason="make exhaustive-test runs it")


def sample(cases: Sequence[Case], values: Callable[[Case], Iterable[Hashable]]) -> list[Case]:
    """Those cases that have a value which no earlier case of the sample has.

    Args:
        cases: the whole grid.
        values: what a case must occur for: its value on each axis, and pairs of values that must occur together.
    """
    if os.environ.get(VARIABLE) == "1":
        return list(cases)
    chosen, covered = [], set()
    for case in cases:
        new = set(values(case)) - covered
        if new:
            chosen.append(case)
            covered |= new
    return chosen
