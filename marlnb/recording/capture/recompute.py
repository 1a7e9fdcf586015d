"""recompute: what chosen sites put out for many rows at once, from what was seen, without stepping an environment.

A policy is a function of what it sees and of the recurrent state that enters the step, so its activations need not be
kept while things happen: one pass over an episode's rows costs a fraction of a hook at every step. The numbers are
those that fired step by step but for the order in which a matrix product adds up: `TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from marlnb.errors import ShapeError, SiteError
from marlnb.models.hooks.sites import match_sites
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.sources import capture_if_any

TOLERANCE = 1e-5  # relative to the largest activation of the site in these rows


def recompute(
    policy: Policy,
    sites: str | Sequence[str],
    observations: Mapping[str, Tensor],
    *,
    recurrent: Tensor | None = None,
    critic_recurrent: Tensor | None = None,
    state: Tensor | None = None,
) -> dict[str, Tensor]:
    """The activations of one group's policy `[row, agent, unit]` by site, on the policy's device, without gradients.

    All rows go through the network together: hand long recordings over in batches. No edits may be in force, unless
    they are asked for too.

    Args:
        sites: globs over the names of the policy's sites: of its actor, its critics, its mixer.
        observations: by group, `[row, agent, *shape]`, of all the group's agents; actors need their own group's,
            centralised critics and mixers everyone's.
        recurrent: the actor's state that entered each row's step, `[row, agent, layer, unit]`.
        critic_recurrent: the critic's, likewise.
        state: the environment's, `[row, *state_shape]`, where a critic or mixer reads it.
    Raises:
        SiteError: a glob that matches nothing, or a site that never fires.
        ShapeError: a recurrent network without the state that entered the step.
    """
    with recomputing(policy, sites) as run:
        return run(observations, recurrent=recurrent, critic_recurrent=critic_recurrent, state=state)


class Recompute(Protocol):
    """`recompute` of one policy and chosen sites."""

    def __call__(
        self,
        observations: Mapping[str, Tensor],
        *,
        recurrent: Tensor | None = None,
        critic_recurrent: Tensor | None = None,
        state: Tensor | None = None,
    ) -> dict[str, Tensor]: ...


@contextmanager
def recomputing(policy: Policy, sites: str | Sequence[str]) -> Iterator[Recompute]:
    """`recompute` for many batches of rows: what it needs is prepared once, for as long as the block runs."""
    chosen = [site.name for site in match_sites(policy.sites(), sites)]
    acting = [name for name in chosen if not in_critic(name)]
    judging = [name for name in chosen if in_critic(name)]
    device = device_of(policy)

    def run(
        observations: Mapping[str, Tensor],
        *,
        recurrent: Tensor | None = None,
        critic_recurrent: Tensor | None = None,
        state: Tensor | None = None,
    ) -> dict[str, Tensor]:
        observations = {name: seen.to(device) for name, seen in observations.items()}
        found: dict[str, Tensor] = {}
        if acting:
            in_actor.clear()
            entering = _entering(policy, "actor", policy.recurrent_shape, recurrent, device)
            policy.logits(observations[policy.group.name], recurrent=entering)
            found |= in_actor
        if judging:
            in_critics.clear()
            entering = _entering(policy, "critic", policy.critic_recurrent_shape, critic_recurrent, device)
            policy.value(observations, state=None if state is None else state.to(device), recurrent=entering)
            found |= in_critics
        silent = [name for name in chosen if name not in found]
        if silent:
            raise SiteError(f"these sites never fired while they were recomputed: {', '.join(silent)}")
        return {name: found[name] for name in chosen}

    with (
        torch.no_grad(),
        eval_mode(policy),
        fast_pass(policy, device),
        capture_if_any(policy, acting) as in_actor,
        capture_if_any(policy, judging) as in_critics,
    ):
        yield run


def in_critic(site: str) -> bool:
    """Whether the site of this name fires where values are estimated: all but the actor's do, a mixer's too."""
    return site.split("/")[1] != "actor"


def device_of(policy: Policy) -> torch.device:
    """Where a policy's tensors lie; the CPU for one that has none."""
    tensors = (tensor for part in (policy.parameters(), policy.buffers()) for tensor in part)
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def fast_pass(policy: Policy, device: torch.device) -> AbstractContextManager[None]:
    """The fastest routes through a policy's networks while the block runs; the numbers may differ by rounding."""
    return fast_training(policy) if device.type == "cpu" else nullcontext()


@contextmanager
def eval_mode(policy: Policy) -> Iterator[None]:
    """The policy in eval mode while the block runs."""
    training = policy.training
    if training:
        policy.eval()
    try:
        yield
    finally:
        if training:
            policy.train()


def _entering(
    policy: Policy, part: str, shape: tuple[int, int] | None, recurrent: Tensor | None, device: torch.device
) -> Tensor | None:
    if shape is None:
        return None
    if recurrent is None:
        raise ShapeError(
            f"the {part} of {policy.group.name!r} is recurrent: it needs the state that entered each step, "
            f"[row, {policy.group.n_agents}, {shape[0]}, {shape[1]}]; got None"
        )
    return recurrent.to(device)
