"""The episode and time step in which policies act, and who is alive.

Policies receive observations, not time. Edits with a time window, patches from recordings and permuted channels ask
this module. The code that steps the policies states it: `play` does, and code that calls `act` by hand uses `at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor

from marlnb.errors import ConfigError


class EpisodeContext(NamedTuple):
    """The episode and step of each environment.

    Attributes:
        episode: `[env]` int64, the number of the episode that each environment plays; -1 where it does not count.
        t: `[env]` int64, the number of steps since that episode started.
        alive: by group, `[env, agent]` bool; all agents of a group that it lacks are alive.
    """

    episode: Tensor
    t: Tensor
    alive: Mapping[str, Tensor]


_CURRENT: ContextVar[EpisodeContext | None] = ContextVar("marlnb_episode_context", default=None)


@contextmanager
def at(episode: Tensor, t: Tensor, alive: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Inside the block, policies act at these episodes and steps, both `[env]`, on observations `[env, agent, ...]`.

    Args:
        alive: as in `EpisodeContext`; None: all agents are.
    """
    token = _CURRENT.set(EpisodeContext(episode, t, alive or {}))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def now(requester: str) -> EpisodeContext:
    """The current episode and step.

    Args:
        requester: what needs them, for the error message.
    Raises:
        ConfigError: no context is set.
    """
    context = _CURRENT.get()
    if context is None:
        raise ConfigError(
            f"{requester} needs the episode and step of every environment, which are not set here: act inside `play` "
            "(evaluate, record, intervene), or inside `with marlnb.models.hooks.episode_context.at(episode, t):`"
        )
    return context
