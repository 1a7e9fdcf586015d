"""An agent's actions, numbered as in mpe2, and their conversion to forces and messages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from marlnb.envs.mpe.layout import Body
from marlnb.envs.mpe.world import DT, World
from marlnb.specs import ActionSpec

MOVES = ("no_op", "left", "right", "down", "up")
Act = Callable[[Tensor], None]


def action_spec(body: Body, n_words: int, continuous: bool) -> ActionSpec:
    """Moves and words of one agent: one choice of a pair (move + 5 × word), or a number in 0..1 for each."""
    moves = MOVES if body.movable else ()
    words = () if body.silent else tuple(f"say_{word}" for word in range(n_words))
    if continuous:
        n = len(moves) + len(words)
        return ActionSpec("continuous", low=(0.0,) * n, high=(1.0,) * n, names=moves + words)
    names = tuple(f"{move}+{word}" for word in words for move in moves) if moves and words else moves + words
    return ActionSpec("discrete", n=(len(names),), names=names)


def actor(world: World, body: Body, agents: slice, speakers: slice, continuous: bool) -> Act:
    """A function that writes one group's actions `[env, agent, …]` into the world's control and message."""
    control = world.control[:, agents] if body.movable else None
    message = None if body.silent else world.message[speakers]
    if continuous:
        return _continuous(control, message, body.accel * DT)
    return _discrete(world, control, message, body.accel * DT)


def _discrete(world: World, control: Tensor | None, message: Tensor | None, push: float) -> Act:
    x, y = world.tensor([0, -push, push, 0, 0]), world.tensor([0, 0, 0, -push, push])
    words = torch.arange(message.shape[1] if message is not None else 0, device=world.device)[:, None]

    def act(action: Tensor) -> None:
        move = word = action.t()
        if control is not None and message is not None:
            word, move = move.div(len(MOVES), rounding_mode="floor"), move.remainder(len(MOVES))
        if control is not None:
            torch.take(x, move, out=control[0])
            torch.take(y, move, out=control[1])
        if message is not None:
            torch.eq(word[:, None], words, out=message)

    return act


def _continuous(control: Tensor | None, message: Tensor | None, push: float) -> Act:
    def act(action: Tensor) -> None:
        action = action.clamp(0.0, 1.0)
        if control is not None:
            torch.sub(action[..., 2].t(), action[..., 1].t(), out=control[0])
            torch.sub(action[..., 4].t(), action[..., 3].t(), out=control[1])
            control.mul_(push)
        if message is not None:
            message.copy_(action[..., -message.shape[1] :].permute(1, 2, 0))

    return act
