"""sparse_code: more concepts than units, rarely active, along overlapping directions, as sparse dictionaries assume.

The code of the last hidden layer spans n = 29 units. It is rotated, so no single unit has a meaning.
Every agent encodes 33 events (rumours and distractors) along 33 directions in a 26-dimensional subspace V. No logit
reads V. One agent also encodes three signals, each along

    s_g = 0.8 c_g + 0.6 v_g     c_g: orthonormal, orthogonal to V; v_g: in V, where it overlaps with the events

The head reads along c_g: signal g adds 4 to the logit of one action. So no event moves a logit, although signals and
events are not orthogonal. There are 36 directions in 29 dimensions.

    first layer   26 units relu(3 + the events' directions) in every agent; 3 units, 1 at a signal, in one agent
    second layer  mlp 3 + code; gru tanh(code / 4), without memory
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.circuit_builder import MINOR_UNITS, CircuitBuilder
from marlnb.groundtruth.envs.sparse_signals import DISTRACTORS, RUMOURS, SIGNALS, SparseSignalsConfig
from marlnb.groundtruth.planting import circuit
from marlnb.groundtruth.wiring import UNITS

GROUP = "agent"
N_UNITS = UNITS - MINOR_UNITS
N_HELD = N_UNITS - len(SIGNALS)
LIFT = 3.0
"""Keeps relu units above 0 whichever events coincide: six times the code's standard deviation."""
OUTSIDE = 0.8
STRENGTH = 4.0


@circuit("sparse_code", lambda network: SparseSignalsConfig(), analyses=("dictionary", "dictionary_by_feature"))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    event_units, first, second = wiring.take(1, N_HELD), wiring.take(1, len(SIGNALS)), wiring.take(2, N_UNITS)
    events = (*RUMOURS, *DISTRACTORS)
    inward = directions(rng, len(events), N_HELD)
    rotation = np.linalg.qr(rng.normal(size=(N_UNITS, N_UNITS)))[0]
    inside, outside = rotation[:, :N_HELD], rotation[:, N_HELD:]
    signals = OUTSIDE * outside.T + np.sqrt(1 - OUTSIDE**2) * directions(rng, len(SIGNALS), N_HELD) @ inside.T
    wiring.sense(event_units, {name: list(row) for name, row in zip(events, inward)}, bias=LIFT)
    wiring.sense(first, {name: list(row) for name, row in zip(SIGNALS, np.eye(len(SIGNALS)))}, agent=agent)
    wiring.relay(second, event_units, wiring.gain * inside)
    wiring.add(second, first, wiring.gain * signals.T, agent)
    lift = LIFT if builder.network == "mlp" else 0.0
    wiring.shift(second, lift - wiring.gain * LIFT * inside.sum(1))
    actions = [int(a) for a in rng.permutation(np.arange(1, 5))[: len(SIGNALS)]]
    size = STRENGTH / (OUTSIDE * wiring.gain)
    weights = {action: (size * outside[:, g]).tolist() for g, action in enumerate(actions)}
    builder.drive(GROUP, agent, second, weights)
    wiring.prefer(0, STRENGTH / 2)
    for action, row in weights.items():
        wiring.prefer(action, -lift * sum(row), agent)
    builder.add_node(GROUP, agent, 1, first)
    builder.add_node(GROUP, agent, 2, second, basis=outside.T, readout=weights, written=signals[np.argsort(actions)])
    for rumour in inward[: len(RUMOURS)] @ inside.T:
        builder.add_decoy(GROUP, 2, second, basis=rumour[None])
    builder.users = (wiring.group.agents[agent],)
    builder.concept, builder.kind = "signal", "classes"


def directions(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Random unit vectors `[direction, size]`."""
    sample: np.ndarray = rng.normal(size=(count, size))
    return sample / np.linalg.norm(sample, axis=1, keepdims=True)
