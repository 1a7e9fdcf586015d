"""Leagues whose players are trained by several processes, which meet only through files.

Every training run has a run folder of its own, next to those of the others, and trains one player (`league.learner`).
At the end of a round it reads what the others have written since: results of their matches, snapshots, and the weights
that their players have now. None waits for another one, so a training run that is lost delays no other.

What a training run read is logged in `league/received.jsonl`, with the number of the round, before anything depends on
it. A training run that resumes, or is replayed, reads its log as far as it goes, and so draws and plays the same
matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marlnb.errors import ConfigError, RunError
from marlnb.populations.append_only import append_rows
from marlnb.populations.league.matches import MATCHES, Match, from_row, to_row
from marlnb.populations.league.player_log import PLAYERS, PlayerEvent, event_from_row
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.text_files import read_bytes
from marlnb.training.runs.files import EXPERIMENT, LEAGUE, is_run, parse_line, read_json, read_lines

RECEIVED = "received.jsonl"


@dataclass(frozen=True)
class Received:
    """What a training run read about the players of others at the end of a round.

    Attributes:
        matches: among the episodes of the others.
        events: of their players and snapshots.
    """

    matches: tuple[Match, ...]
    events: tuple[PlayerEvent, ...]


class OtherTrainings:
    """The training runs of the other players, as far as their files say.

    Args:
        run: folder of this training run; the others' are next to it.
        learner: whom this training run trains.
        snapshots: of this training run, to which those of the others are copied.
    """

    def __init__(self, run: Path, learner: str, snapshots: SnapshotStore) -> None:
        self._run, self._learner, self._snapshots = run, learner, snapshots
        self._offsets: dict[str, int] = {}  # bytes of each file that have been read
        self._logged = {row["round"]: row for row in read_lines(run / LEAGUE / RECEIVED)}
        self._players: dict[Path, str] = {}

    def read(self, round_number: int) -> Received:
        """What others wrote until the end of a round: as it is logged, or else all that is new now.

        Raises:
            ConfigError: another training run in this folder has the same player.
            CheckpointError: a snapshot cannot be copied.
            DiskError: the log cannot be written.
        """
        row = self._logged.pop(round_number, None)
        if row is None:
            row = self._now(round_number)
            append_rows(self._run / LEAGUE / RECEIVED, [row])
        self._offsets = dict(row["offsets"])
        return Received(tuple(map(from_row, row["matches"])), _events(row["events"], RECEIVED))

    def _now(self, round_number: int) -> dict[str, Any]:
        offsets, matches, events = dict(self._offsets), [], []
        for folder, player in self._others():
            for row in _new_lines(folder / LEAGUE / PLAYERS, offsets):
                event = event_from_row(row, str(folder / LEAGUE / PLAYERS))
                if event.round >= 0 and player == (event.parent if event.event == "snapshot" else event.player):
                    if event.checkpoint is not None:
                        self._snapshots.adopt(folder / LEAGUE, event.checkpoint)
                    events.append(asdict(event))
            for row in _new_lines(folder / LEAGUE / MATCHES, offsets):
                match = from_row(row)
                if match.learner == player:
                    matches.append(to_row(match))
        return {"round": round_number, "offsets": offsets, "matches": matches, "events": events}

    def _others(self) -> Iterator[tuple[Path, str]]:
        """The folders of the others, sorted, with the players that they train."""
        for folder in sorted(self._run.absolute().parent.iterdir()):
            if folder == self._run.absolute() or not is_run(folder):
                continue
            if folder not in self._players:
                self._players[folder] = _learner_of(read_json(folder / EXPERIMENT))
            player = self._players[folder]
            if player == self._learner:
                raise ConfigError(f"{folder} and {self._run} both train the player {player!r} of one league")
            if player:
                yield folder, player


def _learner_of(experiment: Mapping[str, Any]) -> str:
    league = experiment.get("league")
    return str(league.get("learner", "")) if isinstance(league, dict) else ""


def _new_lines(path: Path, offsets: dict[str, int]) -> list[dict[str, Any]]:
    """The whole lines after those that were read; `offsets` then counts them. None while a resumed one writes again."""
    key = f"{path.parent.parent.name}/{path.name}"
    start = offsets.get(key, 0)
    if not path.exists() or path.stat().st_size <= start:
        return []
    try:
        data = read_bytes(path, offset=start, follow=False)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    whole = data[: data.rfind(b"\n") + 1]
    offsets[key] = start + len(whole)
    return [parse_line(line, str(path)) for line in whole.decode(errors="replace").splitlines()]


def _events(rows: Iterable[Mapping[str, Any]], where: str) -> tuple[PlayerEvent, ...]:
    return tuple(event_from_row(row, where) for row in rows)
