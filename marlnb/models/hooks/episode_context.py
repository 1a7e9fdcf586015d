"""The episode and time step in which policies act.

Policies receive observations, not time. Edits with a time window, and patches from recordings, ask this module. The
code that steps the policies states it: `play` does, and code that calls `act` by hand uses `at`.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """

    episode: Tensor
    t: Tensor


_CURRENT: ContextVar[EpisodeContext | None] = ContextVar("marlnb_episode_context", default=None)


@contextmanager
def at(episode: Tensor, t: Tensor) -> Iterator[None]:
    """Inside the block, policies act at these episodes and steps, both `[env]`, on observations `[env, agent, ...]`."""
    token = _CURRENT.set(EpisodeContext(episode, t))
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
