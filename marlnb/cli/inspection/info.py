"""Show what a run, a checkpoint or a recording contains.

Of a run with a league also its players, matches by kind, win rates and ratings; of a population its fittest member.

examples:
  marlnb info runs/spread
  marlnb info runs/spread/checkpoints/50
  marlnb info runs/spread/recordings/recording.h5 --json
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.cli.output import print_json, print_text
from marlnb.display.formatting import short_path
from marlnb.paths import expanded

MANIFEST = "manifest.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path, help="a run's folder, a checkpoint's folder or a recording")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the whole experiment")


def run(arguments: argparse.Namespace) -> None:
    path = expanded(arguments.path)
    if os.path.isfile(path / MANIFEST):
        facts = _checkpoint_facts(path)
    elif path.suffix in (".h5", ".hdf5") or os.path.isfile(path):
        facts = _recording_facts(path)
    else:
        facts = _run_facts(path)
    league = facts.pop("league", None)
    if arguments.json:
        return print_json(facts if league is None else {**facts, "league": league.to_json()})
    _print_facts({key: value for key, value in facts.items() if key != "experiment"})
    if league is not None:
        print_text(f"\n{league}")


def _run_facts(path: Path) -> dict[str, Any]:
    from marlnb.training.runs.run import Run

    run = Run.open(path)
    experiment = run.experiment
    groups = {}
    for group in run.spec.groups:
        actors = [experiment.models.get(agent, experiment.actor_of(group.name)).name for agent in group.agents]
        groups[group.name] = {
            "agents": group.n_agents,
            "observation": list(group.observation.shape),
            "action": group.action.kind,
            "algorithm": experiment.algorithm_of(group.name).name,
            "actor": ", ".join(dict.fromkeys(actors)),
        }
    return {
        "kind": "run",
        "path": run.shown_path,
        "environment": experiment.env.name,
        "seed": experiment.seed,
        "status": _status(run.status()),
        "groups": groups,
        "checkpoints": [checkpoint.iteration for checkpoint in run.checkpoints],
        "recordings": {name: short_path(file) for name, file in run.recordings.items()},
        "experiment": experiment.to_json(),
        **({} if experiment.league is None else _league_facts(run.league)),
        **({} if experiment.evolution is None else {"population": repr(run.population).strip("<>")}),
    }


def _league_facts(league: Any) -> dict[str, Any]:
    """The league at a glance, and what its last report says."""
    report = league.report()
    return {"league": league.summary(), **({} if report is None else {"league report": report["verdict"]})}


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    """A run's status with its time as text."""
    updated = status.get("updated")
    text = None
    if updated is not None:
        try:
            text = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(updated))
        except (OverflowError, ValueError, OSError):  # the file may hold any number
            text = f"{str(updated)[:40]} s after 1970"
    return {**status, "pid": str(status["pid"]) if "pid" in status else None, "updated": text}


def _checkpoint_facts(path: Path) -> dict[str, Any]:
    from marlnb.training.runs.checkpoints.checkpoint import Checkpoint

    checkpoint = Checkpoint.open(path)
    facts = {key: getattr(checkpoint, key) for key in ("iteration", "frames", "score", "returns", "sha256")}
    size_bytes = sum(file.stat().st_size for file in checkpoint.path.rglob("*") if file.is_file())
    return {"kind": "checkpoint", "path": str(checkpoint.path), **facts, "size_bytes": size_bytes}


def _recording_facts(path: Path) -> dict[str, Any]:
    from marlnb.recording.file.reader import Recording
    from marlnb.recording.file.segments import segment_paths

    with Recording.open(path) as recording:
        episodes, experiment = recording.episodes, recording.experiment
        return {
            "kind": "recording",
            "path": str(path),
            "environment": recording.spec.name,
            "complete": bool(recording.complete),
            "episodes": len(episodes),
            "steps": int(episodes["n_steps"].sum()),
            "recorded_steps": int(episodes["length"].sum()),
            "groups": {name: list(recording.group_agents(name)) for name in recording.groups},
            "sites": {name: list(recording[name].shape) for name in recording.sites},
            "size_bytes": sum(file.stat().st_size for file in (path, *segment_paths(recording.file, path))),
            "run": str(recording.run_path) if recording.run_path else None,
            "source": recording.source,
            "experiment": None if experiment is None else experiment.to_json(),
        }


def _print_facts(facts: Mapping[str, Any], indent: str = "") -> None:
    width = max((len(key) for key in facts), default=0)
    for key, value in facts.items():
        if isinstance(value, Mapping) and value:
            print_text(f"{indent}{key}")
            _print_facts(value, indent + "  ")
        else:
            print_text(f"{indent}{key:<{width}}  {_text(value)}")


def _text(value: object) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
