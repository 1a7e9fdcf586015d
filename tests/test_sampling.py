"""A sample of a grid has every value that was asked for, and little more."""

from __future__ import annotations

from itertools import product

import pytest

from tests.sampling import VARIABLE, sample

GRID = list(product("abcd", range(5), "xy"))


def test_a_sample_has_every_value_and_every_pair_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    singles = sample(GRID, lambda case: enumerate(case))
    assert all({case[axis] for case in singles} == {case[axis] for case in GRID} for axis in range(3))
    assert len(singles) < 10
    pairs = sample(GRID, lambda case: [case[:2], case[2]])
    assert {case[:2] for case in pairs} == set(product("abcd", range(5))) and len(pairs) <= 21


def test_all_cases_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    assert sample(GRID, lambda case: case) == GRID
