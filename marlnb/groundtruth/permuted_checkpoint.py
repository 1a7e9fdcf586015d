"""Permuted checkpoint: a synthetic later checkpoint of an instance, to test which sites kept their representation.

The hidden units of every agent are permuted. Choices stay the same, up to the minor units' 0.01 logits. Randomly chosen
agents get new random features in the last hidden layer or in both: there the representation changes, except for the
circuit and the decoys. In the other agents, random features drift slightly.
"""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import numpy as np
import torch

from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.wiring import UNITS
from marlnb.models.hooks.sites import group_of
from marlnb.models.networks.agent_id import AgentId
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.networks.recurrent import GRU
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.policy import Policy

DRIFT = 0.02
"""Noise on a drifting feature's weights, as a share of the weights' RMS."""
EXCLUDED_GROUPS = ("speaker",)
"""Groups that observe only one of three colors. Any two layers that separate three points are similar."""
FIRST_REDRAWN_LAYER = (3, 2, 1)
"""First redrawn layer: 3 (none), 2 (the second), 1 (both)."""


def unchanged_units(key: AnswerKey) -> dict[tuple[str, str], bool]:
    """By (agent, site): whether the representation is unchanged. EXCLUDED_GROUPS are left out."""
    first_redrawn = _first_redrawn(key)
    return {
        (agent, site): layer < first_redrawn[agent]
        for (agent, site), layer in _layers(key).items()
        if group_of(site) not in EXCLUDED_GROUPS
    }


def permuted_policy(policy: Policy, key: AnswerKey) -> ActorCritic:
    """Copy of one group's policy with the later checkpoint's weights."""
    later = cast(ActorCritic, deepcopy(policy))
    network = later.actor.network
    inner = cast("MLP | GRU", network.inner if isinstance(network, AgentId) else network)
    rng, first_redrawn = _rng(key, later.group.name), _first_redrawn(key)
    first = cast(HiddenLayer, inner.hidden[0]).linear
    layers = [inner.gru.input, inner.gru.state] if isinstance(inner, GRU) else [inner.hidden[1].linear]
    weights = {name: _to_array(layer) for name, layer in zip(("first", "second", "state"), [first, *layers])}
    head = _to_array(inner.head)
    for block in range(len(head)):
        agent = later.group.agents[block]
        free_units = {layer: _free_units(key, agent, layer) for layer in (1, 2)}
        for layer in (1, 2):
            share = 1.0 if layer >= first_redrawn[agent] else DRIFT
            _redraw(weights, block, layer, free_units, share, rng)
        _permute(weights, head[block], block, [rng.permutation(UNITS) for _ in range(2)])
    with torch.no_grad():
        for layer, array in zip([first, *layers, inner.head], [*weights.values(), head]):
            layer.weight.copy_(torch.from_numpy(array[..., :-1]).reshape(layer.weight.shape))
            layer.bias.copy_(torch.from_numpy(array[..., -1]).reshape(layer.bias.shape))
    return later.eval()


def _redraw(
    weights: dict[str, np.ndarray],
    block: int,
    layer: int,
    free_units: dict[int, np.ndarray],
    share: float,
    rng: np.random.Generator,
) -> None:
    """Redraws the weights of free units: w' = sqrt(1 - share^2) w + share e, where e is noise with the RMS of w.

    Zero weights stay zero.
    """
    for name in ("first",) if layer == 1 else ("second", "state"):
        if name in weights:
            n_parts = weights[name].shape[1] // UNITS
            rows = np.concatenate([free_units[layer] + UNITS * part for part in range(n_parts)])
            old = weights[name][block][rows]
            rms = np.sqrt((old**2).sum(1, keepdims=True) / np.maximum((old != 0).sum(1, keepdims=True), 1))
            noise = rng.normal(size=old.shape) * rms * (old != 0)
            weights[name][block][rows] = np.sqrt(1 - share**2) * old + share * noise


def _permute(weights: dict[str, np.ndarray], head: np.ndarray, block: int, order: list[np.ndarray]) -> None:
    """Permutes the units of both layers in all weights, in place."""
    first, second = order
    weights["first"][block] = weights["first"][block][first]
    for name in ("second", "state"):
        if name in weights:
            matrix = weights[name][block]
            rows = np.concatenate([second + UNITS * part for part in range(len(matrix) // UNITS)])
            columns = np.append(first if name == "second" else second, UNITS)
            weights[name][block] = matrix[rows][:, columns]
    head[:] = head[:, np.append(second, UNITS)]


def _to_array(layer: torch.nn.Module) -> np.ndarray:
    """Weights and bias of a linear layer, `[block, output, input + 1]`: one block if shared, else one per agent."""
    weight, bias = (cast(torch.Tensor, x).detach().numpy().astype(np.float64) for x in (layer.weight, layer.bias))
    weight = weight.reshape(-1, *weight.shape[-2:])
    return np.concatenate([weight, bias.reshape(*weight.shape[:2], 1)], axis=-1)


def _free_units(key: AnswerKey, agent: str, layer: int) -> np.ndarray:
    """Units outside the circuit and the decoys of every agent that shares these weights."""
    group = agent.rpartition("_")[0]
    sharing = {a for a, _ in _layers(key) if a.rpartition("_")[0] == group and (key.shared or a == agent)}
    used = {
        unit
        for node in (*key.nodes, *key.decoys)
        if node.agent in sharing and _layer(node.site) == layer
        for unit in node.units
    }
    return np.setdiff1d(np.arange(UNITS), sorted(used))


def _layer(site: str) -> int:
    return 1 if site.endswith("/hidden_1") else 2


def _layers(key: AnswerKey) -> dict[tuple[str, str], int]:
    """Layer by (agent, site). Every site has decoys, so the key lists them all."""
    pairs = sorted({(node.agent, node.site) for node in (*key.nodes, *key.decoys)})
    return {(agent, site): _layer(site) for agent, site in pairs}


def _first_redrawn(key: AnswerKey) -> dict[str, int]:
    """By agent: the first redrawn layer. Agents that share weights have the same one."""
    first_redrawn: dict[str, int] = {}
    agents = sorted({agent for agent, _ in _layers(key)})
    for group in sorted({agent.rpartition("_")[0] for agent in agents}):
        members = [agent for agent in agents if agent.rpartition("_")[0] == group]
        drawn = _rng(key, f"{group} redrawn").permutation(FIRST_REDRAWN_LAYER)
        layers = np.resize(drawn[:1] if key.shared else drawn, len(members))
        first_redrawn |= dict(zip(members, layers.tolist()))
    return first_redrawn


def _rng(key: AnswerKey, purpose: str) -> np.random.Generator:
    return np.random.default_rng([key.seed, int(key.shared), *f"{key.name} {key.network} {purpose}".encode()])
