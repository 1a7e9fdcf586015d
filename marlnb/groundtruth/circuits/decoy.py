"""decoy: one agent's actions depend on one landmark. A second landmark is encoded more strongly, but never used.

    used    relu(2 x), relu(-2 x): the used landmark's coordinate on one axis, by sign
    decoys  relu(3 y), relu(-3 y): the other landmark's coordinate on the same axis; relu(2 x + 2 y): a mixture

x and y correlate, because both are relative to the agent. y can be decoded from every site. Only an intervention, or
the path to the output, separates the two.
"""

from __future__ import annotations

import numpy as np

from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.circuits.concept_neuron import GROUP, feature_label, plant_decoys
from marlnb.groundtruth.planting import circuit

SLOPE, READOUT, DECOY_SLOPE = 2.0, 3.0, 3.0
TOWARDS = {"x": (2, 1), "y": (4, 3)}
"""By axis: the actions of simple_spread that increase and decrease the coordinate."""


@circuit("decoy", lambda network: SimpleSpreadConfig(max_cycles=16))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent, axis = int(rng.integers(wiring.group.n_agents)), str(rng.choice(("x", "y")))
    used, unused = (f"landmark_{k}_d{axis}" for k in rng.choice(3, 2, replace=False))
    first, second = wiring.take(1, 2), wiring.take(2, 2)
    wiring.sense(first, {used: [SLOPE, -SLOPE]}, agent=agent)
    wiring.relay(second, first, wiring.gain * np.eye(2), agent)
    increase, decrease = TOWARDS[axis]
    size = READOUT / wiring.gain
    weights = {increase: [size, 0.0], decrease: [0.0, size]}
    builder.drive(GROUP, agent, second, weights)
    wiring.prefer(0, 0.5)
    builder.add_node(GROUP, agent, 1, first)
    builder.add_node(GROUP, agent, 2, second, readout=weights)
    plant_decoys(builder, {unused: DECOY_SLOPE}, 1)
    plant_decoys(builder, {unused: -DECOY_SLOPE}, 1)
    plant_decoys(builder, {used: SLOPE, unused: SLOPE}, 1)
    builder.users = (wiring.group.agents[agent],)
    builder.labels["concept"] = feature_label(wiring.features.index(used))
    builder.labels["decoy_concept"] = feature_label(wiring.features.index(unused))
