"""Whole episodes that take each other's labels: the shuffles behind chance levels and p-values.

Labels that are constant within episodes are permuted over them: each is used exactly once, also where it goes with the
length of the episode. Other labels may depend on the time step alone, and must then look the same before and after a
shuffle. Rows are therefore matched by their time step, not by their position, and an episode takes labels of one that
has all of its time steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_RATIO = 2.0
"""Between a class's shares of the labels and of their shuffles; above it, the shuffles mean little."""
N_DRAWS = 20
"""For the shares of the shuffles."""
MAX_LENGTH_RATIO = 1.5
"""Between the mean lengths of two classes' episodes; above it, time tells the classes apart."""


class EpisodeShuffle:
    """Gives each episode the labels of another one.

    Args:
        episode: `[row]`; rows are in order of episode and time.
        t: `[row]`, the time step.
        labels: `[row, ...]`, numbers; permuted over episodes if they are constant within each. None: matched by time.

    Attributes:
        is_permutation: the labels are permuted over episodes, without regard to time.
        weight: `[row]`, with a mean of 1, for the statistics behind p-values. Of a permutation each episode counts
            alike: if long ones had a label of their own, their rows would weigh more than those of its shuffles.
    """

    def __init__(self, episode: np.ndarray, t: np.ndarray, labels: np.ndarray | None = None) -> None:
        _, self.start, self.number, length = np.unique(
            episode, return_index=True, return_inverse=True, return_counts=True
        )
        self._t = t.astype(np.int64)
        self._last = self.start + length - 1
        self._first_t, self._last_t = self._t[self.start], self._t[self._last]
        self._offset = np.argsort(np.argsort(self.start)) * (self._t.max() - self._t.min() + 1)
        self._key = self._offset[self.number] + self._t  # increases from row to row
        # one row of an episode does not show whether its labels vary
        self.is_permutation = labels is not None and np.median(length) > 1 and self._is_constant(labels)
        self.weight = (len(t) / len(length) / length)[self.number] if self.is_permutation else np.ones(len(t))

    def _is_constant(self, labels: np.ndarray) -> bool:
        """Whether labels `[row, ...]` are the same in all rows of an episode, up to rounding."""
        y = labels.astype(np.float64)
        return bool(np.abs(y - y[self.start][self.number]).max() <= 1e-9 * np.ptp(y))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """For each episode the one whose labels it gets, `[episode]`.

        Of labels that are matched by time, it is the next one in random cycles that begins no later and ends no
        earlier. Where all episodes have the same first and last step this is a permutation. An episode of which no
        other has all steps keeps its labels.
        """
        following = rng.permutation(len(self.start))
        if self.is_permutation:
            return following
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
        """The other episodes' rows at the same time steps, or the nearest ones, `[..., row]`.

        Args:
            other: `[..., episode]`, as `draw` gives it.
            at: which rows.
        """
        t, partner = self._t[at], other[..., self.number[at]]
        following = np.searchsorted(self._key, self._offset[partner] + t)
        before = np.clip(following - 1, self.start[partner], self._last[partner])
        after = np.clip(following, self.start[partner], self._last[partner])
        return np.where(np.abs(self._t[after] - t) < np.abs(t - self._t[before]), after, before)

    def permute(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Shuffled labels of labels `[row, ...]`: each episode gets those of another at the same time steps.

        Time courses of the labels stay; only their relation to the activations is removed.
        """
        return np.asarray(y[self.rows(self.draw(rng))])

    def warnings(self, name: str, labels: np.ndarray, class_names: Sequence[str]) -> tuple[str, ...]:
        """Warnings where the labels `[row]` go with the length of episodes, so that shuffles differ from them in time.

        Labels that are constant within episodes are in episodes of other lengths after shuffling; the classes of others
        have other shares, as those of labels that mark the ends of episodes.

        Args:
            name: of the label.
            class_names: of the values, ascending.
        """
        index, rng = np.unique(labels, return_inverse=True)[1].reshape(-1), np.random.default_rng(0)
        if self.is_permutation:
            return self._warnings_of_lengths(name, index[self.start], class_names)
        shuffles = np.concatenate([self.permute(index, rng) for _ in range(N_DRAWS)])
        shares = np.bincount(index) / len(index)
        shuffled = np.bincount(shuffles, minlength=len(shares)) / len(shuffles)
        differs = np.maximum(shares, shuffled) > MAX_RATIO * np.minimum(shares, shuffled)
        if not differs.any():
            return ()
        classes = (
            f"{class_names[k]!r} has {shares[k]:.2g} of the rows, after shuffling {shuffled[k]:.2g}"
            for k in np.flatnonzero(differs).tolist()
        )
        return (
            f"{name!r} varies within episodes and goes with which time steps they have, so its p-values can be far too "
            f"small or too large: {'; '.join(classes)}",
        )

    def _warnings_of_lengths(self, name: str, class_index: np.ndarray, class_names: Sequence[str]) -> tuple[str, ...]:
        """A warning where one class `[episode]` has much longer episodes than another."""
        n_steps = np.bincount(class_index, self._last_t - self._first_t + 1) / np.bincount(class_index)
        shortest, longest = int(n_steps.argmin()), int(n_steps.argmax())
        if n_steps[longest] <= MAX_LENGTH_RATIO * n_steps[shortest]:
            return ()
        return (
            f"{name!r} goes with the length of episodes: {n_steps[longest]:.3g} steps of {class_names[longest]!r} on "
            f"average, {n_steps[shortest]:.3g} of {class_names[shortest]!r}; so units that follow time go with it too. "
            f'rows="t < {int(n_steps[shortest])}" compares the same steps',
        )
