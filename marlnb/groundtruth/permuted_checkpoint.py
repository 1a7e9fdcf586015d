"""reworking: an instance's agents as a later checkpoint might have them, so that one can ask what stayed the same.

All hidden units are in another order, and what an agent does is what it did. In drawn agents the random features are
drawn anew, of the last hidden layer alone or of both: there the units hold something else, though circuit, decoys and
choices are as they were (but for the minor units' hundredth part of a logit). Elsewhere they drift a little.
"""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import numpy as np
import torch

from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.wiring import UNITS
from marlnb.models.networks.agent_id import AgentId
from marlnb.models.networks.gru import GRU
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.policy import Policy

DRIFT = 0.02
"""Standard deviation of the noise on a kept feature's weights, as a share of theirs."""
THREE_POINTS = ("speaker",)
"""Groups that see one of three colours and nothing else: any two layers that tell the three apart are alike."""
FIRST_REDRAWN = (3, 2, 1)
"""Layers from which on features are drawn anew: none of the two, the second, both."""


def stays(key: AnswerKey) -> dict[tuple[str, str], bool]:
    """By (agent, site), whether its units hold later what they held; of groups that see more than THREE_POINTS."""
    redrawn = _redrawn(key)
    return {
        (agent, site): layer < redrawn[agent]
        for (agent, site), layer in _layers(key).items()
        if site.split("/")[0] not in THREE_POINTS
    }


def reworked(policy: Policy, key: AnswerKey) -> ActorCritic:
    """A copy of one group's policy, as it is later."""
    later = cast(ActorCritic, deepcopy(policy))
    network = later.actor.network
    inner = cast("MLP | GRU", network.inner if isinstance(network, AgentId) else network)
    rng, redrawn = _rng(key, later.group.name), _redrawn(key)
    first = cast(HiddenLayer, inner.hidden[0]).linear
    layers = [inner.gru.input, inner.gru.state] if isinstance(inner, GRU) else [inner.hidden[1].linear]
    weights = {name: _array(layer) for name, layer in zip(("first", "second", "state"), [first, *layers])}
    head = _array(inner.head)
    for block in range(len(head)):
        agent = later.group.agents[block]
        free = {layer: _free(key, agent, layer) for layer in (1, 2)}
        for layer in (1, 2):
            share = 1.0 if layer >= redrawn[agent] else DRIFT
            _renew(weights, block, layer, free, share, rng)
        _reorder(weights, head[block], block, [rng.permutation(UNITS) for _ in range(2)])
    with torch.no_grad():
        for layer, array in zip([first, *layers, inner.head], [*weights.values(), head]):
            layer.weight.copy_(torch.from_numpy(array[..., :-1]).reshape(layer.weight.shape))
            layer.bias.copy_(torch.from_numpy(array[..., -1]).reshape(layer.bias.shape))
    return later.eval()


def _renew(
    weights: dict[str, np.ndarray],
    block: int,
    layer: int,
    free: dict[int, np.ndarray],
    share: float,
    rng: np.random.Generator,
) -> None:
    """Free units' weights, `share` of them new: sqrt(1 - share^2) of what they were and share of a fresh draw of as
    much. What a free unit does not read it goes on not to read."""
    for name in ("first",) if layer == 1 else ("second", "state"):
        if name in weights:
            rows = np.concatenate([free[layer] + UNITS * k for k in range(weights[name].shape[1] // UNITS)])
            old = weights[name][block][rows]
            size = np.sqrt((old**2).sum(1, keepdims=True) / np.maximum((old != 0).sum(1, keepdims=True), 1))
            fresh = rng.normal(size=old.shape) * size * (old != 0)
            weights[name][block][rows] = np.sqrt(1 - share**2) * old + share * fresh


def _reorder(weights: dict[str, np.ndarray], head: np.ndarray, block: int, order: list[np.ndarray]) -> None:
    first, second = order
    weights["first"][block] = weights["first"][block][first]
    for name in ("second", "state"):
        if name in weights:
            whole = weights[name][block]
            rows = np.concatenate([second + UNITS * k for k in range(len(whole) // UNITS)])
            columns = np.append(first if name == "second" else second, UNITS)
            weights[name][block] = whole[rows][:, columns]
    head[:] = head[:, np.append(second, UNITS)]


def _array(layer: torch.nn.Module) -> np.ndarray:
    """`[block, output, input and bias]` float64 of a linear layer, of agents that share it or of each."""
    weight, bias = (cast(torch.Tensor, x).detach().numpy().astype(np.float64) for x in (layer.weight, layer.bias))
    weight = weight.reshape(-1, *weight.shape[-2:])
    return np.concatenate([weight, bias.reshape(*weight.shape[:2], 1)], axis=-1)


def _free(key: AnswerKey, agent: str, layer: int) -> np.ndarray:
    """Units that belong to no circuit and no decoy, in any agent that shares the weights."""
    group = agent.rpartition("_")[0]
    mates = {a for a, _ in _layers(key) if a.rpartition("_")[0] == group and (key.shared or a == agent)}
    taken = {u for node in (*key.nodes, *key.decoys) if node.agent in mates and _layer(node.site) == layer
             for u in node.units}  # fmt: skip
    return np.setdiff1d(np.arange(UNITS), sorted(taken))


def _layer(site: str) -> int:
    return 1 if site.endswith("/hidden_1") else 2


def _layers(key: AnswerKey) -> dict[tuple[str, str], int]:
    """Of every (agent, site) of the groups: decoys are in each."""
    places = sorted({(node.agent, node.site) for node in (*key.nodes, *key.decoys)})
    return {(agent, site): _layer(site) for agent, site in places}


def _redrawn(key: AnswerKey) -> dict[str, int]:
    """By agent, the first layer that is drawn anew; agents that share weights have one fate."""
    found: dict[str, int] = {}
    agents = sorted({agent for agent, _ in _layers(key)})
    for group in sorted({agent.rpartition("_")[0] for agent in agents}):
        mates = [agent for agent in agents if agent.rpartition("_")[0] == group]
        drawn = _rng(key, f"{group} redrawn").permutation(FIRST_REDRAWN)
        fates = np.resize(drawn[:1] if key.shared else drawn, len(mates))
        found |= dict(zip(mates, fates.tolist()))
    return found


def _rng(key: AnswerKey, about: str) -> np.random.Generator:
    return np.random.default_rng([key.seed, int(key.shared), *f"{key.name} {key.network} {about}".encode()])
