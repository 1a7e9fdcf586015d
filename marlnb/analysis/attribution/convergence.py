"""How much of an output an attribution leaves unexplained, and how much may be."""

from __future__ import annotations

import numpy as np

TOLERANCE, SMOOTH_TOLERANCE = 0.05, 0.01
"""Largest share of an output that may be unexplained at 19 of 20 rows; beyond it an attribution has not converged. For
networks with kinks (ReLU, a maximum), on which a quadrature converges slowly, and for smooth ones (tanh)."""


def relative_to(size: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """|delta| / size, where size is at least a thousandth of its mean."""
    floor = 1e-3 * float(np.nanmean(size)) if np.isfinite(size).any() else 0.0
    return np.abs(delta) / np.maximum(size, max(floor, 1e-30))


def unexplained_share(relative_delta: np.ndarray) -> float:
    """The share of the output that is unexplained at 5% of the rows, or more of it."""
    return float(np.quantile(relative_delta, 0.95))


def not_converged(unexplained: float, tolerance: float, advice: str) -> str:
    """The warning about an attribution of which a share is unexplained at 5% of the rows."""
    return (
        f"did not converge: at 5% of the rows {unexplained:.0%} or more of the output is unexplained (tolerated: "
        f"{tolerance:.0%}); {advice}"
    )


def describe_convergence(relative_delta: np.ndarray, tolerance: float) -> str:
    """How far the values add up to the output, in words."""
    finite = relative_delta[np.isfinite(relative_delta)]
    if not len(finite):
        return "nothing is finite"
    share = unexplained_share(finite)
    return f"at 95% of the steps all but {share:.1%} of the output adds up (tolerated: {tolerance:.0%})"
