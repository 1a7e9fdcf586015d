"""What a message shows about the goal together with another quantity: codes that single variables do not show.

If the message is "goal XOR key", it tells nothing of the goal and nothing of the key, but everything of the pair.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from marlnb.analysis.communication.communication_result import Combination
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import Units
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.mutual_information import mutual_information
from marlnb.errors import AnalysisError

MAX_COMBINATIONS = 8
MAX_COMBINED_VALUES = 8
"""Quantities with more values than this are not combined with the goal."""


def combinations_with_goal(
    of_speaker: Units, messages: RowValues, goals: RowValues, n_shuffles: int, rng: np.random.Generator
) -> tuple[Combination, ...]:
    """The goal together with each other discrete quantity that the speaker observes."""
    tested, others = [], _other_quantities(of_speaker, messages, goals)
    n_shuffles = max(n_shuffles, ceil(len(others) / ALPHA))  # fewer could not be significant after the correction
    for other in others:
        known = messages.known & goals.known & other.known
        message, goal, value = (x.values[known] for x in (messages, goals, other))
        pair = np.unique(np.stack([goal, value], axis=1).astype(np.float64), axis=0, return_inverse=True)[1].reshape(-1)
        joint, of_goal, of_other = (
            mutual_information(
                message, x, of_speaker.episode[known], of_speaker.t[known],
                names=("message", other.name), n_shuffles=shuffles, rng=rng,
            )
            for x, shuffles in ((pair, n_shuffles), (goal, 1), (value, 1))
        )  # fmt: skip
        tested.append((other.name, joint, of_goal.corrected + of_other.corrected))
    corrected = holm(np.array([joint.p_value for _, joint, _ in tested]))
    return tuple(
        Combination(name, joint.corrected, alone, float(p)) for (name, joint, alone), p in zip(tested, corrected)
    )


def _other_quantities(of_speaker: Units, messages: RowValues, goals: RowValues) -> list[RowValues]:
    """Discrete features and labels of the speaker other than the message and the goal, which neither determines."""
    recording = of_speaker.source.recording
    quantities: list[RowValues] = []
    for name in dict.fromkeys([*recording.labels, *recording.feature_names(of_speaker.source.group)]):
        if name in (messages.name, goals.name) or len(quantities) == MAX_COMBINATIONS:
            continue
        try:
            values = row_values(of_speaker, name)
        except AnalysisError:  # a label of other agents
            continue
        known = values.known & messages.known & goals.known
        present = np.unique(values.values[known])
        if not 2 <= len(present) <= MAX_COMBINED_VALUES:
            continue
        if any(_determines(x.values[known], values.values[known]) for x in (messages, goals)):
            continue
        quantities.append(values)
    return quantities


def _determines(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether b `[row]` has one value for each value of a `[row]`."""
    return len(np.unique(np.stack([a, b], axis=1).astype(np.float64), axis=0)) == len(np.unique(a))
