"""Edits of a communication channel: features of what a group's agents see, held at a value or taken from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from marlnb.errors import ConfigError
from marlnb.models.hooks.edit import EDITS, OBSERVATION, Change, Edit, Place
from marlnb.models.hooks.edits import Ablate

MESSAGES = "*message_*"


def _channel(site: str, features: object) -> tuple[str, object]:
    """The site and units of a channel: the group's observation, and the features in it."""
    return site if "/" in site else f"{site}/{OBSERVATION}", MESSAGES if features is None else features


@EDITS.register("block_channel")
@dataclass(frozen=True)
class BlockChannel(Ablate):
    """Nothing comes through: the listeners' channel is held at a value, as `Ablate` takes it.

    `site` is the listening group, or its observation's site; `units` are the channel's features, by name or glob. By
    default those that the environment calls messages.
    """

    def __post_init__(self) -> None:
        site, units = _channel(self.site, self.units)
        object.__setattr__(self, "site", site)
        object.__setattr__(self, "units", units)
        super().__post_init__()


@EDITS.register("permute_channel")
@dataclass(frozen=True)
class PermuteChannel(Edit):
    """Messages come through, but to the wrong ears: each copy hears, at each step, what another copy's agent hears.

    Which copy hears which is drawn once, with `seed`, and no copy hears itself: messages keep their statistics, their
    course over an episode and lose only their fit to it. It depends on how many copies are stepped at once.
    """

    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        site, units = _channel(self.site, self.units)
        object.__setattr__(self, "site", site)
        object.__setattr__(self, "units", units)
        super().__post_init__()

    def begin(self, place: Place) -> Change:
        orders: dict[int, Tensor] = {}

        def permute(values: Tensor, whole: Tensor) -> Tensor:
            n = len(values)
            if n not in orders:
                orders[n] = derangement(n, self.seed)
            return values[orders[n].to(values.device)]

        return permute


def derangement(n: int, seed: int) -> Tensor:
    """An order `[n]` of 0 to n - 1 in which none is at its own place: one random cycle through all of them.

    Raises:
        ConfigError: there is one alone.
    """
    if n < 2:
        raise ConfigError("permuting among copies takes 2 or more copies stepped at once; there is 1 (n_envs=)")
    cycle = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    order = torch.empty_like(cycle)
    order[cycle] = cycle.roll(1)
    return order
