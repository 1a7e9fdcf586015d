"""Edits of a communication channel: features of a group's observations, held at a value or permuted."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from marlnb.errors import ConfigError
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.apply_edits import check_one_time_step
from marlnb.models.hooks.edit import EDITS, Change, Edit, EditTarget
from marlnb.models.hooks.edits import Ablate
from marlnb.models.hooks.sites import OBSERVATION

MESSAGES = "*message_*"


def _use_observation_site(edit: Edit) -> None:
    """Turns a group's name into its observation site; the units default to the message features."""
    if "/" not in edit.site:
        object.__setattr__(edit, "site", f"{edit.site}/{OBSERVATION}")
    if edit.units is None:
        object.__setattr__(edit, "units", MESSAGES)


@EDITS.register("block_channel")
@dataclass(frozen=True)
class BlockChannel(Ablate):
    """Blocks a channel: the listeners receive a constant, as `Ablate` defines it.

    `site` is the listening group, or its observation site. `units` are the channel's features, by name or glob; the
    default is the features that the environment calls messages.
    """

    def __post_init__(self) -> None:
        _use_observation_site(self)
        super().__post_init__()


@EDITS.register("permute_channel")
@dataclass(frozen=True)
class PermuteChannel(Edit):
    """Sends messages to the wrong listeners: at each step an environment receives the messages of another environment.

    The permutation is drawn once, with `seed`, and has no fixed point. Messages keep their distribution and their
    course over an episode, and lose only their relation to it. What a dead agent observes is no message: a listener
    receives that of the next environment of the permutation's cycle in which its agent is alive. If there is none, and
    while it is dead itself, its observation stays unchanged. The result depends on the number of environments.
    """

    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _use_observation_site(self)
        super().__post_init__()

    def bind(self, target: EditTarget) -> Change:
        orders: dict[int, Tensor] = {}
        site, names = target.site, target.policy.group.agents
        agents = [names.index(agent) for agent in target.agents]

        def permute(values: Tensor, output: Tensor) -> Tensor:
            context = episode_context.now(f"the permuted channel at {self.site!r}")
            check_one_time_step(output, context.t, target)
            n_envs = len(values)
            if n_envs not in orders:
                orders[n_envs] = derangement(n_envs, self.seed)
            alive = None if site.shared_forward else context.alive.get(site.group)
            if alive is None:
                return values[orders[n_envs].to(values.device)]
            senders = _living_senders(orders[n_envs], alive[:, agents].cpu())
            return values[senders.to(values.device), torch.arange(len(agents), device=values.device)]

        return permute


def _living_senders(order: Tensor, alive: Tensor) -> Tensor:
    """The environment whose message each listener receives, `[env, agent]`.

    Args:
        order: `[env]`, a permutation of one cycle.
        alive: `[env, agent]` bool.
    """
    senders = torch.where(alive, order[:, None], torch.arange(len(order))[:, None])
    while (dead := alive & ~alive.gather(0, senders)).any():  # ends: the cycle leads back to the listener
        senders = torch.where(dead, order[senders], senders)
    return senders


def derangement(n: int, seed: int) -> Tensor:
    """A permutation `[n]` of 0 to n - 1 without a fixed point: one random cycle through all of them.

    Raises:
        ConfigError: n is 1.
    """
    if n < 2:
        raise ConfigError("permuting messages among environments needs 2 or more of them (n_envs=); got 1")
    cycle = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    order = torch.empty_like(cycle)
    order[cycle] = cycle.roll(1)
    return order
