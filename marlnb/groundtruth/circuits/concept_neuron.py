"""concept_neuron: one unit of one agent computes a concept and drives one action.

    first layer   c = relu(2 x)          x: one coordinate of a landmark or of another agent, relative to the agent
    second layer  d = c                  (gru: d = tanh(c / 4), without memory)
    logit         + 3 d                  (gru: + 12 d)

In the mlp, integrated gradients of the logit from a zero baseline attribute exactly 6 relu(x) to x. Every agent has
decoys: units relu(2 x + 0.4 y). They correlate with the concept and affect no logit.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.groundtruth.planting import circuit
from marlnb.recording.capture.sources import LabelFn
from marlnb.training.collect.episodes import TimeStep

SLOPE, READOUT = 2.0, 3.0
DECOY_Y_SLOPE = 0.4
"""Weight of y in a decoy relu(SLOPE x + DECOY_Y_SLOPE y)."""
N_DECOYS = 2
GROUP = "agent"


@circuit("concept_neuron", lambda network: SimpleSpreadConfig(max_cycles=16))
def plant(builder: CircuitBuilder) -> None:
    wiring, rng = builder.wiring(GROUP), builder.rng
    agent = int(rng.integers(wiring.group.n_agents))
    coordinates = [name for name in wiring.features if name.endswith(("_dx", "_dy"))]
    x, y = (str(name) for name in rng.choice(coordinates, 2, replace=False))
    output = int(rng.integers(1, 5))
    (first,), (second,) = wiring.take(1, 1), wiring.take(2, 1)
    wiring.sense([first], {x: [SLOPE]}, agent=agent)
    wiring.relay([second], [first], np.full((1, 1), wiring.gain), agent)
    weights = {output: [READOUT / wiring.gain]}
    builder.drive(GROUP, agent, [second], weights)
    wiring.prefer(0, 1.0)
    builder.add_node(GROUP, agent, 1, [first])
    builder.add_node(GROUP, agent, 2, [second], readout=weights)
    plant_decoys(builder, {x: SLOPE, y: DECOY_Y_SLOPE}, N_DECOYS)
    builder.users = (wiring.group.agents[agent],)
    if x.startswith("other_agent_"):
        others = [name for name in wiring.group.agents if name not in builder.users]
        builder.influences = ((others[int(x.split("_")[2])], builder.users[0]),)
    builder.labels["concept"] = feature_label(wiring.features.index(x), min_value=0.0)


def plant_decoys(builder: CircuitBuilder, weights: dict[str, float], count: int) -> None:
    """Plants decoys relu(sum of weights[feature] * feature) in both layers of every agent. No logit reads them."""
    by_unit = {feature: [weight] * count for feature, weight in weights.items()}
    builder.plant_decoys(GROUP, by_unit, builder.wiring(GROUP).gain * np.eye(count))


def feature_label(feature: int, min_value: float = -np.inf) -> LabelFn:
    """Label `[env, agent]`: one feature of each agent, at least `min_value`."""

    def label(time_step: TimeStep) -> Tensor:
        return time_step.observation[GROUP][..., feature].clamp(min=min_value)

    return label
