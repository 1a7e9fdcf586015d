"""Leagues of one role: each side has learning players that meet themselves, and snapshots of the past."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.league_config import LeagueConfig
from marlnb.populations.league.draws import choose
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, Draw, LeagueState

MAIN = "main"
SNAPSHOT_SHARE = 0.05
"""Of a training run, between two snapshots, where no number of frames is given."""


@dataclass(frozen=True)
class HistoryLeague(LeagueConfig):
    """Players of the role "main", of which snapshots are taken at equal distances."""

    learners: int = option(1, help="learning players of each side", unit="players", ge=1, le=1000)
    names: tuple[str, ...] = option((), help="their names, one for each; none: main_0, main_1, …")
    snapshot_frames: int | None = option(
        None,
        help="frames that a player learns from between two snapshots; none: a twentieth of the training",
        unit="frames",
        ge=1,
    )

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        return new_players(MAIN, self.learners, sides, self.names, with_snapshot=True)

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        if league.frames_since_snapshot(player) >= frames_between(self.snapshot_frames, league, SNAPSHOT_SHARE):
            return (Decision("snapshot", reason="due"),)
        return ()


@dataclass(frozen=True)
class PastLeague(HistoryLeague):
    """Players that meet players of the past, and in a share of their matches the current ones."""

    past_kind: ClassVar[str] = "past"
    """The kind of a match against a player of the past."""

    self_play: float = option(
        0.0, help="share of the matches against the current players: itself, or those of the other sides", ge=0, le=1
    )

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        if rng.random() < self.self_play:
            return current_opponents(rng, player, league)
        opponents = []
        for side in league.other_sides(player):
            past = league.past_of(side)
            weights = league.cached((player.id, side), lambda: self.weights(player, past, league))  # noqa: B023
            opponents.append(choose(rng, past, weights))
        return Draw(self.past_kind, tuple(opponents))

    @abstractmethod
    def weights(self, player: Player, past: tuple[Player, ...], league: LeagueState) -> np.ndarray:
        """In proportion to the probability of each past opponent `[opponent]`, the oldest first."""


def new_players(
    role: str, n_players: int, sides: tuple[str, ...], names: Sequence[str] = (), *, with_snapshot: bool = False
) -> tuple[NewPlayer, ...]:
    """Players of a role for each side: `main_0`, `main_1`; for a side of its own `adversary_main_0`.

    Args:
        names: of the players, one for each, instead of `main_0`, `main_1`.
    Raises:
        ConfigError: there are fewer or more names than players.
    """
    if names and len(names) != n_players:
        raise ConfigError(
            f"names of the role {role!r} must be one for each of its players, {n_players}; got {', '.join(names)}"
        )
    names = names or [f"{role}_{k}" for k in range(n_players)]
    return tuple(
        NewPlayer(f"{side}_{name}" if side else name, role, side, with_snapshot=with_snapshot)
        for side in sides
        for name in names
    )


def current_opponents(rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
    """Self-play: the player itself in the other seats of a symmetric game; else a current main of each other side."""
    opponents = []
    for side in league.other_sides(player):
        current = (player,) if player.takes(side) else league.learning_of(side, MAIN)
        opponents.append(choose(rng, current or league.past_of(side, MAIN)))
    return Draw("self_play", tuple(opponents))


def frames_between(frames: int | None, league: LeagueState, share: float) -> int:
    """The given number of frames, or a share of what a player learns from in the whole training run."""
    return frames if frames is not None else max(1, int(share * league.planned_frames))
