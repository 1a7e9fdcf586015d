"""Counterfactual messages: those of the same step of other episodes, listed with their frequencies, or drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.rows import Rows
from marlnb.errors import AnalysisError


@dataclass(frozen=True)
class Counterfactuals:
    """The messages that each row is given, and rows that have them.

    Attributes:
        positions: `[counterfactual, row]`, a row that has the message.
        weights: `[counterfactual, row]`: if all messages are listed, in how many other episodes this one occurs; if
            they are drawn, 1. A message of weight 0 does not count.
        same: `[row]`, a number for the rows of one step that share a message. The weight belongs to all of them.
    """

    positions: np.ndarray
    weights: np.ndarray
    same: np.ndarray


def counterfactuals_of(
    rows: Rows, counts: np.ndarray, messages: np.ndarray | None, n_counterfactuals: int, seed: int, agent: str
) -> Counterfactuals:
    """All messages of the same step of other episodes if few of them differ, otherwise a sample.

    Args:
        counts: `[row]` bool, the rows that exchange messages; the others keep theirs.
        messages: `[row, feature]`; None: draw in any case.
        n_counterfactuals: up to so many different messages are listed; of more, so many are drawn.
        agent: whose rows these are, for errors.
    Raises:
        AnalysisError: they are of one episode only.
    """
    counted = np.flatnonzero(counts)
    if len(np.unique(rows.episode[counted])) == 1:
        raise AnalysisError(
            f"counterfactual messages come from other episodes, but {agent} takes part in one of these episodes only"
        )
    if messages is not None and len(counted):
        different, number = np.unique(messages[counted], axis=0, return_inverse=True)
        if len(different) <= n_counterfactuals:
            return _listed(rows, counted, number.reshape(-1), len(different))
    return _drawn(rows, counted, n_counterfactuals, np.random.default_rng(seed))


def _listed(rows: Rows, counted: np.ndarray, number: np.ndarray, n_messages: int) -> Counterfactuals:
    """Each message, weighted by the number of other episodes that have it at the same step.

    Args:
        counted: positions of the rows that exchange messages.
        number: `[counted row]`, which message it has, from 0 to n_messages - 1.
    """
    example = counted[np.unique(number, return_index=True)[1]]
    positions = np.tile(example[:, None].astype(np.int32), (1, len(rows)))
    weights = np.zeros(positions.shape, np.int32)
    same = np.arange(len(rows))
    for at_t, others in _pools(rows, counted):
        here = counted[at_t]
        present, first = np.unique(number[others], return_index=True)
        positions[present[:, None], here] = counted[others[first]][:, None]
        weights[:, here] = np.bincount(number[others], minlength=n_messages)[:, None]
        if len(at_t) > 1:
            weights[number[at_t], here] -= 1  # its own
            same[here] = positions[number[at_t], here]
    return Counterfactuals(positions, weights, same)


def _drawn(rows: Rows, counted: np.ndarray, n: int, generator: np.random.Generator) -> Counterfactuals:
    """Messages of n other episodes at the same step, without replacement."""
    positions = np.tile(np.arange(len(rows), dtype=np.int32), (n, 1))
    weights = np.ones(positions.shape, np.int32)
    for at_t, others in _pools(rows, counted):
        if len(at_t) > 1:
            shift = generator.permutation(np.arange(1, len(at_t)))[:n, None]
            drawn = at_t[(np.arange(len(at_t)) + shift) % len(at_t)]
        else:
            drawn = generator.permutation(others)[:n, None]
        positions[: len(drawn), counted[at_t]] = counted[drawn]
        weights[len(drawn) :, counted[at_t]] = 0
    return Counterfactuals(positions, weights, np.arange(len(rows)))


def _pools(rows: Rows, counted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The counted rows of each step and those whose messages they are given, as indices of `counted`.

    Rows of one step are given each other's. A row that is alone, as at the end of the longest episode, is given those
    of any step of other episodes.
    """
    order = np.argsort(rows.t[counted], kind="stable")
    ends = np.flatnonzero(np.diff(rows.t[counted][order])) + 1
    for at_t in np.split(order, ends) if len(counted) else ():
        alone = len(at_t) == 1
        yield at_t, np.flatnonzero(rows.episode[counted] != rows.episode[counted[at_t[0]]]) if alone else at_t
