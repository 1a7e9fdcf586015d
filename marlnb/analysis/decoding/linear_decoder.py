"""Reading: the linear decoder itself, fitted once to all rows, and the directions along which its label lies.

A decoder has two directions. The *filter* is its weight vector: what is measured. The *pattern* is how the units move
when the label does, the covariance of units and label (for classes: the mean of a class against the others). They
differ wherever units are correlated: a filter may lean on a unit that does not know the label only to cancel noise.

Steer along the pattern: it goes where activations go when the label changes (Haufe et al. 2014, NeuroImage 87,
section 2). Erase the pattern too: once it is projected out, the units' covariance with the label is 0, so no linear
decoder whatever its loss reads anything (Belrose et al. 2023, arXiv:2306.03819, theorem 3.1); without the filter,
another linear decoder reads the label from what is left. The filter is for measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from marlnb.analysis.stats.linear_models import Kind, fit_logistic
from marlnb.analysis.stats.ridge import fit_ridge
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.directions import Direction

DirectionKind = Literal["pattern", "filter"]


@dataclass(frozen=True)
class Reading:
    """A decoder fitted to all rows of one agent, in the activations' own units.

    Attributes:
        t: the time step it is of, None for all; offset: of the label, in steps.
        classes: names; empty for a quantity, whose `output` axis has length 1.
        weights, intercept: `[output, unit]`, `[output]`: the filters; the class with the largest output is the answer.
        patterns: `[output, unit]`: a class's mean less the mean of all rows; the units' change per unit of a quantity.
        mean: `[unit]`, of the rows; weight_covariance, pattern_covariance: `[output, output]`, of the projections of
            the activations onto weights and patterns.
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
        """The unit vector along which the label, or one of its values against others, lies.

        Args:
            value: of classes: one against all others, or (one, other); None: the second of two.
        Raises:
            AnalysisError: a value that the label does not have, or none where it has more than two.
        """
        if kind not in ("pattern", "filter"):
            raise AnalysisError(unknown("kind of direction", kind, ("pattern", "filter")))
        mix, concept = self._mixture(value)
        of_patterns = kind == "pattern"
        rows, covariance = (
            (self.patterns, self.pattern_covariance) if of_patterns else (self.weights, self.weight_covariance)
        )
        vector = mix @ rows
        length = float(np.linalg.norm(vector))
        if length == 0:
            raise AnalysisError(f"{concept} has no direction at {self.site} of {self.agent}: its {kind} is zero")
        scale = float(np.sqrt(max(0.0, mix @ covariance @ mix))) / length
        unit = vector / length
        return Direction(self.site, self.agent, tuple(unit.tolist()), float(unit @ self.mean), scale, concept)

    def _mixture(self, value: str | int | tuple[str | int, str | int] | None) -> tuple[np.ndarray, str]:
        """How the outputs are added up, `[output]`, and what lies along the sum."""
        if not self.classes:
            if value is not None:
                raise AnalysisError(f"{self.label!r} is a quantity, so its direction has no value; got {value!r}")
            return np.ones(1), self.label
        if value is None and len(self.classes) > 2:
            raise AnalysisError(
                f"the direction of which value of {self.label!r}? One of {list(self.classes)}, or a pair of them"
            )
        chosen = (self.classes[-1],) if value is None else value if isinstance(value, tuple) else (value,)
        places = [self._place(one) for one in chosen]
        mix = np.zeros(len(self.classes))
        mix[places[0]] = 1.0
        if len(places) == 2:
            mix[places[1]] -= 1.0
        names = [self.classes[place] for place in places]
        return mix, f"{self.label} = {' rather than '.join(names)}"

    def _place(self, value: str | int) -> int:
        if str(value) not in self.classes:
            raise AnalysisError(unknown(f"value of {self.label!r}", str(value), self.classes))
        return self.classes.index(str(value))


def fit_reading(
    x: np.ndarray,
    y: np.ndarray,
    kind: Kind,
    *,
    site: str,
    agent: str,
    t: int | None,
    offset: int,
    label: str,
    classes: tuple[str, ...],
) -> Reading:
    """The reading of `[row, unit]` for labels `[row]`: class indices or quantities."""
    wide = x.astype(np.float64)
    mean = wide.mean(axis=0)
    if kind == "regression":
        fit = fit_ridge(wide, y[:, None])
        weights, intercept = fit.weights, fit.intercept
        patterns = ((y - y.mean()) @ (wide - mean) / len(y) / np.var(y))[None]
    else:
        weights, intercept = np.zeros((len(classes), x.shape[1])), np.full(len(classes), -np.inf)
        patterns = np.zeros_like(weights)
        present = np.unique(y)
        weights[present], intercept[present] = fit_logistic(wide, y)
        for k in present:
            patterns[k] = wide[y == k].mean(axis=0) - mean
    return assemble_reading(
        weights, intercept, patterns, mean, np.cov(wide.T, ddof=0).reshape(len(mean), -1),
        site=site, agent=agent, t=t, offset=offset, label=label, classes=classes,
    )  # fmt: skip


def assemble_reading(
    weights: np.ndarray,
    intercept: np.ndarray,
    patterns: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    *,
    site: str,
    agent: str,
    t: int | None,
    offset: int,
    label: str,
    classes: tuple[str, ...],
) -> Reading:
    """From filters and patterns `[output, unit]` and the units' mean and covariance `[unit, unit]`."""
    of_weights, of_patterns = weights @ covariance @ weights.T, patterns @ covariance @ patterns.T
    return Reading(
        site, agent, t, offset, label, classes, weights, intercept, patterns, mean, of_weights, of_patterns
    )  # fmt: skip
