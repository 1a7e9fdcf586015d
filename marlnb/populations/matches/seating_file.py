"""match.json: who played a recorded match, so that its recordings open without anything else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.disk import write_atomically
from marlnb.errors import RunError
from marlnb.populations.evolution.lineage import MEMBERS, POPULATION
from marlnb.populations.matches.seating import match_sides, seatings
from marlnb.populations.run_league import LeaguePlayer
from marlnb.populations.run_population import PopulationMember
from marlnb.populations.training.league.files import LEAGUE
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.files import read_json
from marlnb.training.runs.run import Run, opened_run

MATCH, PLAYERS = "match.json", "players"


def write_players(folder: Path, first: PolicySource, second: PolicySource, iterations: tuple[int, int]) -> None:
    """Writes who played into a match's folder; nothing if a player is not in a run folder."""
    rows = [_row(source, iteration, folder) for source, iteration in zip((first, second), iterations)]
    if all(rows):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder / MATCH, json.dumps({"players": rows}, indent=2) + "\n")


def recorded_source(folder: Path, side: str, *, trust: bool = False) -> PolicySource | None:
    """Who acted in the recordings of a folder: a match's, a league's player's or a population member's; None: none.

    Args:
        folder: that holds `recordings/`.
        side: of the match's first player: the name of the recording.
        trust: allow the code that a run's folder names.
    Raises:
        RunError: a player's run, snapshot or member does not exist any more.
    """
    if (folder / MATCH).is_file():
        first, second = (_player(row, folder, trust) for row in read_json(folder / MATCH)["players"])
        for seating in seatings(first, second, match_sides(first[0], second[0]), folder):
            if seating.side.name == side:
                return seating
        raise RunError(f"{folder / MATCH} has no side {side!r}")
    run, kind = folder.parent.parent.parent, (folder.parent.parent.name, folder.parent.name)
    if kind == (LEAGUE, PLAYERS):
        return _inside(opened_run(run, trust=trust), {"player": folder.name})
    if kind == (POPULATION, MEMBERS):
        return _inside(opened_run(run, trust=trust), {"member": folder.name})
    return None


def _inside(run: Run, facts: Mapping[str, Any]) -> PolicySource:
    """A run, or the player of its league or the member of its population that `facts` name."""
    source: PolicySource = run
    if "player" in facts:
        source = run.league[facts["player"]]
    elif "member" in facts:
        source = run.population[facts["member"]]
    return source


def _row(source: PolicySource, iteration: int, folder: Path) -> dict[str, Any]:
    if isinstance(source, LeaguePlayer):
        run, facts = source.league.run.path, {"player": source.id}
    elif isinstance(source, PopulationMember):
        run, facts = source.population.run.path, {"member": source.id}
    elif isinstance(source, Run):
        run, facts = source.path, {}
    else:
        return {}
    # the system resolves links before "..", so that a path from a link leads elsewhere
    return {"run": os.path.relpath(run.resolve(), folder.resolve()), "checkpoint": iteration, **facts}


def _player(row: dict[str, Any], folder: Path, trust: bool) -> tuple[PolicySource, int]:
    try:
        run = opened_run((folder / row["run"]).resolve(), trust=trust)
        return _inside(run, row), int(row["checkpoint"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / MATCH} is damaged: {error}") from error
