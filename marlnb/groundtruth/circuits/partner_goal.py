"""partner_goal: an agent's belief about its partner's goal, in a 2-dimensional subspace that no single unit encodes.

Each of the three goals g is a corner z_g of a triangle in a plane. A random rotation distributes it over 12 units.

    first layer   12 units: relu(1 + Q z_g) while the cue is on, else 0
    second layer  12 units: mlp 1 + R z_g while the cue is on; gru 0.8 R z_g from the cue on, latched
    logits        the action of goal h: 6 z_h . R' units (gru: / 0.8)

The columns of Q and R are orthonormal and sum to zero. So each plane is exactly the subspace that encodes the belief.
Every agent has three decoys, one for each goal: 1 during the cue (gru, second layer: from the cue on). No logit reads
them.
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
    cue_weights = np.full(N_UNITS, 1 / N_UNITS)  # with a cue, the first layer sums to 12: Q's columns sum to 0
    wiring.relay(second, first, remembered @ np.linalg.pinv(cued), agent, latch=cue_weights)
    actions = [int(a) for a in rng.permutation(np.arange(1, 5))[:3]]
    weights = {action: STRENGTH / size * belief @ CORNERS[:, g] for g, action in enumerate(actions)}
    builder.drive(GROUP, agent, second, weights)
    wiring.prefer(0, 1.0)
    builder.add_node(GROUP, agent, 1, first, basis=inward.T, exact=builder.network == "mlp")
    builder.add_node(GROUP, agent, 2, second, basis=belief.T, readout=weights)
    goals = np.eye(3)
    builder.plant_decoys(GROUP, {name: goals[g] for g, name in enumerate(CUES)}, goals, latch=np.ones(3))
    builder.users = (wiring.group.agents[agent],)
    builder.concept, builder.kind, builder.onset = "partner_goal", "classes", "partner_goal"


def rotation(rng: np.random.Generator) -> np.ndarray:
    """Random `[unit, 2]` with orthonormal columns that sum to zero.

    Each row's squared norm is between MIN_SHARE and MAX_SHARE: no unit dominates the plane, and none is absent.
    """
    while True:
        sample = rng.normal(size=(N_UNITS, 2))
        q = np.linalg.qr(sample - sample.mean(0))[0]
        shares = (q**2).sum(1)
        if shares.max() < MAX_SHARE and shares.min() > MIN_SHARE:
            return q
