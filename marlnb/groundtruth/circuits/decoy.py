"""decoy: an agent steers by one landmark; it computes another's place as well, louder, and does not use it.

    used      relu(2 x), relu(-2 x): to the landmark's right or left (or up and down)
    not used  relu(3 y), relu(-3 y) of another landmark on the same axis, and one relu(2 x + 2 y) that mixes both

x and y correlate, since both are seen from where the agent is, and y is decodable from every site, so that only an
intervention, or a path to the output, tells them apart.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.circuits.concept_neuron import GROUP, plant_decoys
from marlnb.groundtruth.planting import circuit
from marlnb.recording.capture.sources import LabelFn
from marlnb.training.collect.episodes import TimeStep

SLOPE, READOUT, LOUD = 2.0, 3.0, 3.0
TOWARDS = {"x": (2, 1), "y": (4, 3)}
"""Actions of simple_spread to more and to less of a coordinate."""


@circuit("decoy", lambda network: SimpleSpreadConfig(max_cycles=16))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent, axis = int(rng.integers(wiring.group.n_agents)), str(rng.choice(("x", "y")))
    used, unused = (f"landmark_{k}_d{axis}" for k in rng.choice(3, 2, replace=False))
    first, second = wiring.take(1, 2), wiring.take(2, 2)
    wiring.sense(first, {used: [SLOPE, -SLOPE]}, agent=agent)
    wiring.relay(second, first, wiring.gain * np.eye(2), agent)
    more, less = TOWARDS[axis]
    size = READOUT / wiring.gain
    weights = {more: [size, 0.0], less: [0.0, size]}
    builder.drive(GROUP, agent, second, weights)
    wiring.prefer(0, 0.5)
    builder.add_node(GROUP, agent, 1, first)
    builder.add_node(GROUP, agent, 2, second, readout=weights)
    plant_decoys(builder, {unused: LOUD}, 1)
    plant_decoys(builder, {unused: -LOUD}, 1)
    plant_decoys(builder, {used: SLOPE, unused: SLOPE}, 1)
    builder.users = (wiring.group.agents[agent],)
    builder.labels["concept"] = place(wiring.features.index(used))
    builder.labels["decoy_concept"] = place(wiring.features.index(unused))


def place(feature: int) -> LabelFn:
    """Label of every agent: one of its features, `[env, agent]`."""

    def label(time_step: TimeStep) -> Tensor:
        return time_step.observation[GROUP][..., feature]

    return label
