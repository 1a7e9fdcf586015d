"""Curves of rows of metrics."""

from __future__ import annotations

from typing import Any

from marlnb.training.runs.curves import hidden_at_first, return_curves


def test_a_group_and_an_agent_of_the_same_name_have_a_curve_each() -> None:
    returns: dict[str, Any] = {"returns": {"a": 2.5, "b": 1.0}, "agent_returns": {"a": 4.0, "c": 1.0}}
    curves = return_curves([{"frames": 10, **returns}])
    assert {name: values for name, (_, values) in curves.items()} == {
        "a": [2.5],
        "b": [1.0],
        "a (agent)": [4.0],
        "c": [1.0],
    }


def test_agents_are_hidden_at_first_and_their_group_if_they_play_against_each_other() -> None:
    team: dict[str, Any] = {"returns": {"agent": 2.0}, "agent_returns": {"agent_0": 1.0, "agent_1": 3.0}}
    game: dict[str, Any] = {"returns": {"player": 0.0}, "agent_returns": {"x": 0.5, "o": -0.5}}
    draw = game | {"agent_returns": {"x": 0.0, "o": 0.0}}
    assert hidden_at_first([{}, team]) == ["agent_0", "agent_1"]
    assert hidden_at_first([draw, game, draw]) == ["player"]
    assert hidden_at_first([{"returns": {"agent": 2.0}}]) == []
