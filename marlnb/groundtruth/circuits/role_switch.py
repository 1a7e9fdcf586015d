"""role_switch: an alarm switches what an agent does, and it holds the new role to the episode's end.

    first layer   a = relu(alarm), of one step in the gru's world, lasting in the mlp's
    second layer  r = a               gru: r latches tanh(4) = 0.9993 at the alarm and keeps it
    logits        before 4 - 8 r, after 8 r - 4 of two actions; r is 0 in all other agents

Decoys in every agent: a unit that holds the alarm just the same and drives nothing, and one that remembers whether
the partner's goal was cued.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.envs.cued_goal import ALARM, CUES, CuedGoalConfig
from marlnb.groundtruth.planting import circuit

GROUP = "agent"
STRENGTH = 4.0
FULL = 4.0
NEWS = np.ones(1)


@circuit("role_switch", lambda network: CuedGoalConfig(persistent=network == "mlp"))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    (first,), (second,) = wiring.take(1, 1), wiring.take(2, 1)
    into = np.full((1, 1), FULL if builder.network == "gru" else 1.0)
    wiring.sense([first], {ALARM: [1.0]}, agent=agent)
    wiring.relay([second], [first], into, agent, latch=NEWS)
    before, after = (int(a) for a in rng.permutation(np.arange(1, 5))[:2])
    weights = {before: [-2 * STRENGTH], after: [2 * STRENGTH]}
    builder.drive(GROUP, agent, [second], weights)
    wiring.prefer(before, STRENGTH)  # every agent: who hears no alarm goes on, weights shared or not
    wiring.prefer(after, -STRENGTH)
    builder.add_node(GROUP, agent, 1, [first], exact=builder.network == "mlp")
    builder.add_node(GROUP, agent, 2, [second], readout=weights)
    for weights_of in ({ALARM: [1.0]}, {name: [1.0] for name in CUES}):
        (source,), (unit,) = wiring.take(1, 1), wiring.take(2, 1)
        wiring.sense([source], weights_of)
        wiring.relay([unit], [source], into, latch=NEWS)
        builder.add_decoy(GROUP, 1, [source])
        builder.add_decoy(GROUP, 2, [unit])
    builder.users = (wiring.group.agents[agent],)
    builder.concept, builder.kind, builder.onset = "role", "classes", "role"
