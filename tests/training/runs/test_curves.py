"""Curves of rows of metrics."""

from __future__ import annotations

from typing import Any

from marlnb.training.runs.curves import return_curves


def test_a_group_and_an_agent_of_the_same_name_have_a_curve_each() -> None:
    returns: dict[str, Any] = {"returns": {"a": 2.5, "b": 1.0}, "agent_returns": {"a": 4.0, "c": 1.0}}
    curves = return_curves([{"frames": 10, **returns}])
    assert {name: values for name, (_, values) in curves.items()} == {
        "a": [2.5],
        "b": [1.0],
        "a (agent)": [4.0],
        "c": [1.0],
    }
