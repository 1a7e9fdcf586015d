"""Figures of dictionaries say what their colours are."""

from __future__ import annotations

import numpy as np

from marlnb import plots


def test_a_strip_is_scaled_by_the_number_in_brackets() -> None:
    ax = plots.feature_strip(np.array([[0, 2.5], [1, 0]]), [0, 1], names=["goal 0: feature 3", "b"], title="episode 0")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["goal 0: feature 3 (1)", "b (2.5)"]
    assert np.asarray(ax.images[0].get_array()).tolist() == [[0, 1], [1, 0]]
    assert "dark: 0; bright: the number in brackets" in ax.get_xlabel()
