"""Counterfactual messages of a few rows, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.analysis.communication.counterfactuals import counterfactuals_of
from marlnb.analysis.data.rows import Rows
from marlnb.errors import AnalysisError

ROWS = Rows(np.arange(9), np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3))
COUNTS = np.array([1, 1, 0, 1, 0, 0, 1, 1, 1], bool)
"""The agent acts for two steps in episode 0, for one in episode 1, and for three in episode 2."""


def test_drawn_messages_are_of_different_episodes() -> None:
    drawn = counterfactuals_of(ROWS, COUNTS, None, 20, 0, "a")
    counted = [
        sorted(positions[weights > 0].tolist()) for positions, weights in zip(drawn.positions.T, drawn.weights.T)
    ]
    used = [[3, 6], [7], [2] * 20, [0, 6], [4] * 20, [5] * 20, [0, 3], [1], [0, 1, 3]]
    assert counted == used
    one = counterfactuals_of(ROWS, COUNTS, None, 1, 0, "a").positions[0]
    assert all(other in of_row for other, of_row in zip(one, used))


def test_listed_messages_are_weighted_by_the_other_episodes_that_have_them() -> None:
    """At step 0 the messages are 5, 6 and 5. A row that is alone at its step is given those of any step."""
    messages = np.array([5, 6, 9, 6, 9, 9, 5, 5, 6])[:, None]
    listed = counterfactuals_of(ROWS, COUNTS, messages, 2, 0, "a")
    assert listed.weights[:, COUNTS].tolist() == [[1, 1, 2, 1, 0, 1], [1, 0, 0, 1, 1, 2]]
    assert not listed.weights[:, ~COUNTS].any()
    for message, positions, weights in zip((5, 6), listed.positions, listed.weights):
        assert (messages[positions, 0] == message).all()
        same_step = (ROWS.t[positions] == ROWS.t) | (ROWS.t == 2)
        assert same_step[weights > 0].all()
    assert listed.same[0] == listed.same[6] and len(np.unique(listed.same)) == 8
    assert len(counterfactuals_of(ROWS, COUNTS, messages, 1, 0, "a").positions) == 1


def test_messages_need_several_episodes() -> None:
    with pytest.raises(AnalysisError, match="but a takes part in one of these episodes only"):
        counterfactuals_of(ROWS, ROWS.episode == 1, None, 1, 0, "a")
    never_acting = counterfactuals_of(ROWS, ROWS.t > 9, np.zeros((9, 1)), 1, 0, "a")
    assert never_acting.positions[0].tolist() == ROWS.index.tolist()
