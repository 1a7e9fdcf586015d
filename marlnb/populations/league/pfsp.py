"""Prioritised fictitious self-play: opponents are drawn with a weight that depends on the win rate against them.

    P[opponent B] = f(P[A beats B]) / sum over candidates C of f(P[A beats C])

    f_hard(x) = (1 - x)^p      those that are hard to beat
    f_var(x)  = x (1 - x)      those of about the same strength
    f_capped(x) = min(1/2, 1 - x)

Source: Vinyals et al. 2019, Methods, "Prioritized fictitious self-play"; f_capped is in its pseudocode.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Weighting = Literal["hard", "var", "capped"]


def pfsp_weights(win_rates: np.ndarray, weighting: Weighting = "hard", p: float = 2.0) -> np.ndarray:
    """Probabilities `[opponent]` of opponents, from P[player beats opponent] `[opponent]` in [0, 1].

    If every weight is 0, as f_hard's when the player beats all of them, opponents are equally likely.

    Args:
        win_rates: of the player against each opponent.
        weighting: f.
        p: exponent of f_hard.
    """
    x = np.asarray(win_rates, float)
    weights = {"hard": (1 - x) ** p, "var": x * (1 - x), "capped": np.minimum(0.5, 1 - x)}[weighting]
    total = weights.sum()
    return weights / total if total > 0 else np.full(x.shape, 1 / max(1, x.size))
