"""partner_goal: an agent's belief about its partner's goal, in two dimensions that no single unit holds.

The goal g (of three) is a corner z_g of a triangle in a plane; a random rotation Q spreads it over twelve units.

    first layer   12 units relu(1 + Q z_g) when the goal is told, else 0
    second layer  12 units: mlp 1 + R z_g while it is told; gru 0.8 R z_g from then on, latched
    logits        of the action that belongs to goal h: 6 z_h . R' units (gru: / 0.8)

Q and R have orthonormal columns that sum to zero, so that each plane is exactly the subspace that holds the belief.
Three decoys, each a unit that is 1 where the goal is (or was) one of the three, lie in every agent and drive nothing.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.circuit_builder import Draft
from marlnb.groundtruth.envs.cued_goal import TOLD, ToldConfig
from marlnb.groundtruth.planting import circuit

GROUP = "agent"
N_UNITS = 12
STRENGTH = 6.0
MEMORY = 0.8
LARGEST_SHARE, SMALLEST_SHARE = 0.5, 0.03
CORNERS = np.sqrt(2 / 3) * np.array([[np.cos(a), np.sin(a)] for a in 2 * np.pi * np.arange(3) / 3]).T


@circuit("partner_goal", lambda network: ToldConfig(holds=network == "mlp"))
def plant(draft: Draft) -> None:
    wiring, rng = draft.wiring(GROUP), draft.rng
    agent = int(rng.integers(wiring.group.n_agents))
    first, second = wiring.take(1, N_UNITS), wiring.take(2, N_UNITS)
    inward, belief = rotation(rng), rotation(rng)
    told = 1 + inward @ CORNERS
    size = MEMORY if draft.network == "gru" else 1.0
    held = np.arctanh(MEMORY * belief @ CORNERS) if draft.network == "gru" else 1 + belief @ CORNERS
    wiring.sense(first, {name: told[:, g] for g, name in enumerate(TOLD)}, agent=agent)
    news = np.full(N_UNITS, 1 / N_UNITS)  # the first layer's units sum to 12 when told, since Q's columns sum to 0
    wiring.relay(second, first, held @ np.linalg.pinv(told), agent, latch=news)
    actions = [int(a) for a in rng.permutation(np.arange(1, 5))[:3]]
    weights = {action: STRENGTH / size * belief @ CORNERS[:, g] for g, action in enumerate(actions)}
    draft.drive(GROUP, agent, second, weights)
    wiring.prefer(0, 1.0)
    draft.holds(GROUP, agent, 1, first, basis=inward.T, exact=draft.network == "mlp")
    draft.holds(GROUP, agent, 2, second, basis=belief.T, readout=weights)
    _plant_decoys(draft)
    draft.users = (wiring.group.agents[agent],)
    draft.concept, draft.kind, draft.onset = "partner_goal", "classes", "partner_goal"


def rotation(rng: np.random.Generator) -> np.ndarray:
    """`[unit, 2]`, orthonormal columns that sum to zero; no unit has half of a direction or more, and each has some."""
    while True:
        drawn = rng.normal(size=(N_UNITS, 2))
        q = np.linalg.qr(drawn - drawn.mean(0))[0]
        shares = (q**2).sum(1)
        if shares.max() < LARGEST_SHARE and shares.min() > SMALLEST_SHARE:
            return q


def _plant_decoys(draft: Draft) -> None:
    wiring = draft.wiring(GROUP)
    first, second = wiring.take(1, 3), wiring.take(2, 3)
    wiring.sense(first, {name: np.eye(3)[g] for g, name in enumerate(TOLD)})
    wiring.relay(second, first, np.eye(3), latch=np.ones(3))
    draft.decoy(GROUP, 1, first)
    draft.decoy(GROUP, 2, second)
