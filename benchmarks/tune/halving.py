"""Successive halving: which training is next, and which settings have won, from the results so far alone.

Source: Jamieson and Talwalkar 2016 (arXiv:1502.07943), with random candidates around a known start, and ranked by the
worst seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SEARCH_SEED = 0  # of the random candidates
CHANGE_PROBABILITY = 0.5  # of each option of a candidate
MAX_DRAWS = 1000
MARKS_S = (10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0)

Options = tuple[str, ...]  # overrides, sorted


@dataclass(frozen=True)
class Rung:
    """A stage of the search.

    Attributes:
        budget_s: CPU-seconds of each training run.
        n_candidates: how many enter it: the best of the rung before.
        seeds: each candidate is trained with each of them.
    """

    budget_s: float
    n_candidates: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class SearchTask:
    """An environment, an algorithm, and the settings to try.

    Attributes:
        start: value by option, a good guess; the first candidate.
        alternatives: changes of the start that are tried next, before random ones.
        space: other values by option. Empty: the start is only compared with the options' own defaults.
        rungs: of the search.
        fixed: overrides of every training run that are no settings.
        episodes: of each scoring.
        marks_s: seconds of training at which it is scored before its end.
    """

    env: str
    algorithm: str
    start: Mapping[str, str]
    space: Mapping[str, tuple[str, ...]]
    rungs: tuple[Rung, ...]
    fixed: tuple[str, ...] = ()
    alternatives: tuple[Mapping[str, str], ...] = ()
    episodes: int = 200
    marks_s: tuple[float, ...] = MARKS_S

    @property
    def name(self) -> str:
        return f"{self.env} {self.algorithm}"


@dataclass(frozen=True)
class Trial:
    """One training run: a task's name, settings, a seed and a budget in CPU-seconds."""

    cell: str
    options: Options
    seed: int
    budget_s: float


def candidates(task: SearchTask, n: int) -> list[Options]:
    """The start, its alternatives and random changes; without a space the options' own defaults. At most `n`."""
    options = [_words({**task.start, **changes}) for changes in ({}, *task.alternatives)]
    if not task.space:
        return [*options, ()][:n]
    rng = random.Random(f"{task.name} {SEARCH_SEED}")
    for _ in range(MAX_DRAWS):
        if len(options) >= n:
            break
        changes = {name: rng.choice(values) for name, values in task.space.items() if rng.random() < CHANGE_PROBABILITY}
        if (drawn := _words({**task.start, **changes})) not in options:
            options.append(drawn)
    return options[:n]


def next_trial(task: SearchTask, results: Mapping[Trial, float]) -> Trial | None:
    """The first training run that the search still needs; None when it is complete."""
    return _search(task, results)[0]


def winner(task: SearchTask, results: Mapping[Trial, float]) -> Options | None:
    """The settings with the best worst seed in the last rung; None while the search is incomplete."""
    missing, ranked = _search(task, results)
    return ranked[0] if missing is None else None


def _search(task: SearchTask, results: Mapping[Trial, float]) -> tuple[Trial | None, Sequence[Options]]:
    """The next training run, and the candidates of the last complete rung, the best one first."""
    ranked = candidates(task, task.rungs[0].n_candidates)
    for rung in task.rungs:
        entrants = ranked[: rung.n_candidates]
        trials = {
            options: [Trial(task.name, options, seed, rung.budget_s) for seed in rung.seeds] for options in entrants
        }
        for each in trials.values():
            for trial in each:
                if trial not in results:
                    return trial, ranked
        worst = {options: min(results[trial] for trial in each) for options, each in trials.items()}
        ranked = sorted(entrants, key=worst.__getitem__, reverse=True)
    return None, ranked


def _words(options: Mapping[str, str]) -> Options:
    return tuple(sorted(f"{name}={value}" for name, value in options.items()))
