"""The fits of one streamed decoding: which rows each is fitted to and tested on, with labels shuffled on the way.

Rows fall into parts, by fold and by odd or even step; a fit takes some parts and is tested on others. So one pass over
the file, summing by part, serves all folds, shuffles and controls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.stats.linear_models import Kind


@dataclass(frozen=True)
class Problem:
    """One fit: the index of its target, and the parts `[part]` bool that it is fitted to and tested on."""

    target: int
    train: np.ndarray
    test: np.ndarray


class Targets:
    """The labels of all fits, made for a batch of rows at a time: the true ones, shuffled ones and a control's.

    Args:
        y, episode, fold: `[row]` of the rows that are asked about, in order of episode and time.
        n_shuffles: labels of other episodes, permuted as `permute_by_episode` does.
    """

    def __init__(
        self, y: np.ndarray, episode: np.ndarray, fold: np.ndarray, kind: Kind, n_shuffles: int, seed: int
    ) -> None:
        self.y, self.kind, self.n_folds = y, kind, int(fold.max()) + 1
        _, self.start, self.number, self.length = np.unique(
            episode, return_index=True, return_inverse=True, return_counts=True
        )
        rng = np.random.default_rng(seed)
        n = len(self.start)
        self.donors = np.stack([rng.permutation(n) for _ in range(n_shuffles)])
        self.place = np.arange(len(y)) - self.start[self.number]
        self.part = 2 * fold + self.place % 2
        self.control = rng.permutation(y[self.start]) if kind == "classification" else rng.standard_normal(n)
        if kind == "classification" and len(np.unique(self.control)) < 2:
            self.control = rng.permutation(np.arange(n) % 2)
        self.controlled = bool((self.place % 2).any())

    @property
    def n(self) -> int:
        """Targets: true, shuffled, control."""
        return 2 + len(self.donors)

    def of(self, rows: slice) -> np.ndarray:
        """`[row, target]` for a stretch of the rows."""
        number, place = self.number[rows], self.place[rows]
        donor = self.donors[:, number]
        shuffled = self.y[self.start[donor] + np.minimum(place, self.length[donor] - 1)]
        return np.concatenate([self.y[None, rows], shuffled, self.control[None, number]]).T

    def problems(self) -> list[Problem]:
        """Every fold of the true and the shuffled labels, target by target; then the control; then all rows."""
        parts = np.arange(2 * self.n_folds)
        found = [
            Problem(target, parts // 2 != fold, parts // 2 == fold)
            for target in range(self.n - 1)
            for fold in range(self.n_folds)
        ]
        found.append(Problem(self.n - 1, parts % 2 == 0, parts % 2 == 1))
        return [*found, Problem(0, parts >= 0, parts >= 0)]

    def plain(self) -> list[Problem]:
        """The folds of the true labels alone."""
        return self.problems()[: self.n_folds]
