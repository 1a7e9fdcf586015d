"""What a decoder reads from an agent's units at each step of an episode, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.decoding.linear_decoder import Reading
from marlnb.analysis.decoding.result import Decoding
from marlnb.widgets.microscope.episode_view import EpisodeView


@dataclass(frozen=True, eq=False)
class Concept:
    """A decoded label of one agent over the episode.

    Attributes:
        said: `[time, class]` probabilities, or `[time, 1]` the estimate of a quantity.
        truth: `[time]`, an index of `classes` or the quantity; NaN where it is not known.
        note: how well the decoder does in episodes that it was not fitted to.
    """

    name: str
    agent: str
    classes: tuple[str, ...]
    said: np.ndarray
    truth: np.ndarray
    note: str


def concepts_of(view: EpisodeView, decoding: Decoding) -> list[Concept]:
    """What the decoding's readings say of the episode's units, agent by agent.

    The readings were fitted to all of the recording's episodes, this one included; the scores in the notes are of
    episodes held out.
    """
    found = []
    for reading, score in zip(decoding.readings, decoding.scores):
        if reading.t is not None or reading.agent not in view.agents or reading.site not in view.sites:
            continue
        later = f", {reading.offset:+d} steps" if reading.offset else ""
        layer = reading.site.split("/", 1)[1]
        note = f"{decoding.metric} {score.score:.2f}, chance {score.chance:.2f}, shuffled {score.shuffled:.2f}"
        if decoding.warnings:
            note += f"; NOT TO BE TRUSTED: {'; '.join(decoding.warnings)}"
        found.append(
            Concept(
                name=f"{decoding.label}{later}, read from {layer}",
                agent=reading.agent,
                classes=reading.classes,
                said=said_by(reading, view.units_of(reading.agent, reading.site)),
                truth=_truth(view, decoding.label, reading),
                note=note,
            )
        )
    return found


def said_by(reading: Reading, x: np.ndarray) -> np.ndarray:
    """Probabilities `[time, class]`, or the estimate `[time, 1]`, for units `[time, unit]`."""
    out = x.astype(np.float64) @ reading.weights.T + reading.intercept
    if not reading.classes:
        return out
    odds = np.exp(out - out.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _truth(view: EpisodeView, name: str, reading: Reading) -> np.ndarray:
    """Where the label is one of the recording's; a class is told by its name."""
    nothing = np.full(len(view.t), np.nan)
    label = next((label for label in view.labels if label.name == name), None)
    if label is None or reading.offset:
        return nothing
    values = label.values
    if label.agents:
        if reading.agent not in label.agents and len(label.agents) > 1:
            return nothing
        values = values[:, label.agents.index(reading.agent) if reading.agent in label.agents else 0]
    if not reading.classes:
        return values.astype(float)
    names = [label.classes[int(v)] if 0 <= int(v) < len(label.classes) else str(v) for v in values]
    return np.array([reading.classes.index(one) if one in reading.classes else np.nan for one in names])
