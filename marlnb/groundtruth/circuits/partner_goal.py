"""partner_goal: an agent's belief about its partner's goal, in two dimensions that no single unit holds.

The goal g (of three) is a corner z_g of a triangle in a plane; a random rotation Q spreads it over twelve units.

    first layer   12 units relu(1 + Q z_g) when the cue is on, else 0
    second layer  12 units: mlp 1 + R z_g while it is on; gru 0.8 R z_g from then on, latched
    logits        of the action that belongs to goal h: 6 z_h . R' units (gru: / 0.8)

Q and R have orthonormal columns that sum to zero, so that each plane is exactly the subspace that holds the belief.
Three decoys, each a unit that is 1 where the goal is (or was) one of the three, lie in every agent and drive nothing.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.envs.cued_goal import CUES, CuedGoalConfig
from marlnb.groundtruth.planting import circuit

GROUP = "agent"
N_UNITS = 12
STRENGTH = 6.0
MEMORY = 0.8
MAX_SHARE, MIN_SHARE = 0.5, 0.03
CORNERS = np.sqrt(2 / 3) * np.array([[np.cos(a), np.sin(a)] for a in 2 * np.pi * np.arange(3) / 3]).T


@circuit("partner_goal", lambda network: CuedGoalConfig(persistent=network == "mlp"))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    first, second = wiring.take(1, N_UNITS), wiring.take(2, N_UNITS)
    inward, belief = rotation(rng), rotation(rng)
    cued = 1 + inward @ CORNERS
    size = MEMORY if builder.network == "gru" else 1.0
    remembered = np.arctanh(MEMORY * belief @ CORNERS) if builder.network == "gru" else 1 + belief @ CORNERS
    wiring.sense(first, {name: cued[:, g] for g, name in enumerate(CUES)}, agent=agent)
    news = np.full(N_UNITS, 1 / N_UNITS)  # the first layer's units sum to 12 with a cue, since Q's columns sum to 0
    wiring.relay(second, first, remembered @ np.linalg.pinv(cued), agent, latch=news)
    actions = [int(a) for a in rng.permutation(np.arange(1, 5))[:3]]
    weights = {action: STRENGTH / size * belief @ CORNERS[:, g] for g, action in enumerate(actions)}
    builder.drive(GROUP, agent, second, weights)
    wiring.prefer(0, 1.0)
    builder.add_node(GROUP, agent, 1, first, basis=inward.T, exact=builder.network == "mlp")
    builder.add_node(GROUP, agent, 2, second, basis=belief.T, readout=weights)
    _plant_decoys(builder)
    builder.users = (wiring.group.agents[agent],)
    builder.concept, builder.kind, builder.onset = "partner_goal", "classes", "partner_goal"


def rotation(rng: np.random.Generator) -> np.ndarray:
    """`[unit, 2]`, orthonormal columns that sum to zero; no unit has half of a direction or more, and each has some."""
    while True:
        drawn = rng.normal(size=(N_UNITS, 2))
        q = np.linalg.qr(drawn - drawn.mean(0))[0]
        shares = (q**2).sum(1)
        if shares.max() < MAX_SHARE and shares.min() > MIN_SHARE:
            return q


def _plant_decoys(builder: CircuitBuilder) -> None:
    wiring = builder.wiring(GROUP)
    first, second = wiring.take(1, 3), wiring.take(2, 3)
    wiring.sense(first, {name: np.eye(3)[g] for g, name in enumerate(CUES)})
    wiring.relay(second, first, np.eye(3), latch=np.ones(3))
    builder.add_decoy(GROUP, 1, first)
    builder.add_decoy(GROUP, 2, second)
