"""The state of a search: the settings that lead in each task, their scores by seed, and the CPU-time that it took."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from benchmarks.table import markdown_table
from benchmarks.tune.halving import Options, SearchTask, Trial, winner
from benchmarks.tune.journal import Journal

HEADER = ("task", "trainings", "CPU-seconds", "scores of the settings that lead, by seed", "other settings", "they are")


def results(tasks: Sequence[SearchTask], journal: Journal) -> str:
    """A table in Markdown of the tasks that have results, and the whole search's budget."""
    rows = [_row(task, journal) for task in tasks if any(entry.trial.cell == task.name for entry in journal.entries)]
    spent_s = sum(entry.total_cpu_s for entry in journal.entries)
    total = f"{len(journal.entries)} training runs, {spent_s / 3600:.2f} hours of one core with set-up and scoring."
    return f"{markdown_table(HEADER, rows)}\n\n{total}"


def _row(task: SearchTask, journal: Journal) -> tuple[str, ...]:
    scores = {trial: score for trial, score in journal.results().items() if trial.cell == task.name}
    spent_s = sum(entry.total_cpu_s for entry in journal.entries if entry.trial.cell == task.name)
    chosen = winner(task, scores)
    state = "" if chosen is not None else ", incomplete"
    if chosen is None:
        seeds = {
            trial.options: [s for other, s in scores.items() if other.options == trial.options] for trial in scores
        }
        chosen = max(seeds, key=lambda options: (len(seeds[options]), min(seeds[options])))
    budget_s = max(trial.budget_s for trial in scores if trial.options == chosen)
    mine = {trial.seed: score for trial, score in scores.items() if _is(trial, chosen, budget_s)}
    by_seed = ", ".join(f"{seed}: {score:.2f}" for seed, score in sorted(mine.items()))
    others = [score for trial, score in scores.items() if trial.options != chosen]
    return (
        *(task.name, f"{len(scores)}{state}", f"{spent_s:.0f}", f"{by_seed} after {budget_s:g} s"),
        *(_range(others), f"`{' '.join(chosen) or 'the defaults'}`"),
    )


def _is(trial: Trial, options: Options, budget_s: float) -> bool:
    return trial.options == options and trial.budget_s == budget_s


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = ("failed" if value == -inf else f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
