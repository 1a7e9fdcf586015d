"""`players.jsonl`: who joined a league, was copied, reset, frozen or retired, and when. Lines are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from marlnb.errors import RunError
from marlnb.populations.append_only import append_rows
from marlnb.populations.league.players import Player
from marlnb.training.runs.files import read_lines
from marlnb.training.runs.records import checked_record

PLAYERS = "players.jsonl"
MAX_ID = 200  # characters; it is the name of a folder
What = Literal["added", "snapshot", "published", "reset", "frozen", "retired"]


@dataclass(frozen=True)
class PlayerEvent:
    """What happened to one player.

    Attributes:
        event: added: a learning player joined. snapshot: the snapshot `player` of `parent` joined. published: the
            weights of a learning player, for the training runs of others. reset: it started again with fresh weights.
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
    return [
        event_from_row(row, f"{folder / PLAYERS}, line {k},") for k, row in enumerate(read_lines(folder / PLAYERS), 1)
    ]


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


def event_from_row(row: Mapping[str, Any], where: str) -> PlayerEvent:
    """The event in a line. Raises RunError, which starts with `where`: it is none, or no folder can have its names."""
    event = checked_record(row, PlayerEvent, where)
    for name in (event.player, event.parent or "none"):
        if not name or "/" in name or "\0" in name or name in (".", "..") or len(name) > MAX_ID:
            raise RunError(f"{where} is damaged: {name[:MAX_ID]!r} is not the id of a player")
    return event
