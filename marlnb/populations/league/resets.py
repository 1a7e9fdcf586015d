"""Resets: which matches a player played with weights that it still has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from marlnb.populations.league.matches import Match
from marlnb.populations.league.player_log import PlayerEvent


@dataclass(frozen=True)
class Resets:
    """The last reset of each player.

    In one training run a match is valid for a player if it began in a later round than that of the reset. Training runs
    of single players have rounds of their own; there it is valid if the player's weights had learned from at least as
    many frames, since the first weights after a reset are written with the number of frames of the reset.

    Attributes:
        last: by player, the event.
        by_frames: compare frames, not rounds.
    """

    last: Mapping[str, PlayerEvent] = field(default_factory=dict)
    by_frames: bool = False

    @staticmethod
    def of(events: Iterable[PlayerEvent], by_frames: bool = False) -> Resets:
        """Of a league's events, oldest first."""
        return Resets({event.player: event for event in events if event.event == "reset"}, by_frames)

    def valid(self, match: Match) -> tuple[bool, ...]:
        """By side, whether its player has not been reset since."""
        resets = [self.last.get(player) for player in match.players.values()]
        if self.by_frames:
            return tuple(not reset or version >= reset.frames for reset, version in zip(resets, match.versions))
        return tuple(not reset or match.round > reset.round for reset in resets)
