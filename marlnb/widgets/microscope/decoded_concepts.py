"""What a decoding says about an agent's units at each step of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from marlnb.analysis.decoding.linear_decoder import LinearDecoder
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.decoding.score import DecodingScore
from marlnb.recording.file.reader import Recording
from marlnb.widgets.microscope.episode_view import EpisodeView


@dataclass(frozen=True, eq=False)
class Concept:
    """A decoded label of one agent over the episode.

    Attributes:
        name: of the label, with its offset and its layer.
        agent: whose units.
        classes: names; empty for a quantity.
        decoded: `[time, class]` probabilities, or `[time, 1]` the estimate of a quantity.
        truth: `[time]`, an index of `classes` or the quantity; NaN if it is not known.
        note: how well the decoder does in episodes that it was not fitted to, next to its controls.
    """

    name: str
    agent: str
    classes: tuple[str, ...]
    decoded: np.ndarray
    truth: np.ndarray
    note: str


def fits_weights(decoding: Decoding, weights: str | None, recording: Recording) -> bool:
    """Whether a decoding of the recording was fitted to units of a network with these weights (their hash)."""
    table = recording.checkpoints
    fitted = table if decoding.checkpoint is None else table[table["iteration"] == decoding.checkpoint]
    return weights in set(fitted["sha256"])


def decoded_concepts(view: EpisodeView, decoding: Decoding) -> list[Concept]:
    """What the decoders say about the episode's units, agent by agent.

    The decoders were fitted to all episodes of the recording, this one included. The scores in the notes are of
    held-out episodes.
    """
    concepts = []
    for decoder, score in zip(decoding.decoders, decoding.scores):
        if decoder.t is not None or decoder.agent not in view.agents or decoder.site not in view.sites:
            continue
        offset = f", {decoder.offset:+d} step{'' if abs(decoder.offset) == 1 else 's'}" if decoder.offset else ""
        layer = decoder.site.split("/", 1)[1]
        note = f"{decoding.conclusion_of(score)}: {decoding.metric} {score.score:.2f}, {_controls(score)}"
        if decoding.warnings:
            note += f"; NOT TO BE TRUSTED: {'; '.join(decoding.warnings)}"
        name, truth = f"{decoding.label}{offset}, decoded from {layer}", _truth(view, decoding.label, decoder)
        decoded = decode_units(decoder, view.units_of(decoder.agent, decoder.site))
        concepts.append(Concept(name, decoder.agent, decoder.classes, decoded, truth, note))
    return concepts


def decode_units(decoder: LinearDecoder, x: np.ndarray) -> np.ndarray:
    """Probabilities `[time, class]`, or the estimate `[time, 1]`, for units `[time, unit]`."""
    out = x.astype(np.float64) @ decoder.weights.T + decoder.intercept
    return np.asarray(softmax(out, axis=1)) if decoder.classes else out


def _controls(score: DecodingScore) -> str:
    gains = [f"{gain.control} {gain.score:.2f}" for gain in score.gains]
    return ", ".join([f"chance {score.chance:.2f}", f"shuffled {score.shuffled:.2f}", *gains])


def _truth(view: EpisodeView, name: str, decoder: LinearDecoder) -> np.ndarray:
    """The true values, if the label is one of the recording's. Classes are matched by name."""
    unknown = np.full(len(view.t), np.nan)
    label = next((label for label in view.labels if label.name == name), None)
    if label is None or decoder.offset:
        return unknown
    values = label.values
    if label.agents:
        if decoder.agent not in label.agents and len(label.agents) > 1:
            return unknown
        values = values[:, label.agents.index(decoder.agent) if decoder.agent in label.agents else 0]
    if not decoder.classes:
        return values.astype(float)
    names = [label.classes[int(v)] if 0 <= int(v) < len(label.classes) else str(v) for v in values]
    return np.array([decoder.classes.index(name) if name in decoder.classes else np.nan for name in names])
