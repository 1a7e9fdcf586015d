"""What a search has found so far: the winners, their scores with seeds that the search did not use, and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.tune.halving import Cell, winner
from benchmarks.tune.journal import Entry, Journal
from benchmarks.tune.search import SHOWN_SEEDS

HEAD = "| cell | trainings | CPU-seconds | worst seed of the search | other seeds, greedy | settings |"


def results(cells: Sequence[Cell], journal: Journal) -> str:
    """A table in Markdown of the cells that have results."""
    rows = [_row(cell, entries) for cell in cells if (entries := _entries(cell, journal))]
    spent_s = sum(entry.total_cpu_s for entry in journal.entries)
    total = f"{len(journal.entries)} trainings in all, {spent_s / 3600:.2f} hours of one core with set-up and scoring."
    return "\n".join([HEAD, "| --- " * 6 + "|", *rows, "", total])


def _entries(cell: Cell, journal: Journal) -> list[Entry]:
    return [entry for entry in journal.entries if entry.trial.cell == cell.name]


def _row(cell: Cell, entries: Sequence[Entry]) -> str:
    scores = {entry.trial: entry.score if entry.score is not None else float("-inf") for entry in entries}
    spent = f"{sum(entry.total_cpu_s for entry in entries):.0f}"
    chosen = winner(cell, scores)
    if chosen is None:
        return f"| {cell.name} | {len(entries)} | {spent} | incomplete | | |"
    last = cell.rungs[-1]
    mine = {trial.seed: score for trial, score in scores.items() if trial.options == chosen}
    worst = min(mine[seed] for seed in last.seeds)
    shown = [mine[seed] for seed in SHOWN_SEEDS if seed in mine]
    text = f"{median(shown):.2f} ({', '.join(f'{score:.2f}' for score in shown)})" if shown else ""
    settings = f"`{' '.join(chosen)}`" if chosen else "the options' own defaults"
    return f"| {cell.name} | {len(entries)} | {spent} | {worst:.2f} | {text} | {settings} |"
