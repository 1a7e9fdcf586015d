"""recompute: activations at chosen sites for many rows at once, from recorded inputs and without an environment.

A policy is a function of its observations and the recurrent state that enters the step. So its activations need not be
captured while episodes are played: one pass over an episode's rows costs a fraction of a hook at every step. The
numbers equal those that fired step by step, except for the summation order in matrix products (`TOLERANCE`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from marlnb.errors import ShapeError, SiteError
from marlnb.models.hooks.sites import match_sites, part_of
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy, device_of, eval_mode
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
    """The activations of one group's policy by site, `[row, agent, unit]`, on its device and without gradients.

    All rows go through the network together: pass long recordings in batches. Edits that are in force take effect.

    Args:
        sites: globs over the names of the policy's sites, in its actor, critics and mixer.
        observations: by group, `[row, agent, *shape]`, of all the group's agents. Actors need their own group's;
            centralised critics and mixers need every group's.
        recurrent: the actor's state that entered each row's step, `[row, agent, layer, unit]`.
        critic_recurrent: likewise, the critic's.
        state: the environment's state `[row, *state_shape]`, where a critic or mixer reads it.
    Raises:
        SiteError: a glob matches nothing, or a site never fires.
        ShapeError: a recurrent network is given no entering state.
    """
    with recomputing(policy, sites) as run:
        return run(observations, recurrent=recurrent, critic_recurrent=critic_recurrent, state=state)


class Recompute(Protocol):
    """`recompute` with the policy and the sites chosen already."""

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
    """`recompute` for many batches of rows; the preparation happens once for the whole block."""
    names = [site.name for site in match_sites(policy.sites(), sites)]
    actor_names = [name for name in names if not in_critic(name)]
    critic_names = [name for name in names if in_critic(name)]
    device = device_of(policy)

    def run(
        observations: Mapping[str, Tensor],
        *,
        recurrent: Tensor | None = None,
        critic_recurrent: Tensor | None = None,
        state: Tensor | None = None,
    ) -> dict[str, Tensor]:
        observations = {name: observation.to(device) for name, observation in observations.items()}
        activations: dict[str, Tensor] = {}
        if actor_names:
            in_actor.clear()
            entering = _entering(policy, "actor", policy.recurrent_shape, recurrent, device)
            policy.logits(observations[policy.group.name], recurrent=entering)
            activations |= in_actor
        if critic_names:
            in_critics.clear()
            entering = _entering(policy, "critic", policy.critic_recurrent_shape, critic_recurrent, device)
            policy.value(observations, state=None if state is None else state.to(device), recurrent=entering)
            activations |= in_critics
        silent = [name for name in names if name not in activations]
        if silent:
            raise SiteError(f"these sites never fired while they were recomputed: {', '.join(silent)}")
        return {name: activations[name] for name in names}

    with (
        torch.no_grad(),
        eval_mode([policy]),
        fast_pass(policy, device),
        capture_if_any(policy, actor_names) as in_actor,
        capture_if_any(policy, critic_names) as in_critics,
    ):
        yield run


def in_critic(site: str) -> bool:
    """Whether the site with this name fires when values are estimated: every site but the actor's."""
    return part_of(site) != "actor"


def fast_pass(policy: Policy, device: torch.device) -> AbstractContextManager[None]:
    """Uses the fastest routes through a policy's networks while the block runs. Numbers may differ by rounding."""
    return fast_training(policy) if device.type == "cpu" else nullcontext()


def _entering(
    policy: Policy, part: str, shape: tuple[int, int] | None, recurrent: Tensor | None, device: torch.device
) -> Tensor | None:
    if shape is None:
        return None
    if recurrent is None:
        raise ShapeError(
            f"the {part} of {policy.group.name!r} is recurrent and needs the state that entered each step, "
            f"[row, {policy.group.n_agents}, {shape[0]}, {shape[1]}]; got None"
        )
    return recurrent.to(device)
