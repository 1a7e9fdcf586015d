"""L-BFGS for many independent problems of one shape, which take their steps together.

Each problem has its own step length and its own curvature, and stops when its own gradient is small; only the
evaluations are shared, since one matrix product serves all problems.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

MEMORY = 8
MAX_ITERATIONS = 1000
SUFFICIENT_DECREASE = 1e-4  # Nocedal and Wright 2006, section 3.1
MIN_STEP = 1e-8
ROUNDING = 1e-14  # of a loss, relative to its size


class Problems(Protocol):
    """Convex losses of parameters `[set, class, label, feature]`; a set and a label are one problem."""

    @property
    def shape(self) -> tuple[int, int, int, int]: ...

    def evaluate(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses `[set, label]`, and their gradients in the parameters' shape."""

    def precondition(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient times the inverse of an estimate of the curvature."""

    def select(self, sets: np.ndarray, labels: np.ndarray) -> Problems:
        """Some of the problems, by index."""


def minimise(problems: Problems, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the smallest losses, from zero on, and whether each problem converged, `[set, label]`.

    A problem has converged when no component of its gradient exceeds the tolerance.

    Source: Nocedal and Wright 2006, Numerical Optimization, algorithm 7.4, with backtracking from the full step. The
        losses are convex, so the curvature along a step is never negative.
    """
    search, n_sets, n_labels = _Search(problems), problems.shape[0], problems.shape[2]
    result, converged = np.zeros(problems.shape), np.zeros((n_sets, n_labels), bool)
    sets, labels = np.arange(n_sets), np.arange(n_labels)
    for _ in range(MAX_ITERATIONS):
        done = np.abs(search.gradient).max(axis=(1, 3)) <= tolerance
        remaining = ~done & (search.step >= MIN_STEP)
        kept_sets, kept_labels = (np.flatnonzero(remaining.any(axis=axis)) for axis in (1, 0))
        if len(kept_sets) < len(sets) or len(kept_labels) < len(labels):
            result[np.ix_(sets, np.arange(result.shape[1]), labels)] = search.parameters
            converged[np.ix_(sets, labels)] = done
            if not len(kept_sets):
                return result, converged
            search.select(kept_sets, kept_labels)
            sets, labels, remaining = sets[kept_sets], labels[kept_labels], remaining[np.ix_(kept_sets, kept_labels)]
        search.advance(remaining)
    result[np.ix_(sets, np.arange(result.shape[1]), labels)] = search.parameters
    converged[np.ix_(sets, labels)] = np.abs(search.gradient).max(axis=(1, 3)) <= tolerance
    return result, converged


class _Search:
    """The state of all searches: the current point, the next direction and step length, the latest changes.

    Attributes:
        parameters: `[set, class, label, feature]`.
        gradient: there.
        step: `[set, label]`, the length of the next trial step.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.parameters = np.zeros(problems.shape)
        self.loss, self.gradient = problems.evaluate(self.parameters)
        self.step, self.scale = np.ones_like(self.loss), np.ones_like(self.loss)
        self.direction = np.zeros_like(self.parameters)
        self.changes: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # of parameters, of gradients, 1 / product
        self._choose_direction(np.ones(self.loss.shape, bool))

    def advance(self, remaining: np.ndarray) -> None:
        """One trial step of the `remaining` problems `[set, label]`; where the loss falls too little, half of it is
        tried next."""
        moved = np.where(_wide(remaining), _wide(self.step) * self.direction, 0.0)
        loss, gradient = self.problems.evaluate(self.parameters + moved)
        enough = self.loss + SUFFICIENT_DECREASE * self.step * self.slope + ROUNDING * np.abs(self.loss)
        accepted = remaining & (loss <= enough)
        keep = _wide(accepted)
        moved = np.where(keep, moved, 0.0)
        change = np.where(keep, gradient - self.gradient, 0.0)
        self.parameters += moved
        self.gradient = self.gradient + change
        self.loss = np.where(accepted, loss, self.loss)
        self._remember(moved, change)
        self.step = np.where(accepted, 1.0, self.step / 2)
        self._choose_direction(accepted)

    def select(self, sets: np.ndarray, labels: np.ndarray) -> None:
        """Continues with some of the problems, by index."""
        pairs, points = np.ix_(sets, labels), np.ix_(sets, np.arange(self.parameters.shape[1]), labels)
        self.problems = self.problems.select(sets, labels)
        for name in ("loss", "step", "scale", "slope"):
            setattr(self, name, getattr(self, name)[pairs])
        for name in ("parameters", "gradient", "direction"):
            setattr(self, name, getattr(self, name)[points])
        self.changes = [(s[points], y[points], inverse[pairs]) for s, y, inverse in self.changes]

    def _remember(self, moved: np.ndarray, change: np.ndarray) -> None:
        """Keeps the latest changes; those of a problem that did not move are zero and have no effect."""
        product = _dot(moved, change)
        useful = product > 0
        inverse = np.where(useful, 1 / np.where(useful, product, 1), 0.0)
        self.changes = [*self.changes[1 - MEMORY :], (moved, change, inverse)]
        curvature = _dot(change, self.problems.precondition(change))
        self.scale = np.where(useful, product / np.where(curvature > 0, curvature, 1), self.scale)

    def _choose_direction(self, accepted: np.ndarray) -> None:
        """The quasi-Newton direction of the accepted problems `[set, label]`; the others keep theirs."""
        direction, shares = self.gradient, []
        for moved, change, inverse in reversed(self.changes):
            shares.append(inverse * _dot(moved, direction))
            direction = direction - _wide(shares[-1]) * change
        direction = _wide(self.scale) * self.problems.precondition(direction)
        for (moved, change, inverse), share in zip(self.changes, reversed(shares)):
            direction = direction + _wide(share - inverse * _dot(change, direction)) * moved
        self.direction = np.where(_wide(accepted), -direction, self.direction)
        self.slope = _dot(self.gradient, self.direction)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`[set, label]`, over classes and features."""
    return np.asarray(np.einsum("sclf,sclf->sl", a, b))


def _wide(by_problem: np.ndarray) -> np.ndarray:
    """`[set, label]` -> `[set, 1, label, 1]`."""
    return by_problem[:, None, :, None]
