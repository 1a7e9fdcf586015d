"""message_code: a speaker says its goal in a permuted code; a listener decodes it and goes to that landmark.

Speaker: one unit a goal in each layer (1 when that is the goal), 5 logits to the word that the code gives it.
Listener: one unit for each landmark and side, relu(2 d - 20 (1 - m)) where d is how far the landmark lies to that side
and m whether its word was heard, carried on and read out with weight 3 into the move to that side. So it goes where it
is sent. It does nothing before the first word arrives.
Decoys: units of the listener that hold the word, and of the speaker that hold the goal, and drive nothing.
"""

from __future__ import annotations

import numpy as np

from marlnb.envs.mpe.simple_speaker_listener import COLOR_NAMES, SimpleSpeakerListenerConfig
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.planting import circuit

SPEAKER, LISTENER = "speaker", "listener"
DIM, BRIGHT = 0.15, 0.65
"""A goal's colour is bright in its own channel and dim in the others."""
WORD_LOGITS, SLOPE, SILENCE, READOUT = 5.0, 2.0, 20.0, 3.0
SIDES = (("x", 1, 2), ("x", -1, 1), ("y", 1, 4), ("y", -1, 3))
"""Axis, direction and the action that goes there."""


@circuit("message_code", lambda network: SimpleSpeakerListenerConfig(max_cycles=16))
def plant(builder: CircuitBuilder) -> None:
    code = tuple(int(word) for word in builder.rng.permutation(3))
    _plant_speaker(builder, code)
    _plant_listener(builder, code)
    builder.code, builder.concept, builder.kind = code, "goal", "classes"
    builder.users = (f"{SPEAKER}_0", f"{LISTENER}_0")
    builder.influences = ((f"{SPEAKER}_0", f"{LISTENER}_0"),)


def _plant_speaker(builder: CircuitBuilder, code: tuple[int, ...]) -> None:
    wiring = builder.wiring(SPEAKER)
    colors = [f"goal_{name}" for name in COLOR_NAMES]
    steep = 1 / (BRIGHT - DIM)
    weights = {code[g]: WORD_LOGITS / wiring.gain * np.eye(3)[g] for g in range(3)}
    for used in (True, False):
        first, second = wiring.take(1, 3), wiring.take(2, 3)
        wiring.sense(first, {name: steep * np.eye(3)[g] for g, name in enumerate(colors)}, bias=-steep * DIM)
        wiring.relay(second, first, wiring.gain * np.eye(3))
        if used:
            readout = {word: row / _reached(builder) for word, row in weights.items()}
            builder.drive(SPEAKER, 0, second, readout)
            builder.add_node(SPEAKER, 0, 1, first)
            builder.add_node(SPEAKER, 0, 2, second, readout=readout)
        else:
            builder.add_decoy(SPEAKER, 1, first)
            builder.add_decoy(SPEAKER, 2, second)


def _plant_listener(builder: CircuitBuilder, code: tuple[int, ...]) -> None:
    wiring = builder.wiring(LISTENER)
    count = 3 * len(SIDES)
    first, second = wiring.take(1, count), wiring.take(2, count)
    places = [(g, axis, sign, action) for g in range(3) for axis, sign, action in SIDES]
    weights: dict[str, np.ndarray] = {}
    for place, (g, axis, sign, _) in enumerate(places):
        weights.setdefault(f"landmark_{g}_d{axis}", np.zeros(count))[place] = SLOPE * sign
        weights.setdefault(f"message_{code[g]}", np.zeros(count))[place] = SILENCE
    wiring.sense(first, {name: list(row) for name, row in weights.items()}, bias=-SILENCE)
    wiring.relay(second, first, wiring.gain * np.eye(count))
    readout = {action: [READOUT / wiring.gain * (other == action) for *_, other in places] for _, _, action in SIDES}
    builder.drive(LISTENER, 0, second, readout)
    wiring.prefer(0, 0.1)
    builder.add_node(LISTENER, 0, 1, first)
    builder.add_node(LISTENER, 0, 2, second, readout=readout)
    first, second = wiring.take(1, 3), wiring.take(2, 3)
    wiring.sense(first, {f"message_{word}": np.eye(3)[word] for word in range(3)})
    wiring.relay(second, first, np.eye(3))
    builder.add_decoy(LISTENER, 1, first)
    builder.add_decoy(LISTENER, 2, second)


def _reached(builder: CircuitBuilder) -> float:
    """What a second-layer unit reaches of its input of `gain`: all of it, or its tanh's part."""
    gain = builder.wiring(SPEAKER).gain
    return 1.0 if builder.network == "mlp" else float(np.tanh(gain) / gain)
