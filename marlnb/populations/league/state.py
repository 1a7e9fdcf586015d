"""What a league knows at the start of a round, and the answers of a league's config: draws and decisions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.players import ANY_SIDE, NewPlayer, Player, Side

T = TypeVar("T")
Action = Literal["snapshot", "reset", "add", "freeze", "retire"]


@dataclass(frozen=True)
class Draw:
    """Whom a player meets in one episode.

    Attributes:
        kind: of the match, as "self_play"; matches are counted by it.
        opponents: a player's id for each of the other sides, in the order of `LeagueState.other_sides`.
    """

    kind: str
    opponents: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What happens to a player at the end of a round.

    A player's decisions are carried out in their order, so a snapshot before a reset has the weights before the reset.

    Attributes:
        action: snapshot: a copy of its weights joins the league. reset: it starts again with fresh weights. add:
            `new` joins the league. freeze: it plays, but no longer learns. retire: it neither learns nor plays.
        reason: shown in `players.jsonl`.
        player: whom it is about; empty: the player that was reviewed.
        new: the player to add.
    """

    action: Action
    reason: str = ""
    player: str = ""
    new: NewPlayer | None = None


@dataclass(frozen=True, eq=False)
class LeagueState:
    """A league at the start of a round. It stays as it is until the round ends.

    Attributes:
        sides: of every match.
        players: that play, by id, in the order in which they joined: learning ones, frozen ones and snapshots.
        payoff: results of the matches up to the end of the last round.
        frames: by learning player, the frames it has learned from.
        snapshot_frames: by learning player, its frames at its last snapshot; 0 before the first.
        planned_frames: frames that each learning player learns from in the whole training run.
        turn_frames: frames of a player's turn, from which it learns in one update.
        round: number of the round that begins.
    """

    sides: tuple[Side, ...]
    players: Mapping[str, Player]
    payoff: PayoffTable
    frames: Mapping[str, int]
    snapshot_frames: Mapping[str, int]
    planned_frames: int = 1_000_000
    turn_frames: int = 1
    round: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "payoff", self.payoff.add((), tuple(self.players)))  # all players have a row

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()`, remembered for the many draws of a round. It depends on this state and the key alone."""
        if key not in self._cache:
            self._cache[key] = compute()
        return cast(T, self._cache[key])

    @cached_property
    def _cache(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def learning(self) -> tuple[Player, ...]:
        """The players that learn."""
        return tuple(player for player in self.players.values() if player.learning)

    @cached_property
    def past(self) -> tuple[Player, ...]:
        """Snapshots and frozen players, the oldest first."""
        return tuple(player for player in self.players.values() if not player.learning)

    @property
    def is_symmetric(self) -> bool:
        """Whether players take any seat."""
        return all(player.side == ANY_SIDE for player in self.players.values())

    def past_of(self, side: str, *roles: str) -> tuple[Player, ...]:
        """Snapshots and frozen players that can play a side, of some roles or of all, the oldest first."""
        return self.cached(("past", side, roles), lambda: of_role(self.past, *roles, side=side))

    def learning_of(self, side: str, *roles: str) -> tuple[Player, ...]:
        """Learning players that can play a side, of some roles or of all."""
        return self.cached(("learning", side, roles), lambda: of_role(self.learning, *roles, side=side))

    def other_sides(self, player: Player) -> tuple[str, ...]:
        """For each other side of a match, its name; `ANY_SIDE` for each other seat of a symmetric game."""
        if player.side == ANY_SIDE:
            return (ANY_SIDE,) * (len(self.sides) - 1)
        return tuple(side.name for side in self.sides if side.name != player.side)

    def frames_since_snapshot(self, player: Player) -> int:
        return self.frames.get(player.id, 0) - self.snapshot_frames.get(player.id, 0)


def of_role(players: Iterable[Player], *roles: str, side: str = ANY_SIDE) -> tuple[Player, ...]:
    """The players that have one of the roles, or any role if none is named, and can play a side."""
    return tuple(player for player in players if (not roles or player.role in roles) and player.takes(side))
