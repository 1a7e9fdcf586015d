"""The fits of one streamed decoding: training and test rows of each, and their labels, shuffled where needed.

Rows are divided into parts, by fold and by odd or even step. A fit takes some parts and is tested on others, so one
pass over the file that sums by part serves all folds, shuffles and controls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.stats.linear_models import Kind, control_labels


@dataclass(frozen=True)
class FitSplit:
    """One fit.

    Attributes:
        target: index of its label among the targets.
        train: `[part]` bool.
        test: `[part]` bool.
    """

    target: int
    train: np.ndarray
    test: np.ndarray


class StreamedTargets:
    """The labels of all fits, computed for a batch of rows at a time: the true, the shuffled and the control labels.

    Args:
        y: `[row]`, the true labels, in order of episode and time.
        episode: `[row]`.
        fold: `[row]`.
        kind: classification or regression.
        n_shuffles: labels of other episodes, permuted as by `permute_by_episode`.
        seed: of the shuffles and the control.
    """

    def __init__(
        self, y: np.ndarray, episode: np.ndarray, fold: np.ndarray, kind: Kind, n_shuffles: int, seed: int
    ) -> None:
        self.y, self.kind, self.n_folds = y, kind, int(fold.max()) + 1
        _, self.start, self.number, self.length = np.unique(
            episode, return_index=True, return_inverse=True, return_counts=True
        )
        rng = np.random.default_rng(seed)
        self.permutations = np.stack([rng.permutation(len(self.start)) for _ in range(n_shuffles)])
        self.step = np.arange(len(y)) - self.start[self.number]
        self.part = 2 * fold + self.step % 2
        self.control = control_labels(y[self.start], kind, rng)
        self.has_control = bool((self.step % 2).any())

    @property
    def n(self) -> int:
        """Targets: the true one, the shuffled ones and the control."""
        return 2 + len(self.permutations)

    def of(self, rows: slice) -> np.ndarray:
        """`[row, target]` for some of the rows."""
        number, step = self.number[rows], self.step[rows]
        other = self.permutations[:, number]
        shuffled = self.y[self.start[other] + np.minimum(step, self.length[other] - 1)]
        return np.concatenate([self.y[None, rows], shuffled, self.control[None, number]]).T

    def splits(self) -> list[FitSplit]:
        """Every fold of the true and the shuffled labels, target by target; then the control; then all rows."""
        parts = np.arange(2 * self.n_folds)
        folds = [
            FitSplit(target, parts // 2 != fold, parts // 2 == fold)
            for target in range(self.n - 1)
            for fold in range(self.n_folds)
        ]
        control = FitSplit(self.n - 1, parts % 2 == 0, parts % 2 == 1)
        return [*folds, control, FitSplit(0, parts >= 0, parts >= 0)]

    def true_label_splits(self) -> list[FitSplit]:
        """The folds of the true labels."""
        return self.splits()[: self.n_folds]
