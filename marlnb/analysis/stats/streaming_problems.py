"""The fits of one streamed decoding: training and test rows of each, and their labels, shuffled where needed.

Rows are divided into parts, by fold and by odd or even step. A fit takes some parts and is tested on others, so one
pass over the file that sums by part serves all folds, shuffles and controls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
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
        t: `[row]`, the time step.
        fold: `[row]`.
        kind: classification or regression.
        n_shuffles: labels of other episodes, permuted as by `EpisodeShuffle`.
        seed: of the shuffles and the control.
    """

    def __init__(
        self,
        y: np.ndarray,
        episode: np.ndarray,
        t: np.ndarray,
        fold: np.ndarray,
        kind: Kind,
        n_shuffles: int,
        seed: int,
    ) -> None:
        self.y, self.kind, self.n_folds = y, kind, int(fold.max()) + 1
        self.shuffle = EpisodeShuffle(episode, t, y)
        rng = np.random.default_rng(seed)
        self.others = np.stack([self.shuffle.draw(rng) for _ in range(n_shuffles)])
        is_odd = (np.arange(len(y)) - self.shuffle.start[self.shuffle.number]) % 2
        self.part = 2 * fold + is_odd
        self.control = control_labels(y[self.shuffle.start], kind, rng)
        self.has_control = bool(is_odd.any())

    @property
    def n(self) -> int:
        """Targets: the true one, the shuffled ones and the control."""
        return 2 + len(self.others)

    def of(self, rows: slice) -> np.ndarray:
        """`[row, target]` for some of the rows."""
        shuffled = self.y[self.shuffle.rows(self.others, rows)]
        return np.concatenate([self.y[None, rows], shuffled, self.control[None, self.shuffle.number[rows]]]).T

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
