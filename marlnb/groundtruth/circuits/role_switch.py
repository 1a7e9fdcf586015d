"""role_switch: an alarm switches an agent's role for the rest of the episode.

    first layer   a = relu(alarm)     the alarm lasts one step for gru, until the episode's end for mlp
    second layer  r = a               gru: r latches tanh(4) = 0.9993 at the alarm
    logits        action before the alarm: 4 - 8 r; action after it: 8 r - 4; in all other agents r is 0

Every agent has two decoys, which no logit reads: a unit like r, and a unit that encodes whether the partner's goal was
cued.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.envs.cued_goal import ALARM, CUES, CuedGoalConfig
from marlnb.groundtruth.planting import circuit

GROUP = "agent"
STRENGTH = 4.0
GRU_INPUT = 4.0
"""Input of the recurrent unit at the alarm; tanh(4) = 0.9993."""
LATCH = np.ones(1)


@circuit("role_switch", lambda network: CuedGoalConfig(persistent=network == "mlp"))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    (first,), (second,) = wiring.take(1, 1), wiring.take(2, 1)
    matrix = np.full((1, 1), GRU_INPUT if builder.network == "gru" else 1.0)
    wiring.sense([first], {ALARM: [1.0]}, agent=agent)
    wiring.relay([second], [first], matrix, agent, latch=LATCH)
    before, after = (int(a) for a in rng.permutation(np.arange(1, 5))[:2])
    weights = {before: [-2 * STRENGTH], after: [2 * STRENGTH]}
    builder.drive(GROUP, agent, [second], weights)
    wiring.prefer(before, STRENGTH)  # in every agent: the others keep the role before the alarm
    wiring.prefer(after, -STRENGTH)
    builder.add_node(GROUP, agent, 1, [first], exact=builder.network == "mlp")
    builder.add_node(GROUP, agent, 2, [second], readout=weights)
    for feature_weights in ({ALARM: [1.0]}, {name: [1.0] for name in CUES}):
        builder.plant_decoys(GROUP, feature_weights, matrix, latch=LATCH)
    builder.users = (wiring.group.agents[agent],)
    builder.concept, builder.kind, builder.onset = "role", "classes", "role"
