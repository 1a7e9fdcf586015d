"""Requests to a league, as files that any process can write: freeze or retire a player at the end of the round.

A file in `league/requests/` is one request. When a round ends, the training adds the request to `requests.jsonl`, with
the number of the round, and carries it out. A training run that resumes from before that round finds it there, and does
the same at the end of the same round: so a request changes nothing about exact resuming.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from marlnb.disk import writing
from marlnb.errors import ConfigError, RunError
from marlnb.league_config import LeagueConfig
from marlnb.populations.append_only import append_rows
from marlnb.populations.league.roster import check_draws
from marlnb.populations.league.state import LeagueState
from marlnb.training.runs.files import read_lines, write_atomically
from marlnb.training.runs.records import checked_record, read_record

REQUESTS, CARRIED_OUT = "requests", "requests.jsonl"
RequestAction = Literal["freeze", "retire"]


@dataclass(frozen=True)
class PlayerRequest:
    """What a user wants of a league.

    Attributes:
        action: freeze: the player plays, but no longer learns. retire: it neither learns nor plays.
        player: its id.
        reason: shown in `players.jsonl`.
        round: at whose end it was carried out; None: not yet.
    """

    action: RequestAction
    player: str
    reason: str = ""
    round: int | None = None


def request_of_player(folder: Path, action: RequestAction, player: str, reason: str = "") -> None:
    """Writes a request into a league's folder. Raises DiskError if the disk refuses it."""
    with writing(folder / REQUESTS):
        (folder / REQUESTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    write_atomically(folder / REQUESTS / name, json.dumps({"action": action, "player": player, "reason": reason}))


def pending_requests(folder: Path) -> dict[Path, PlayerRequest]:
    """By file, the requests that no training run has carried out yet, oldest first.

    Raises:
        RunError: a request is damaged.
    """
    requests = {}
    for path in sorted((folder / REQUESTS).glob("*.json")):
        try:
            requests[path] = read_record(path, PlayerRequest)
        except RunError:
            if path.exists():  # else a training run has just carried it out
                raise
    return requests


def requests_due(folder: Path, round_number: int) -> list[PlayerRequest]:
    """What is to be carried out at the end of this round: new requests, and those of a training run that it resumes.

    Raises:
        RunError: a request is damaged.
    """
    path = folder / CARRIED_OUT
    known = [checked_record(row, PlayerRequest, f"{path}, line {n},") for n, row in enumerate(read_lines(path), 1)]
    to_come = {(item.action, item.player) for item in known if item.round is not None and item.round >= round_number}
    for file, request in pending_requests(folder).items():
        if (request.action, request.player) not in to_come:
            known.append(PlayerRequest(request.action, request.player, request.reason, round_number))
            append_rows(path, [asdict(known[-1])])
        with writing(file):
            file.unlink(missing_ok=True)
    return [item for item in known if item.round == round_number]


def refused(request: PlayerRequest, config: LeagueConfig, league: LeagueState) -> str:
    """Why a league could not continue after a request; empty if it could."""
    player = league.players[request.player]
    changed = {**league.players, player.id: replace(player, learning=False)}
    if request.action == "retire":
        del changed[player.id]
    if config.learner:
        return "its players are trained by several training runs; stop that of the player, as with the file STOP"
    try:
        check_draws(config, replace(league, players=changed))
    except ConfigError as error:
        return str(error)
    return ""
