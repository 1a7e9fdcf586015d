"""sparse_code: concepts as sparse dictionaries suppose them, rare and along directions that overlap, more than units.

The last hidden layer's code lies in 29 units (n), rotated, so that no unit means anything by itself. 36 calls (rumours
and others) have 36 directions in a subspace V of 26 dimensions, which every agent holds and nothing reads. At one agent
three signals are written as well, each along

    s_g = 0.8 c_g + 0.6 v_g     c_g: orthonormal, outside V; v_g: in V, where it overlaps with the calls

and read out along c_g:  logit of an action of its own + 4 when signal g is there. So no call moves a logit, although
the directions of signals and calls are not orthogonal, and 39 directions lie in 29 dimensions.

    first layer   26 units relu(3 + calls' directions), of every agent; 3 units that are 1 at a signal, of one
    second layer  mlp 3 + code; gru tanh(code / 4), nothing remembered
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
"""Keeps relu units above 0, whatever calls coincide: six times the code's standard deviation."""
OUTSIDE = 0.8
STRENGTH = 4.0


@circuit("sparse_code", lambda network: SparseSignalsConfig(), analyses=("dictionary", "dictionary_by_feature"))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    held, first, second = wiring.take(1, N_HELD), wiring.take(1, len(SIGNALS)), wiring.take(2, N_UNITS)
    calls = (*RUMOURS, *DISTRACTORS)
    inward = directions(rng, len(calls), N_HELD)
    turned = np.linalg.qr(rng.normal(size=(N_UNITS, N_UNITS)))[0]
    inside, outside = turned[:, :N_HELD], turned[:, N_HELD:]
    signals = OUTSIDE * outside.T + np.sqrt(1 - OUTSIDE**2) * directions(rng, len(SIGNALS), N_HELD) @ inside.T
    wiring.sense(held, {name: list(row) for name, row in zip(calls, inward)}, bias=LIFT)
    wiring.sense(first, {name: list(row) for name, row in zip(SIGNALS, np.eye(len(SIGNALS)))}, agent=agent)
    wiring.relay(second, held, wiring.gain * inside)
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
    """`[direction, size]`, of length 1."""
    drawn: np.ndarray = rng.normal(size=(count, size))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
