"""Continues learning with networks that have more units or layers: weights, target networks and Adam's moments.

    new units     incoming weights as a new network draws them, outgoing weights 0: the output is the same for any
                  nonlinearity, and the gradient reaches the new units through their outgoing weights at once
    new layer     the identity: the output is the same after relu
    moments       of old weights as they were, of new weights 0; the number of steps stays

Adam's bias correction counts all steps for new weights too.
Source: Chen et al. 2016, Net2Net (arXiv:1511.05641), with outgoing weights of 0 in the place of copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.learner import Learner, weights_of
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.scripted import FixedPolicyLearner
from marlnb.errors import ConfigError
from marlnb.models.networks.network import Network

MAX_RELATIVE_CHANGE = 1e-5  # of outputs in float32, where a mutation is meant to change none


def grown_state(parent: Learner, child: Learner, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a parent's learner for a child whose networks have more units or layers.

    Raises:
        ConfigError: the learner is of a kind whose state is not known, or a network of the child is smaller.
    """
    grown, weights = dict(state), weights_of(child.policy)
    if isinstance(child, FixedPolicyLearner):  # its networks are those of its state
        return grown
    if {name: value.shape for name, value in state["policy"].items()} == {n: w.shape for n, w in weights.items()}:
        return grown
    grown["policy"] = _grown(state["policy"], weights)
    if isinstance(child, OffPolicyLearner):
        grown["targets"] = _grown(state["targets"], weights_of(child.targets))
    names = _names(parent.policy), _names(child.policy)
    saved = state["optimizers"] if "optimizers" in state else {name: state[name] for name in parent.optimizers}
    moments = {
        name: _moments(optimizer, child.optimizers[name], saved[name], *names)
        for name, optimizer in parent.optimizers.items()
    }
    if not moments:
        raise ConfigError(f"the networks of a {type(parent).__name__} cannot grow: its optimizer is not known")
    return {**grown, "optimizers": moments} if "optimizers" in state else {**grown, **moments}


@torch.no_grad()
def change_of_outputs(parent: nn.Module, child: nn.Module) -> float:
    """The largest change of an output of any network in two policies, relative to the parent's largest output.

    Inputs are drawn from N(0, 1), the same for both.
    """
    others, largest = dict(child.named_modules()), 0.0
    for name, network in parent.named_modules():
        if not isinstance(network, Network):
            continue
        other = others[name]
        weight = next(network.parameters())
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(16, network.n_agents, network.in_features, generator=generator).to(weight)
        before, after = network(x)[0], other(x)[0]
        scale = float(before.abs().max().clamp_min(1e-12))
        largest = max(largest, float((after - before).abs().max()) / scale)
    return largest


def _grown(old: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights and buffers by name."""
    return {name: _inserted(name, new) if name not in old else _enlarged(old[name], new) for name, new in fresh.items()}


def _enlarged(old: Tensor, fresh: Tensor) -> Tensor:
    """`[..., out, in]` or `[..., out]`: the old block, new rows as in `fresh`, and 0 for new columns of old rows."""
    if old.shape == fresh.shape:
        return old
    if old.ndim != fresh.ndim or any(a > b for a, b in zip(old.shape, fresh.shape)):
        raise ConfigError(f"weights {tuple(old.shape)} cannot become {tuple(fresh.shape)}")
    result = fresh.clone()
    result[tuple(slice(size) for size in old.shape[:-1])] = 0.0
    result[tuple(slice(size) for size in old.shape)] = old
    return result


def _inserted(name: str, fresh: Tensor) -> Tensor:
    """A layer that did not exist: the identity."""
    if name.endswith("weight") and fresh.ndim >= 2 and fresh.shape[-1] == fresh.shape[-2]:
        return torch.eye(fresh.shape[-1]).to(fresh).expand_as(fresh).clone()
    if name.endswith("bias"):
        return torch.zeros_like(fresh)
    raise ConfigError(f"{name} {tuple(fresh.shape)} cannot be inserted as an identity")


def _moments(
    parent: PartAdam,
    child: PartAdam,
    state: Mapping[str, Any],
    parent_names: Mapping[int, str],
    child_names: Mapping[int, str],
) -> dict[str, Any]:
    """Adam's state with the moments of old weights, and 0 for new ones."""
    grown: dict[str, Any] = {"steps": state["steps"]}
    for part, parameters in child.parameters.items():
        shapes = [weight.shape for weight in parent.parameters[part]]
        grown[part] = {}
        for moment, flat in state[part].items():
            pieces = flat.split([shape.numel() for shape in shapes])
            old = {
                parent_names[id(weight)]: piece.view(shape)
                for weight, piece, shape in zip(parent.parameters[part], pieces, shapes)
            }
            new = []
            for weight in parameters:
                zeros, name = torch.zeros_like(weight), child_names[id(weight)]
                new.append(_enlarged(old[name], zeros) if name in old else zeros)
            grown[part][moment] = torch.cat([each.reshape(-1) for each in new])
    return grown


def _names(policy: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in policy.named_parameters()}
