"""`players.jsonl`: who joined a league, was copied, reset, frozen or retired, and when. Lines are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from marlnb.errors import RunError, unknown
from marlnb.populations.append_only import append_rows
from marlnb.populations.league.players import Player
from marlnb.training.runs.files import read_lines

PLAYERS = "players.jsonl"
What = Literal["added", "snapshot", "published", "reset", "frozen", "retired"]


@dataclass(frozen=True)
class PlayerEvent:
    """What happened to one player.

    Attributes:
        event: added: a learning player joined. snapshot: the snapshot `player` of `parent` joined. published: the
            weights of a learning player, for the trainings of others. reset: it started again with fresh weights.
            frozen: it no longer learns. retired: it no longer plays.
        player: its id.
        round: of the league, at whose end it happened; -1: before the first.
        frames: that the player, or the parent of a snapshot, had learned from.
        role: of the player.
        side: of the player.
        parent: as of `Player`.
        checkpoint: SHA-256 of the weights of a snapshot or frozen player.
        reason: of the decision.
    """

    event: What
    player: str
    round: int = -1
    frames: int = 0
    role: str = ""
    side: str = ""
    parent: str = ""
    checkpoint: str | None = None
    reason: str = ""


def read_events(folder: Path) -> list[PlayerEvent]:
    """The events in a league's folder, oldest first. An incomplete last line is skipped.

    Raises:
        RunError: another line is damaged.
    """
    return [_from_row(row) for row in read_lines(folder / PLAYERS)]


def append_events(folder: Path, events: Iterable[PlayerEvent]) -> None:
    """Adds lines, all of them at once."""
    append_rows(folder / PLAYERS, map(asdict, events))


def players_after(events: Iterable[PlayerEvent], before: Mapping[str, Player] | None = None) -> dict[str, Player]:
    """The players that play after these events, by id, in the order in which they joined.

    Args:
        events: oldest first.
        before: who played before them; None: no players.
    """
    players = dict(before or {})
    for event in events:
        if event.event in ("added", "snapshot"):
            learning = event.event == "added"
            born = 0 if learning else event.frames
            identity = (event.player, event.role, event.side, learning, event.parent)
            players[event.player] = Player(*identity, born_at_frames=born, checkpoint=event.checkpoint)
        elif event.event in ("frozen", "published"):
            saved = replace(players[event.player], checkpoint=event.checkpoint, born_at_frames=event.frames)
            players[event.player] = replace(saved, learning=event.event == "published")
        elif event.event == "retired":
            players.pop(event.player, None)
    return players


def last_resets(events: Iterable[PlayerEvent]) -> dict[str, int]:
    """By player, the round at whose end it was last reset."""
    return {event.player: event.round for event in events if event.event == "reset"}


def _from_row(row: Mapping[str, Any]) -> PlayerEvent:
    try:
        event = PlayerEvent(**row)
    except TypeError as error:
        raise RunError(f"a line of {PLAYERS} is not an event: {error}; got {str(row)[:200]}") from error
    if event.event not in get_args(What):
        raise RunError(f"a line of {PLAYERS}: {unknown('event', str(event.event), get_args(What))}")
    return event
