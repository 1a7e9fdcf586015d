"""The files of a league in its run's folder: `league/matches.jsonl`, `league/players.jsonl` and `league/snapshots`.

Both lists only grow. A checkpoint holds their numbers of lines, to which a resumed training run cuts them back.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from marlnb.disk import writing
from marlnb.populations.append_only import cut_lines, sync_rows
from marlnb.populations.league.matches import MATCHES, Match, append_matches, read_matches
from marlnb.populations.league.player_log import (
    PLAYERS,
    PlayerEvent,
    append_events,
    players_after,
    read_events,
)
from marlnb.populations.league.players import Player
from marlnb.populations.league.resets import Resets
from marlnb.training.runs.files import LEAGUE as LEAGUE


class PlayerHistory:
    """Everybody who is or was in a league.

    Args:
        events: the lines of `players.jsonl`.
        by_frames: as of `Resets`.

    Attributes:
        events: the same, with those added since.
        playing: by id, the players that play, in the order in which they joined.
        known: by id, the same and those that have retired.
    """

    def __init__(self, events: Iterable[PlayerEvent] = (), *, by_frames: bool = False) -> None:
        self._by_frames = by_frames
        self.events: list[PlayerEvent] = []
        self.playing: dict[str, Player] = {}
        self.known: dict[str, Player] = {}
        self.replace(events)

    def replace(self, events: Iterable[PlayerEvent]) -> None:
        self.events = list(events)
        self.playing = players_after(self.events)
        self.known = players_after(event for event in self.events if event.event != "retired")

    def add(self, event: PlayerEvent) -> None:
        self.events.append(event)
        self.playing = players_after([event], self.playing)
        if event.event != "retired":
            self.known = players_after([event], self.known)

    @property
    def resets(self) -> Resets:
        return Resets.of(self.events, self._by_frames)

    def n_resets(self, player: str) -> int:
        return sum(event.event == "reset" and event.player == player for event in self.events)

    def n_snapshots(self, player: str) -> int:
        return sum(event.event == "snapshot" and event.parent == player for event in self.events)


class LeagueFiles:
    """Writes the files of one league.

    Attributes:
        folder: `<run>/league`.
        n_matches: lines of `matches.jsonl`.
        n_events: lines of `players.jsonl`.
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / LEAGUE
        self.n_matches = self.n_events = 0

    def add_matches(self, matches: list[Match]) -> None:
        append_matches(self.folder, matches)
        self.n_matches += len(matches)

    def add_event(self, event: PlayerEvent) -> None:
        append_events(self.folder, [event])
        self.n_events += 1

    def cut(self, n_matches: int, n_events: int) -> None:
        """Keeps the first lines of both files.

        Raises:
            RunError: they have fewer.
            DiskError: the disk refuses.
        """
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
        cut_lines(self.folder / MATCHES, n_matches)
        cut_lines(self.folder / PLAYERS, n_events)
        self.n_matches, self.n_events = n_matches, n_events

    def sync(self) -> None:
        """Makes the lines durable, before a checkpoint counts on them."""
        for name in (MATCHES, PLAYERS):
            sync_rows(self.folder / name)

    def events(self) -> list[PlayerEvent]:
        return read_events(self.folder)

    def matches(self) -> list[Match]:
        return read_matches(self.folder)
