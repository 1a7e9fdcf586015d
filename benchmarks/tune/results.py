"""The state of a search: the settings that lead in each cell, their scores by seed, and the CPU-time that it took."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from benchmarks.table import markdown_table
from benchmarks.tune.halving import Cell, Options, Trial, winner
from benchmarks.tune.journal import Journal

HEADER = ("cell", "trainings", "CPU-seconds", "scores of the settings that lead, by seed", "other settings", "they are")


def results(cells: Sequence[Cell], journal: Journal) -> str:
    """A table in Markdown of the cells that have results, and the whole search's budget."""
    rows = [_row(cell, journal) for cell in cells if any(entry.trial.cell == cell.name for entry in journal.entries)]
    spent_s = sum(entry.total_cpu_s for entry in journal.entries)
    total = f"{len(journal.entries)} trainings, {spent_s / 3600:.2f} hours of one core with set-up and scoring."
    return f"{markdown_table(HEADER, rows)}\n\n{total}"


def _row(cell: Cell, journal: Journal) -> tuple[str, ...]:
    scores = {trial: score for trial, score in journal.results().items() if trial.cell == cell.name}
    spent_s = sum(entry.total_cpu_s for entry in journal.entries if entry.trial.cell == cell.name)
    chosen = winner(cell, scores)
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
        *(cell.name, f"{len(scores)}{state}", f"{spent_s:.0f}", f"{by_seed} after {budget_s:g} s"),
        *(_range(others), f"`{' '.join(chosen) or 'the defaults'}`"),
    )


def _is(trial: Trial, options: Options, budget_s: float) -> bool:
    return trial.options == options and trial.budget_s == budget_s


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = ("failed" if value == -inf else f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
