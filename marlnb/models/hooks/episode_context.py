"""The moment that policies act in: which episode each copy plays, and how many steps of it have gone by.

Policies see observations, not time; edits with a window of time, and patches from recordings, ask here. Whoever steps
policies says it: `play` does, and whoever acts by hand does with `at`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor

from marlnb.errors import ConfigError


class Clock(NamedTuple):
    """episode, t: `[env]` int64, the number of the episode that each copy plays (-1 where it does not count), and the
    steps since it began."""

    episode: Tensor
    t: Tensor


_NOW: ContextVar[Clock | None] = ContextVar("marlnb_clock", default=None)


@contextmanager
def at(episode: Tensor, t: Tensor) -> Iterator[None]:
    """Inside, policies act at these moments, both `[env]`; their observations are `[env, agent, ...]`."""
    token = _NOW.set(Clock(episode, t))
    try:
        yield
    finally:
        _NOW.reset(token)


def now(asking: str) -> Clock:
    """The moment.

    Raises:
        ConfigError: nobody has said it; `asking` says who wants to know.
    """
    clock = _NOW.get()
    if clock is None:
        raise ConfigError(
            f"{asking} has to know the episode and step of every copy, which nobody tells here: act inside `play` "
            "(evaluate, record, intervene), or inside `with marlnb.models.hooks.episode_context.at(episode, t):`"
        )
    return clock
