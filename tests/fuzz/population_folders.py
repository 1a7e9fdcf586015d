"""Runs of a league and of an evolution, whose files are changed at random: shown, rated and opened as policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from marlnb.experiment import Experiment
from marlnb.plots.populations.league import payoff_map, ratings_over_time
from marlnb.plots.populations.lineage import lineage_tree
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from tests.fuzz.changed_folders import FolderTarget
from tests.fuzz.run_folders import show_panel

TINY = ("algorithm=ippo", "algorithm.epochs=1", "model.hidden=[4]", "n_envs=2", "rollout_steps=5", "keep_checkpoints=1")
LEAGUE = ("env=tests.populations.training.games:RockPaperScissors", "league=alphastar", "frames=80")
SPREAD = ("env=mpe/simple_spread", "env.N=2", "env.max_cycles=5", "frames=120")
EVOLUTION = ("evolution=tournament", "evolution.population=2", "evolution.generation_frames=10")


def league_folders(folder: Path) -> FolderTarget:
    """A target of changed runs of a league of four players, with snapshots and a request that has not been handled."""
    run = train(Experiment.compose(*LEAGUE, *TINY), folder / "original", progress=False)
    run.league.retire("league_exploiter_1", "a test")
    return FolderTarget(run.path, folder / "run", looks_at_league)


def evolution_folders(folder: Path) -> FolderTarget:
    """A target of changed runs of an evolution of two members."""
    run = train(Experiment.compose(*SPREAD, *EVOLUTION, *TINY), folder / "original", progress=False)
    return FolderTarget(run.path, folder / "run", looks_at_population)


def looks_at_league(folder: Path, with_widgets: bool) -> dict[str, Callable[[], Any]]:
    """Everything that is read of a league."""
    run = Run.open(folder)
    league = run.league
    looks: dict[str, Callable[[], Any]] = {
        "text": lambda: (repr(league), repr(league.summary())),
        "html": league._repr_html_,
        "players": lambda: [repr(player) for player in league.players.values()],
        "matches": lambda: [player.matches for player in league.players.values()],
        "ratings": lambda: (league.ratings()._repr_html_(), league.counts(), league.frames()),
        "requests": league.pending_requests,
        "report": league.report,
        "policies": lambda: league["main_0"].policies(),
        "snapshots": lambda: [snapshot.policies() for snapshot in league["main_0"].snapshots],
        "origin": lambda: league["main_0"].origin(),
    }
    slow = {
        "figures": lambda: _closed(payoff_map(league), ratings_over_time(league)),
        "panel": lambda: show_panel(run),
    }
    return {**looks, **slow} if with_widgets else looks


def looks_at_population(folder: Path, with_widgets: bool) -> dict[str, Callable[[], Any]]:
    """Everything that is read of an evolution."""
    run = Run.open(folder)
    population = run.population
    looks: dict[str, Callable[[], Any]] = {
        "text": lambda: (repr(population), [repr(member) for member in population.members]),
        "html": population._repr_html_,
        "table": lambda: population.to_frame().to_csv(),
        "ancestors": lambda: [population.ancestors(member.id) for member in population.members],
        "schedule": lambda: [member.schedule() for member in population.members],
        "experiments": lambda: (population.best.experiment, population.best.replay_experiment()),
        "policies": lambda: population.best.policies(),
        "figure": lambda: _closed(lineage_tree(population)),
    }
    return {**looks, "panel": lambda: show_panel(run)} if with_widgets else looks


def _closed(*figures: object) -> None:
    plt.close("all")
