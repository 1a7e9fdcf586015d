"""The fitted linear decoder and the directions along which it reads its label.

A decoder has two directions. Its *filter* is the weight vector `w`: what is measured. Its *pattern* is how the units
move when the label does: `Cov(x, y) / Var(y)` for a quantity, `E[x | class] - E[x]` for a class. The two differ where
units are correlated, since a filter may lean on a unit that carries no label only to cancel noise.

Steer along the pattern: it points where activations go when the label changes (Haufe et al. 2014, NeuroImage 87,
section 2: `A = Cov(x) W Cov(y)^-1`). Erase the pattern too: once it is projected out, the units' covariance with the
label is 0, so no linear decoder reads anything, whatever its loss (Belrose et al. 2023, LEACE, arXiv:2306.03819,
theorem 3.1). If the filter is projected out, another linear decoder still reads the label. Filters are for measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from marlnb.analysis.stats.linear_models import Kind, fit_logistic
from marlnb.analysis.stats.ridge import fit_ridge
from marlnb.display.array_summary import FieldsSummary
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.directions import Direction

DirectionKind = Literal["pattern", "filter"]


@dataclass(frozen=True, repr=False)
class LinearDecoder(FieldsSummary):
    """A linear decoder fitted to all rows of one agent, in the activations' own units.

    Attributes:
        site: the site's name.
        agent: the agent's name.
        t: time step of its rows; None for all.
        offset: steps from the activations to the label.
        label: the label's name.
        classes: names of the classes that occur in its rows; empty for a quantity, whose `output` axis has length 1.
        weights: `[output, unit]`, the filters.
        intercept: `[output]`; the prediction is the class with the largest `weights @ x + intercept`.
        patterns: `[output, unit]`: a class's mean minus the mean of all rows, or the units' change per unit of a
            quantity.
        mean: `[unit]`, mean of the rows.
        weight_covariance: `[output, output]`, covariance of the activations' projections onto the weights.
        pattern_covariance: `[output, output]`, the same for the patterns.
    """

    site: str
    agent: str
    t: int | None
    offset: int
    label: str
    classes: tuple[str, ...]
    weights: np.ndarray
    intercept: np.ndarray
    patterns: np.ndarray
    mean: np.ndarray
    weight_covariance: np.ndarray
    pattern_covariance: np.ndarray

    def direction(
        self, value: str | int | tuple[str | int, str | int] | None = None, kind: DirectionKind = "pattern"
    ) -> Direction:
        """The unit vector of the label, or of one of its classes against others.

        Args:
            value: for classes: one against all others, or a pair (one, other); None: the second of two classes.
            kind: pattern or filter, see the module's docstring.
        Raises:
            AnalysisError: the label has no such class, or it has more than two and none was chosen.
        """
        if kind not in ("pattern", "filter"):
            raise AnalysisError(unknown("kind of direction", kind, ("pattern", "filter")))
        mix, concept = self._mixture(value)
        is_pattern = kind == "pattern"
        covariance = self.pattern_covariance if is_pattern else self.weight_covariance
        vector = mix @ (self.patterns if is_pattern else self.weights)
        length = float(np.linalg.norm(vector))
        if length == 0:
            raise AnalysisError(f"{concept} has no direction at {self.site} of {self.agent}: its {kind} is zero")
        scale = float(np.sqrt(max(0.0, mix @ covariance @ mix))) / length
        unit = vector / length
        return Direction(self.site, self.agent, tuple(unit.tolist()), float(unit @ self.mean), scale, concept)

    def _mixture(self, value: str | int | tuple[str | int, str | int] | None) -> tuple[np.ndarray, str]:
        """Coefficients `[output]` of the sum of outputs, and the name of what the sum reads."""
        if not self.classes:
            if value is not None:
                raise AnalysisError(f"{self.label!r} is a quantity: its direction takes no value; got {value!r}")
            return np.ones(1), self.label
        if value is None and len(self.classes) > 2:
            raise AnalysisError(
                f"{self.label!r} has more than two classes: choose value= from {list(self.classes)}, or a pair of them"
            )
        chosen = (self.classes[-1],) if value is None else value if isinstance(value, tuple) else (value,)
        for name in chosen:
            if str(name) not in self.classes:
                raise AnalysisError(unknown(f"value of {self.label!r}", str(name), self.classes))
        mix = np.zeros(len(self.classes))
        mix[self.classes.index(str(chosen[0]))] = 1.0
        if len(chosen) == 2:
            mix[self.classes.index(str(chosen[1]))] -= 1.0
        return mix, f"{self.label} = {' rather than '.join(map(str, chosen))}"


class LinearFit(NamedTuple):
    """What a linear decoder computes with, whatever it reads.

    Attributes:
        weights: `[output, unit]`, the filters.
        intercept: `[output]`.
        patterns: `[output, unit]`.
        mean: `[unit]`.
        covariance: `[unit, unit]`, of the units.
    """

    weights: np.ndarray
    intercept: np.ndarray
    patterns: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    def decoder(
        self, *, site: str, agent: str, t: int | None, offset: int, label: str, classes: tuple[str, ...]
    ) -> LinearDecoder:
        """The decoder of a label from one agent's units at a site."""
        covariances = (rows @ self.covariance @ rows.T for rows in (self.weights, self.patterns))
        return LinearDecoder(site, agent, t, offset, label, classes, *self[:4], *covariances)


def fit_linear(x: np.ndarray, y: np.ndarray, kind: Kind) -> LinearFit:
    """Fitted to activations `[row, unit]` and labels `[row]`: quantities, or class indices, whose outputs are the
    classes that occur, in ascending order."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0)
    if kind == "regression":
        fit = fit_ridge(x, y[:, None])
        weights, intercept = fit.weights, fit.intercept
        patterns = ((y - y.mean()) @ (x - mean) / len(y) / np.var(y))[None]
    else:
        weights, intercept = fit_logistic(x, y)
        patterns = np.stack([x[y == k].mean(axis=0) - mean for k in np.unique(y)])
    return LinearFit(weights, intercept, patterns, mean, np.cov(x.T, ddof=0).reshape(len(mean), -1))
