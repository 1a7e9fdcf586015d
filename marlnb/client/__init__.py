"""The client of a simulator that runs in another process: it asks a training run for actions and reports rewards.

    from marlnb.client import Client, EpisodeOver, ServerGone

    with Client.connect("runs/mine") as client:
        episode = client.begin_episode()
        actions = episode.act({"player_0": observation})
        episode.reward({"player_0": 1.0})
        episode.end({"player_0": last_observation})

It needs only numpy and the standard library, so it runs in the simulator's own Python, and this folder may be copied
there. Nothing received is ever executed.
"""

from __future__ import annotations

from .agent import Agent
from .connection import Client, Episode
from .messages import (
    ClientError,
    ConnectionRefused,
    EpisodeOver,
    InvalidReport,
    ServerGone,
    WireError,
)

__all__ = [
    "Agent",
    "Client",
    "ClientError",
    "ConnectionRefused",
    "Episode",
    "EpisodeOver",
    "InvalidReport",
    "ServerGone",
    "WireError",
]
