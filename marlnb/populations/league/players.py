"""The sides of a match and the players of a league, as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from marlnb.errors import ConfigError

ANY_SIDE = ""
SNAPSHOT_MARK = "@"
ALL_BUT = "all-but-"


@dataclass(frozen=True)
class Side:
    """Agents that one player acts for in a match: a group of agents, or one seat of a symmetric game.

    Attributes:
        name: the group's name, or the agent's.
        agents: that belong to it.
    """

    name: str
    agents: tuple[str, ...]


def sides_to_take(sides: Sequence[Side]) -> list[Side]:
    """What the first of two players takes, where the second takes the rest: each side, and all but each.

    In a game of two sides, all but one is the other one. With more, one player is alone and the other is all the rest,
    so equal players do equally well only if both have been both.
    """
    choices = []
    for side in sides:
        choices.append(side)
        if len(sides) > 2:
            agents = tuple(agent for other in sides if other != side for agent in other.agents)
            choices.append(Side(f"{ALL_BUT}{side.name}", agents))
    return choices


def columns_of(sides: Sequence[Side], taken: Side) -> list[int]:
    """The indices of those sides that belong to what a player takes."""
    return [k for k, side in enumerate(sides) if set(side.agents) <= set(taken.agents)]


@dataclass(frozen=True)
class NewPlayer:
    """A player that joins a league. It learns, unless its weights come from another run.

    Attributes:
        id: unique in the league.
        role: what it is for, as "main"; `algorithms.main=...` and `models.main=...` set what it learns with.
        side: the only side that it plays; `ANY_SIDE`: it takes any seat of a symmetric game.
        parent: the player or snapshot whose weights it starts from; empty: fresh weights.
        with_snapshot: whether a snapshot of its first weights joins the league at once.
        run: folder of another run, from which its weights are copied when the league begins; empty: it learns here.
        run_player: the player or snapshot of that run's league; empty: the policies of the run itself.
    """

    id: str
    role: str
    side: str = ANY_SIDE
    parent: str = ""
    with_snapshot: bool = False
    run: str = ""
    run_player: str = ""


@dataclass(frozen=True)
class Player:
    """A player of a league, or a snapshot of one.

    Attributes:
        id: unique in the league; of a snapshot: `snapshot_id`.
        role: its role; of a snapshot: that of its parent.
        side: the only side that it plays, or `ANY_SIDE`.
        learning: whether its weights still change.
        parent: of a snapshot: the player it was taken of. Else the player whose weights it started from, or empty.
        born_at_frames: frames that the player had learned from when the snapshot was taken; 0 for a learning player.
        checkpoint: SHA-256 of the weights; None while it learns.
    """

    id: str
    role: str
    side: str = ANY_SIDE
    learning: bool = True
    parent: str = ""
    born_at_frames: int = 0
    checkpoint: str | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a copy of its parent, which may still learn."""
        return SNAPSHOT_MARK in self.id

    def takes(self, side: str) -> bool:
        """Whether it can play a side; any player can where no side is asked for."""
        return ANY_SIDE in (self.side, side) or self.side == side


def check_id(where: str, player: str) -> None:
    """Raises ConfigError unless a player's id has letters, digits, _ and - alone: it names folders and options."""
    if not re.fullmatch(r"\w[\w-]*", player, re.ASCII):
        raise ConfigError(
            f"{where}: a player's name has letters, digits, _ and - alone, and begins without -; got {player!r}"
        )


def snapshot_id(player: str, number: int) -> str:
    """The id of a player's snapshot, numbered from 0, as "main_0@3"."""
    return f"{player}{SNAPSHOT_MARK}{number}"
