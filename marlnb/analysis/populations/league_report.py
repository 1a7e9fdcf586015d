"""league_report: what a league was worth, next to its control: self-play of PPO for equally many environment steps.

League and control play against each other, all seeds, and every measure comes with its interval over seeds. Self-play
with a large enough entropy bonus is hard to beat (Rudolph et al. 2026, arXiv:2502.08938), so a league without this
comparison shows nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np
import pandas as pd

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.analysis.populations.best_response import best_response
from marlnb.analysis.populations.league_report_result import LeagueReport, Measure
from marlnb.analysis.populations.round_robin import Results, round_robin
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.codec import to_json
from marlnb.disk import write_atomically
from marlnb.errors import AnalysisError, NoExactValueError
from marlnb.experiment import Experiment
from marlnb.populations.builders.history import MAIN
from marlnb.populations.builders.self_play import SelfPlayConfig
from marlnb.populations.exact_evaluation import exploitability, league_exploitability
from marlnb.populations.league.players import ANY_SIDE
from marlnb.populations.league.rating_history import evenly
from marlnb.populations.ratings.alpha_rank import alpha_rank, alpha_rank_of_two
from marlnb.populations.ratings.nash_averaging import max_entropy_strategy, relative_population_performance
from marlnb.populations.ratings.player_ratings import rate
from marlnb.populations.run_league import REPORT, LeaguePlayer, RunLeague
from marlnb.recording.tools.recorded_env import differing_options, in_words
from marlnb.training.runs.run import Run, opened_run
from marlnb.values import checked_number

RunsLike = Run | str | os.PathLike[str] | Sequence[Run | str | os.PathLike[str]]
CONTROL_ENTROPY = 0.05
CONTROL = "control/"  # before the names of the control's players
Key = tuple[str, float, str]  # of a measure: name, value without a difference, and whether "higher" is better
EQUAL = 0.5  # of two populations that are equally strong


def league_control(experiment: Experiment) -> Experiment:
    """The control of a league: self-play of PPO with an entropy bonus of 0.05, for the same number of steps.

    Networks, environment, seed and the other options of PPO are the league's.

    Source: Rudolph et al. 2026 (arXiv:2502.08938), whose best entropy bonus in phantom tic-tac-toe this is.
    Raises:
        AnalysisError: the experiment has no league.
    """
    rules = experiment.league
    if rules is None:
        raise AnalysisError("an experiment without league= needs no control")
    league = SelfPlayConfig(sides=rules.sides, win_threshold=rules.win_threshold, win_margin=rules.win_margin)
    ppo = experiment.algorithm if isinstance(experiment.algorithm, IPPOConfig) else IPPOConfig()
    ppo = replace(ppo, entropy_coef=CONTROL_ENTROPY)
    return replace(experiment, league=league, algorithm=ppo, algorithms={}, models={}, critics={}, tuned=None)


def league_report(
    runs: RunsLike,
    controls: RunsLike = (),
    *,
    players: int = 6,
    episodes: int = 60,
    response_steps: int | None = None,
    progress: bool = True,
) -> LeagueReport:
    """Compares leagues with their controls, one of each for every seed.

    Of each training run, the current main players and snapshots of all its players, evenly thinned, play every player
    of the other. The report is stored in the folders of the leagues, where `marlnb info` shows it.

    Args:
        runs: the league's runs, one for each seed.
        controls: as many runs of `league_control`, in the same order.
        players: of each training run that play, snapshots included.
        episodes: of each match.
        response_steps: environment steps of a best response to the main player of each training run, which is trained
            here (`best_response`); None: none is.
        progress: show which match is played.
    Raises:
        AnalysisError: a run has no league, the numbers of runs differ, they had different numbers of steps or other
            environments, or two leagues, or two controls, have the same seed.
        ConfigError: `players` is no whole number, or below 1.
    """
    players = checked_number(players, int, "players", ge=1)
    leagues, references = _leagues(runs), _leagues(controls)
    steps = _check(leagues, references)
    details: list[pd.DataFrame] = []
    measured: dict[Key, list[float]] = {}
    for number, league in enumerate(leagues):
        control = references[number] if references else None
        detail, values = _seed(league, control, players, episodes, progress)
        if response_steps is not None:
            values |= _responses(league, control, response_steps, progress)
        details.append(detail.assign(seed=number))
        for key, value in values.items():
            measured.setdefault(key, []).append(value)
    first = leagues[0]
    report = LeagueReport(
        env=first.run.spec.name,
        league=first.config.name,
        control=_described(references[0]) if references else "",
        env_steps=steps,
        response_steps=response_steps,
        measures=tuple(
            _measure(name, reference, better, values) for (name, reference, better), values in measured.items()
        ),
        players=pd.concat(details, ignore_index=True),
        n_seeds=len(leagues),
    )
    for league in leagues:
        write_atomically(league.folder / REPORT, json.dumps(report.to_json(), indent=2) + "\n")
    return report


def _seed(
    league: RunLeague, control: RunLeague | None, n_players: int, episodes: int, progress: bool
) -> tuple[pd.DataFrame, dict[Key, float]]:
    """The ratings of all players of one seed, and how the league compares with its control."""
    ours = _population(league, n_players)
    theirs = [] if control is None else _population(control, n_players)
    everyone = [*ours, *theirs]
    results = round_robin(everyone, episodes=episodes, progress=progress)
    names = (*(each.id for each in ours), *(CONTROL + each.id for each in theirs))
    sides = [each.player.side for each in everyone]
    ratings = rate(names, results.wins, results.games, results.games.astype(np.int64))
    detail = pd.DataFrame(
        {
            "player": names,
            "side": [side or "any" for side in sides],
            "elo": ratings.elo,
            "alpha_rank": population_shares(results, sides, alpha_rank, alpha_rank_of_two),
            "nash": population_shares(results, sides, _nash, _nash_of_two),
            "cyclic_share": ratings.cycles.share,
            "cyclic_p": ratings.cycles.p_value,
        }
    )
    values: dict[Key, float] = {}
    if theirs:
        values[("relative population performance", EQUAL, "higher")] = relative_performance(results, sides, len(ours))
        mains = [k for k, each in enumerate(everyone) if each.player.learning and each.player.role == MAIN]
        met = [(i, j) for i in mains for j in mains if i < len(ours) <= j and results.games[i, j]]
        if met:
            rates = [results.win_rates[cell] for cell in met]
            values[("win rate of the main against the control's", EQUAL, "higher")] = float(np.mean(rates))
    return detail, values | _exact(league, control)


def relative_performance(results: Results, sides: Sequence[str], n_ours: int) -> float:
    """How often the first `n_ours` players beat the others, if both populations mix as in equilibrium.

    Where sides have players of their own, the mean over who has which side.
    """
    values = []
    for side in dict.fromkeys(sides):
        rows = [k for k in range(n_ours) if sides[k] == side]
        columns = [k for k in range(n_ours, len(sides)) if side == ANY_SIDE or sides[k] != side]
        if rows and columns:
            values.append(relative_population_performance(results.win_rates[np.ix_(rows, columns)]))
    return float(np.mean(values))


def population_shares(
    results: Results,
    sides: Sequence[str],
    of_one: Callable[[np.ndarray], np.ndarray],
    of_two: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """A share of each player `[player]`: of one population in a symmetric game, else of each of two sides.

    NaN where there are more sides.
    """
    names = list(dict.fromkeys(sides))
    shares = np.full(len(sides), np.nan)
    if names == [ANY_SIDE]:
        return of_one(results.win_rates)
    if len(names) == 2:
        rows, columns = ([k for k, side in enumerate(sides) if side == name] for name in names)
        rates = results.win_rates[np.ix_(rows, columns)]
        shares[rows], shares[columns] = of_two(rates, 1 - rates)
    return shares


def _nash(win_rates: np.ndarray) -> np.ndarray:
    return max_entropy_strategy(2 * win_rates - 1)


def _nash_of_two(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return max_entropy_strategy(2 * rows - 1), max_entropy_strategy((2 * columns - 1).T)


def _exact(league: RunLeague, control: RunLeague | None) -> dict[Key, float]:
    """Differences of exact exploitability, as far as both have an exact value."""
    values: dict[Key, float] = {}
    if control is None:
        return values
    with suppress(NoExactValueError):
        last = exploitability(_mains(control))
        values["exploitability of the main minus the control's", 0.0, "lower"] = exploitability(_mains(league)) - last
        name = "exploitability of the league's Nash mixture minus the control's"
        values[name, 0.0, "lower"] = league_exploitability(league, "nash") - last
    return values


def _responses(league: RunLeague, control: RunLeague | None, steps: int, progress: bool) -> dict[Key, float]:
    """What best responses of equal budgets win against the mains."""
    ours = best_response(_main(league), env_steps=steps, progress=progress).win_rate.value
    if control is None:
        return {("win rate of a best response to the main", EQUAL, "lower"): ours}
    theirs = best_response(_main(control), env_steps=steps, progress=progress).win_rate.value
    return {("win rate of a best response: to the main minus to the control's", 0.0, "lower"): ours - theirs}


def _measure(name: str, reference: float, better: str, values: Sequence[float]) -> Measure:
    """A measure with its t interval over seeds, where their values differ."""
    test = paired_test(np.array(values))
    low, high = (test.low, test.high) if len(set(values)) > 1 else (None, None)
    return Measure(name, reference, better == "higher", tuple(values), test.mean, low, high)


def _population(league: RunLeague, n: int) -> list[LeaguePlayer]:
    """The learning players of the role main, and snapshots of all players, evenly thinned."""
    playing = [league[name] for name in league.history.playing]
    mains = [each for each in playing if each.player.learning and each.player.role == MAIN] or [
        each for each in playing if each.player.learning
    ]
    snapshots = [each for each in playing if each.player.is_snapshot]
    return [*mains, *(snapshots[k] for k in evenly(range(len(snapshots)), max(0, n - len(mains))))]


def _main(league: RunLeague) -> LeaguePlayer:
    return _population(league, 1)[0]


def _mains(league: RunLeague) -> LeaguePlayer | Run:
    """The main player, or the run, which acts by the first player of each side, where sides have their own."""
    main = _main(league)
    return main if main.player.side == ANY_SIDE else league.run


def _leagues(runs: RunsLike) -> list[RunLeague]:
    several = [runs] if isinstance(runs, (Run, str, os.PathLike)) else runs
    leagues = []
    for each in several:
        run = opened_run(each)
        if run.experiment.league is None:
            raise AnalysisError(
                f"{run.shown_path} has no league; a control is trained with mnb.league_control(experiment), which "
                "has one"
            )
        leagues.append(run.league)
    return leagues


def _check(leagues: Sequence[RunLeague], controls: Sequence[RunLeague]) -> int:
    """The environment steps of each training run."""
    if not leagues or (controls and len(leagues) != len(controls)):
        raise AnalysisError(f"a report compares one control with each league; got {len(leagues)} and {len(controls)}")
    frames = {league.run.shown_path: int(league.run.status()["frames"]) for league in (*leagues, *controls)}
    if len(set(frames.values())) > 1:
        listed = ", ".join(f"{path}: {steps:,}" for path, steps in frames.items())
        raise AnalysisError(f"leagues and controls are compared after equally many environment steps; got {listed}")
    envs = {league.run.shown_path: to_json(league.run.experiment.env) for league in (*leagues, *controls)}
    first = next(iter(envs.values()))
    differing = list(dict.fromkeys(chain.from_iterable(differing_options(first, env) for env in envs.values())))
    if differing:
        listed = ", ".join(f"{path} with {in_words(env, env.keys() & differing)}" for path, env in envs.items())
        raise AnalysisError(f"leagues and controls were trained in different environments: {listed}")
    for trainings in (leagues, controls):
        seeds = [league.run.experiment.seed for league in trainings]
        if len(set(seeds)) < len(seeds):
            listed = ", ".join(f"{each.run.shown_path} with {seed}" for each, seed in zip(trainings, seeds))
            raise AnalysisError(f"each league, and each control, needs a seed of its own; got {listed}")
    return next(iter(frames.values()))


def _described(control: RunLeague) -> str:
    algorithm = control.run.experiment.algorithm
    entropy = getattr(algorithm, "entropy_coef", None)
    bonus = "" if entropy is None else f", entropy bonus {entropy:g}"
    return f"{control.config.name} by {algorithm.name}{bonus}"
