"""Whole episodes that take each other's labels: the shuffles behind chance levels and p-values.

Labels that depend on the time step alone must look the same before and after a shuffle. Rows are therefore matched by
their time step, not by their position, and an episode takes labels of one that has all of its time steps.
"""

from __future__ import annotations

import numpy as np


class EpisodeShuffle:
    """Gives each episode the rows of another one at the same time steps.

    Args:
        episode: `[row]`; rows are in order of episode and time.
        t: `[row]`, the time step.
    """

    def __init__(self, episode: np.ndarray, t: np.ndarray) -> None:
        _, self.start, self.number, length = np.unique(
            episode, return_index=True, return_inverse=True, return_counts=True
        )
        self._t = t.astype(np.int64)
        self._first_t, self._last_t = self._t[self.start], self._t[self.start + length - 1]
        self._offset = np.argsort(np.argsort(self.start)) * (self._t.max() - self._t.min() + 1)
        self._key = self._offset[self.number] + self._t  # increases from row to row

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """For each episode the one whose labels it gets, `[episode]`.

        It is the next one in random cycles that begins no later and ends no earlier. Where all episodes have the same
        first and last step this is a permutation. An episode of which no other has all steps keeps its labels.
        """
        following = rng.permutation(len(self.start))
        other = following.copy()
        left = np.arange(len(other))
        while len(left):
            candidate = other[left]
            left = left[
                (self._first_t[candidate] > self._first_t[left]) | (self._last_t[candidate] < self._last_t[left])
            ]
            other[left] = following[other[left]]
        return other

    def rows(self, other: np.ndarray, at: slice | np.ndarray = slice(None)) -> np.ndarray:
        """The other episodes' rows at the same time steps, or the nearest ones in gaps, `[..., row]`.

        Args:
            other: `[..., episode]`, as `draw` gives it.
            at: which rows.
        """
        t, partner = self._t[at], other[..., self.number[at]]
        after = np.searchsorted(self._key, self._offset[partner] + t)
        before = np.maximum(after - 1, self.start[partner])
        return np.where(self._t[after] - t < np.abs(t - self._t[before]), after, before)

    def permute(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Shuffled labels of labels `[row, ...]`: each episode gets those of another at the same time steps.

        Time courses of the labels stay; only their relation to the activations is removed.
        """
        return np.asarray(y[self.rows(self.draw(rng))])
