"""What follows each step of a rollout: the next step's values, or the final ones where an episode ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Final:
    """Ends of episodes at one step of a rollout.

    Attributes:
        t: the step.
        ended: `[env]` or `[env, agent]`, whose episode ended; for masks, whose episode was truncated.
        value: their final observations, action masks or states.
    """

    t: int
    ended: Tensor
    value: Tensor


def shift(now: Tensor, after: Tensor, last: Tensor, finals: list[Final]) -> None:
    """Fills the next observations `[env, time, ...]`: those of the next step, or the final one if the episode ended."""
    after[:, :-1] = now[:, 1:]
    after[:, -1] = last
    for final in finals:
        at, ended = after[:, final.t], final.ended
        mask = ended.reshape(*ended.shape, *(1,) * (at.ndim - ended.ndim)).to(at.device)
        at.copy_(torch.where(mask, final.value.to(at.device), at))
    finals.clear()


def shift_by_mask(now: Tensor, after: Tensor, last: Tensor, ended: Tensor) -> None:
    """As `shift`, where `after` already holds what counts where episodes `ended`, `[env, time]` or per agent."""
    mask = ended.reshape(*ended.shape, *(1,) * (now.ndim - ended.ndim))
    after[:, :-1] = torch.where(mask[:, :-1], after[:, :-1], now[:, 1:])
    after[:, -1] = torch.where(mask[:, -1], after[:, -1], last)
