"""Evaluates many edits of one site on the same episodes: a few passes through the network serve all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from marlnb.analysis.data.trajectories import Trajectories
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits_variants import variants
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.rollout import next_recurrent
from marlnb.training.collect.threads import torch_threads

MAX_ROWS = 8192
"""Rows that go through the network at once; a processor's cache holds the activations of about so many."""


def logits_of_variants(policy: Policy, track: Trajectories, edits: Sequence[Edit]) -> Iterator[Tensor]:
    """The logits `[time, env, agent, parameter]` under each edit by itself, on the states of the episodes.

    A recurrent state is that which the edited network would have had, from the episode's beginning.

    Args:
        edits: of one site, at every step; they must not depend on the episode.
    """
    n_steps, n_envs = track.in_episode.shape
    rows = n_envs if policy.recurrent_shape is not None else n_steps * n_envs
    n_at_once = max(1, MAX_ROWS // rows)
    for start in range(0, len(edits), n_at_once):
        part = edits[start : start + n_at_once]
        copies = _is_hidden_layer(policy, part[0].site)
        with edited(policy, [variants(part, copies=copies)]), torch.no_grad(), torch_threads(1):
            logits = _logits(policy, track, 1 if copies else len(part))
        yield from logits


def _is_hidden_layer(policy: Policy, site: str) -> bool:
    """Whether the site is a hidden layer of the actor, before which the network needs to be computed only once."""
    network = getattr(getattr(policy, "actor", None), "network", None)
    if not isinstance(network, HiddenNetwork) or policy.recurrent_shape is not None:
        return False
    return any(each.name == site and each.module in set(network.hidden) for each in policy.sites())


def _logits(policy: Policy, track: Trajectories, n: int) -> Tensor:
    """`[edit, time, env, agent, parameter]` of n copies of the episodes; of one copy where the edits make copies."""
    group, distribution = policy.group.name, policy.distribution
    assert distribution is not None
    observation, mask, acting = track.observation[group], track.mask[group], track.acting[group]
    if policy.recurrent_shape is None:
        flat = observation.flatten(0, 1)
        parameters, _ = policy.logits(flat.repeat(n, *[1] * (flat.ndim - 1)) if n > 1 else flat)
        logits = parameters.reshape(-1, *observation.shape[:2], *parameters.shape[-2:])
    else:
        state = policy.initial_recurrent(n * observation.shape[1], observation.device)
        steps = []
        for now, acts in zip(observation, acting):
            parameters, next_state = policy.logits(now.repeat(n, *[1] * (now.ndim - 1)), recurrent=state)
            steps.append(parameters.unflatten(0, (n, -1)))
            state = next_recurrent(state, next_state, None if track.env.simultaneous else acts.repeat(n, 1))
        logits = torch.stack(steps, dim=1)
    return logits if mask is None else distribution.mask(logits, mask)
