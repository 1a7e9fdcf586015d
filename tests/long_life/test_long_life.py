"""A short form of `make long-life`: what a kernel holds after some cycles. Interrupts are tried there alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long_life.cycles import growth, run_cycles
from tests.long_life.kernel import Holdings


@pytest.mark.timeout(300)
def test_cycles_leave_nothing(tmp_path: Path) -> None:
    grown = growth(run_cycles(3, tmp_path))
    assert {name: value for name, value in grown.items() if value > 0 and name != "memory_mb_per_cycle"} == {}
    assert grown["memory_mb_per_cycle"] < 40  # of three cycles, most is warming up


def test_growth_is_noticed() -> None:
    leaking = [Holdings(100 + cycle, 10, 0, 20 + cycle, 1, 2 * cycle) for cycle in range(20)]
    grown = {"threads": 0, "processes": 0, "files": 7, "shared": 0, "widgets": 14, "memory_mb_per_cycle": 1.0}
    assert growth(leaking) == grown
