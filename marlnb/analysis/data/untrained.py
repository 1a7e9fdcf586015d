"""The untrained control: the same architecture with random weights, looking at the same observations.

Random features of an observation can already be read out; what training added is what lies above them
(Conneau et al. 2018, arXiv:1805.01070, section 4.2; Zhang and Bowman 2018, arXiv:1809.10040).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.models.hooks.capture import capture
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads
from marlnb.training.learners import build_learners

BATCH_ROWS = 4096


def untrained_activations(source: RowSource, site: str, rows: Rows, seed: int) -> tuple[np.ndarray | None, list[str]]:
    """Activations `[row, agent of the group, unit]` of a site with weights drawn anew; notes on why there are none.

    The experiment's own initialisation draws them. A recurrent network is run through each episode from a zero state,
    which needs every step of it.
    """
    policy, notes = untrained_policy(source, site, rows, seed)
    return None if policy is None else policy_activations(source, policy, site, rows), notes


def untrained_policy(source: RowSource, site: str, rows: Rows, seed: int) -> tuple[Policy | None, list[str]]:
    """The group's policy with weights drawn anew, if it can be run on the rows; notes on why not."""
    experiment = source.recording.experiment
    if experiment is not None:
        redrawn = replace(experiment, seed=experiment.seed + 1 + seed)
        policy = build_learners(redrawn, source.env, "cpu")[source.group].policy.eval()
    elif source.given is not None and source.group in source.given:
        policy = shuffled(source.given[source.group], seed)
    else:
        return None, [
            "no untrained network to compare with: the recording does not know its experiment; pass "
            "policies=agents.by_group"
        ]
    of_critic = site.split("/")[1] != "actor"
    state = policy.critic_recurrent_shape if of_critic else policy.recurrent_shape
    if state is not None and of_critic:
        return None, ["no untrained network to compare with: a recurrent critic's state is not replayed"]
    if state is not None and not source.keeps_every_step(rows):
        return None, ["no untrained network to compare with: a recurrent one needs every step of each episode"]
    return policy, []


@torch.no_grad()
def shuffled(policy: Policy, seed: int) -> Policy:
    """A copy whose weights lie in another order, within each tensor: as large as they were, and knowing nothing."""
    generator = torch.Generator().manual_seed(seed)
    redrawn = copy.deepcopy(policy).eval()
    for parameter in redrawn.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return redrawn


@torch_threads(1)
def policy_activations(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    """A site's activations `[row, agent of the group, unit]` of a policy that sees the recorded observations."""
    of_critic = site.split("/")[1] != "actor"
    if not of_critic and policy.recurrent_shape is not None:
        return _of_group(_recurrent(source, policy, site, rows), policy, site)
    return _of_group(_feed_forward(source, policy, site, rows, of_critic), policy, site)


def _of_group(values: np.ndarray, policy: Policy, site: str) -> np.ndarray:
    """`[row, agent of the site, unit]` -> `[row, agent of the group, unit]`, zero for agents that it is not of."""
    agents = next(found.agents for found in policy.sites() if found.name == site)
    if agents is None:
        return values
    spread = np.zeros((len(values), policy.group.n_agents, values.shape[2]), values.dtype)
    spread[:, list(agents)] = values
    return spread


@torch.no_grad()
def _feed_forward(source: RowSource, policy: Policy, site: str, rows: Rows, of_critic: bool) -> np.ndarray:
    parts = []
    for moments in source.batches(rows, BATCH_ROWS, needs_state=of_critic, every_group=of_critic):
        with capture(policy, [site]) as activations:
            if of_critic:
                policy.value(moments.observations, state=moments.state)
            else:
                policy.act(moments.observations[source.group], explore=False)
        parts.append(activations[site].numpy().copy())
    return np.concatenate(parts)


@torch.no_grad()
def _recurrent(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    """Every episode at once, step by step; an episode that has ended is run on and thrown away."""
    observation = torch.from_numpy(source.observations(source.group, rows))
    _, start, number, length = np.unique(rows.episode, return_index=True, return_inverse=True, return_counts=True)
    state = policy.initial_recurrent(len(start), "cpu")
    steps: list[Tensor] = []
    for t in range(int(length.max())):
        at = torch.from_numpy(start + np.minimum(t, length - 1))
        with capture(policy, [site]) as activations:
            state = policy.act(observation[at], recurrent=state, explore=False).recurrent
        steps.append(activations[site].clone())
    place = np.arange(len(rows.episode)) - start[number]
    return torch.stack(steps)[torch.from_numpy(place), torch.from_numpy(number)].numpy()
