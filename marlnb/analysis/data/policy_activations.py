"""Activations that another policy has when it observes what a recording holds.

Two analyses need them: comparing networks at the same time steps (`View(..., policy_source=)`), and the control of an
untrained network, since random features of an observation can already be decoded from (Conneau et al. 2018,
arXiv:1805.01070, section 4.2; Zhang and Bowman 2018, arXiv:1809.10040).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError, SiteError, unknown
from marlnb.models.hooks.capture import capture
from marlnb.models.policies.policy import Policy, device_of
from marlnb.recording.capture.recompute import in_critic
from marlnb.training.collect.rollout import next_recurrent
from marlnb.training.collect.threads import torch_threads
from marlnb.training.learners import build_learners
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run_folder import Which

BATCH_ROWS = 4096


@torch_threads(1)
@torch.no_grad()
def policy_activations(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    """A site's activations `[row, agent of the group, unit]` float32 when `policy` observes the recorded observations.

    A recurrent actor starts each episode from its initial state and keeps its own memory of what was recorded, so
    `rows` must hold every step. Agents that the site does not belong to have zeros.
    """
    if policy.recurrent_shape is not None and not in_critic(site):
        values = _unroll(source, policy, site, rows)
    else:
        values = _forward_in_batches(source, policy, site, rows)
    agents = _agents_of(policy, site)
    if agents is None:
        return values
    by_group = np.zeros((len(values), policy.group.n_agents, values.shape[2]), values.dtype)
    by_group[:, list(agents)] = values
    return by_group


def recorded_agents_at(source: RowSource, policy: Policy, site: str) -> list[str]:
    """The recorded agents that a site of a policy belongs to."""
    agents = _agents_of(policy, site)
    return [each for each in source.recorded_agents() if agents is None or source.agents.index(each) in agents]


def _agents_of(policy: Policy, site: str) -> tuple[int, ...] | None:
    return next(candidate.agents for candidate in policy.sites() if candidate.name == site)


def _forward_in_batches(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    critic, device, parts = in_critic(site), device_of(policy), []
    for batch in source.batches(rows, BATCH_ROWS, needs_state=critic):
        observations = {name: observation.to(device) for name, observation in batch.observations.items()}
        with capture(policy, site) as activations:
            if critic:
                policy.value(observations, state=None if batch.state is None else batch.state.to(device))
            else:
                policy.logits(observations[source.group])
        parts.append(activations[site].float().cpu().numpy().copy())
    return np.concatenate(parts)


def _unroll(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    """All episodes at once, step by step; one that has ended repeats its last step, and the excess is dropped.

    As in `play`, an agent that waits for its turn keeps its memory.
    """
    device = device_of(policy)
    acting = None if source.env.simultaneous else torch.from_numpy(source.acting(rows)).to(device)
    observation = torch.from_numpy(source.observations(source.group, rows)).to(device)
    _, start, number, length = np.unique(rows.episode, return_index=True, return_inverse=True, return_counts=True)
    state = policy.initial_recurrent(len(start), device)
    steps: list[Tensor] = []
    for t in range(int(length.max())):
        current_rows = torch.from_numpy(start + np.minimum(t, length - 1))
        with capture(policy, site) as activations:
            _, after = policy.logits(observation[current_rows], recurrent=state)
        steps.append(activations[site].float().cpu().clone())
        state = next_recurrent(state, after, None if acting is None else acting[current_rows])
    time_step = np.arange(len(rows)) - start[number]
    return np.asarray(torch.stack(steps)[torch.from_numpy(time_step), torch.from_numpy(number)].numpy())


def compatible_policy(
    source: RowSource, policy_source: PolicySource, checkpoint: Which, site: str, rows: Rows
) -> Policy:
    """The policy of another run (or of external agents) for the recorded group, if it can observe these rows.

    Raises:
        AnalysisError: other groups, features or agents than the recording's, a recurrent policy and missing steps, or a
            policy that reads agents that were not recorded.
        SiteError: the policy has no such site, or one of a recurrent critic.
    """
    name, recorded = policy_source.path.name, source.env.group(source.group)
    if source.group not in policy_source.spec.group_names:
        raise AnalysisError(f"{name}: {unknown('group', source.group, policy_source.spec.group_names)}")
    other = policy_source.spec.group(source.group)
    for what, expected, actual in (
        ("observations", recorded.observation.shape, other.observation.shape),
        ("features", recorded.observation.names, other.observation.names),
        ("number of agents", recorded.n_agents, other.n_agents),
    ):
        if expected != actual:
            raise AnalysisError(f"{what} of {source.group!r}: {expected} in this recording, {actual} in {name}")
    policy = policy_source.policies(checkpoint)[source.group].eval()
    sites = {candidate.name: candidate for candidate in policy.sites()}
    if site not in sites:
        raise SiteError(f"{name}: {unknown('site', site, sites)}")
    if in_critic(site) and policy.critic_recurrent_shape is not None:
        raise SiteError(f"site {site!r} of {name} is in a recurrent critic; only recurrent actors can be recomputed")
    if not in_critic(site) and policy.recurrent_shape is not None and not source.keeps_every_step(rows):
        raise AnalysisError(f"{name} has a recurrent policy, which needs every step of each episode; some are missing")
    source.check_recorded(policy.reads(critic=in_critic(site)))
    return policy


def untrained_policy(source: RowSource, site: str, rows: Rows, seed: int) -> tuple[Policy | None, list[str]]:
    """The group's policy with new random weights; None and the reason where it cannot be run on these rows.

    The experiment's own initialisation draws the weights; those of external agents, and of the two players of a match,
    are shuffled within each tensor.
    """
    experiment = source.recording.experiment
    if experiment is not None:
        other_seed = replace(experiment, seed=experiment.seed + 1 + seed)
        policy = build_learners(other_seed, source.env, "cpu")[source.group].policy.eval()
    elif source.given_policies is not None and source.group in source.given_policies:
        policy = shuffle_weights(source.given_policies[source.group], seed)
    elif source.is_of_players:
        policy = shuffle_weights(source.policies()[source.group], seed)
    else:
        reason = "the recording does not hold its experiment; pass policies=agents.by_group"
        return None, [f"no untrained network to compare with: {reason}"]
    if in_critic(site) and policy.critic_recurrent_shape is not None:
        return None, ["no untrained network to compare with: a recurrent critic cannot be recomputed"]
    if not in_critic(site) and policy.recurrent_shape is not None and not source.keeps_every_step(rows):
        return None, ["no untrained network to compare with: a recurrent one needs every step of each episode"]
    if missing := source.missing_agents(policy.reads(critic=in_critic(site))):
        return None, [f"no untrained network to compare with: it reads agents that were not recorded: {missing}"]
    return policy, []


def is_function_of_observation(policy: Policy, site: str) -> bool:
    """Whether the site's units depend on nothing but the agent's own observation at the same step."""
    return not (in_critic(site) or policy.recurrent_shape is not None or policy.cross_agent)


@torch.no_grad()
def shuffle_weights(policy: Policy, seed: int) -> Policy:
    """A copy of the policy whose weights are permuted within each tensor: the same sizes, and nothing learned."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = copy.deepcopy(policy).eval()
    for parameter in shuffled.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return shuffled
