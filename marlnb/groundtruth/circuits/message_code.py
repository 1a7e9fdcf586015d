"""message_code: a speaker sends its goal in a permuted code. A listener decodes the message and moves to that landmark.

Speaker: each layer has one unit for each goal, 1 for the current goal and 0 otherwise. It adds 5 to the logit of the
word that the code assigns to the goal.
Listener: the first layer has one unit for each landmark and direction, relu(2 d - 20 (1 - m)). Here d is the distance
to the landmark in that direction; m is 1 if the landmark's word was received. The second layer copies the unit, and
the head reads it with weight 3 into the move in that direction. Before the first message, the listener does nothing.
Decoys, which no logit reads: units of the listener that encode the word, units of the speaker that encode the goal.
"""

from __future__ import annotations

import numpy as np

from marlnb.envs.mpe.simple_speaker_listener import COLOR_NAMES, SimpleSpeakerListenerConfig
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.planting import circuit

SPEAKER, LISTENER = "speaker", "listener"
GOAL_CHANNEL, OTHER_CHANNEL = 0.65, 0.15
"""Values of a goal's color: in the goal's own channel, and in the others."""
WORD_LOGITS, SLOPE, READOUT = 5.0, 2.0, 3.0
WORD_GATE = 20.0
"""Weight of a landmark's word, and negative bias: without the word the unit stays at 0."""
SIDES = (("x", 1, 2), ("x", -1, 1), ("y", 1, 4), ("y", -1, 3))
"""Axis, sign of the direction, action that moves in it."""


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
    slope = 1 / (GOAL_CHANNEL - OTHER_CHANNEL)
    goal_weights = {name: slope * np.eye(3)[g] for g, name in enumerate(colors)}
    weights = {code[g]: WORD_LOGITS / wiring.gain * np.eye(3)[g] for g in range(3)}
    matrix, bias = wiring.gain * np.eye(3), -slope * OTHER_CHANNEL
    first, second = wiring.take(1, 3), wiring.take(2, 3)
    wiring.sense(first, goal_weights, bias=bias)
    wiring.relay(second, first, matrix)
    readout = {word: row / _saturation(builder) for word, row in weights.items()}
    builder.drive(SPEAKER, 0, second, readout)
    builder.add_node(SPEAKER, 0, 1, first)
    builder.add_node(SPEAKER, 0, 2, second, readout=readout)
    builder.plant_decoys(SPEAKER, goal_weights, matrix, bias=bias)


def _plant_listener(builder: CircuitBuilder, code: tuple[int, ...]) -> None:
    wiring = builder.wiring(LISTENER)
    count = 3 * len(SIDES)
    first, second = wiring.take(1, count), wiring.take(2, count)
    targets = [(g, axis, sign, action) for g in range(3) for axis, sign, action in SIDES]
    weights: dict[str, np.ndarray] = {}
    for i, (g, axis, sign, _) in enumerate(targets):
        weights.setdefault(f"landmark_{g}_d{axis}", np.zeros(count))[i] = SLOPE * sign
        weights.setdefault(f"message_{code[g]}", np.zeros(count))[i] = WORD_GATE
    wiring.sense(first, {name: list(row) for name, row in weights.items()}, bias=-WORD_GATE)
    wiring.relay(second, first, wiring.gain * np.eye(count))
    readout = {action: [READOUT / wiring.gain * (other == action) for *_, other in targets] for _, _, action in SIDES}
    builder.drive(LISTENER, 0, second, readout)
    wiring.prefer(0, 0.1)
    builder.add_node(LISTENER, 0, 1, first)
    builder.add_node(LISTENER, 0, 2, second, readout=readout)
    builder.plant_decoys(LISTENER, {f"message_{word}": np.eye(3)[word] for word in range(3)}, np.eye(3))


def _saturation(builder: CircuitBuilder) -> float:
    """Ratio of a second-layer unit's activation to its input of `gain`: 1 for relu, tanh(gain) / gain for gru."""
    gain = builder.wiring(SPEAKER).gain
    return 1.0 if builder.network == "mlp" else float(np.tanh(gain) / gain)
