"""A recording's observations, shown to other policies: what their sites would have held at the same moments."""

from __future__ import annotations

import numpy as np
import torch

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError, SiteError, unknown
from marlnb.models.hooks.capture import capture
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import device_of, in_critic, recompute
from marlnb.training.collect.threads import torch_threads
from marlnb.training.policies.policy_source import Subject
from marlnb.training.runs.run import Which

BATCH_ROWS = 8192


def shown_activations(source: RowSource, subject: Subject, checkpoint: Which, site: str, rows: Rows) -> np.ndarray:
    """`[row, agent of the group, unit]` float32 of the subject's policy; zero for agents that were not recorded.

    A recurrent policy goes through each episode from a zero state, with its own memory of what was recorded.

    Raises:
        AnalysisError: the subject sees other features, or is recurrent and steps are missing.
        SiteError: its policy has no such site, or not one of all the group's agents.
    """
    policy = _policy(source, subject, checkpoint)
    found = {place.name: place for place in policy.sites()}
    if site not in found:
        raise SiteError(f"{subject.path.name}: {unknown('site', site, found)}")
    if found[site].agents is not None:
        raise SiteError(f"{site} of {subject.path.name} is of single agents; show a site of the whole group")
    judging = in_critic(site)
    if (policy.critic_recurrent_shape if judging else policy.recurrent_shape) is None:
        return _at_once(source, policy, site, rows, judging)
    if judging:
        raise SiteError(f"{site} of {subject.path.name} is of a recurrent critic, which is not run anew")
    if not source.keeps_every_step(rows):
        raise AnalysisError("a recurrent policy needs every step of each episode; this recording leaves some out")
    return _step_by_step(source, policy, site, rows)


def _policy(source: RowSource, subject: Subject, checkpoint: Which) -> Policy:
    own, others = source.env.group(source.group), subject.spec
    if source.group not in others.group_names:
        raise AnalysisError(f"{subject.path.name}: {unknown('group', source.group, others.group_names)}")
    theirs = others.group(source.group)
    for name, here, there in (
        ("observations", own.observation.shape, theirs.observation.shape),
        ("features", own.observation.names, theirs.observation.names),
        ("number of agents", own.n_agents, theirs.n_agents),
    ):
        if here != there:
            raise AnalysisError(f"{name} of {source.group!r}: {here} in this recording, {there} in {subject.path.name}")
    return subject.policies(checkpoint)[source.group].eval()


@torch_threads(1)
def _at_once(source: RowSource, policy: Policy, site: str, rows: Rows, judging: bool) -> np.ndarray:
    parts = []
    for moments in source.batches(rows, BATCH_ROWS, needs_state=judging, every_group=judging):
        found = recompute(policy, site, moments.observations, state=moments.state)[site]
        parts.append(found.float().cpu().numpy().copy())
    return np.concatenate(parts)


@torch.no_grad()
@torch_threads(1)
def _step_by_step(source: RowSource, policy: Policy, site: str, rows: Rows) -> np.ndarray:
    """Every episode at once; one that has ended is run on and thrown away."""
    device = device_of(policy)
    seen = torch.from_numpy(source.observations(source.group, rows)).to(device)
    _, start, number, length = np.unique(rows.episode, return_index=True, return_inverse=True, return_counts=True)
    state = policy.initial_recurrent(len(start), device)
    steps = []
    for t in range(int(length.max())):
        at = torch.from_numpy(start + np.minimum(t, length - 1))
        with capture(policy, site) as activations:
            _, state = policy.logits(seen[at], recurrent=state)
        steps.append(activations[site].float().cpu().clone())
    place = np.arange(len(rows)) - start[number]
    return np.asarray(torch.stack(steps)[torch.from_numpy(place), torch.from_numpy(number)].numpy())
