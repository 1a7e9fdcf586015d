"""Several runs as lines of one chart: each run, or the average of the runs that a pattern matches, of one metric."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.run_curves import average_curves
from marlnb.display.formatting import count, format_count, short_path
from marlnb.errors import MarlnbError, RunError, shown
from marlnb.paths import expanded
from marlnb.training.runs.comparable import read_settings, reasons_against_average
from marlnb.training.runs.curves import metric_values
from marlnb.training.runs.files import is_run
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.shared_return import earn_differently
from marlnb.widgets.core.curves import Line

RETURN = "return"
EVALUATED = "return, evaluated"
_PATTERN = re.compile(r"[*?\[]")
_UNREADABLE = (MarlnbError, OSError)  # what reading a run raises


@dataclass
class FollowedRun:
    """One run, read from where the last reading stopped.

    Attributes:
        lines: by metric, its values over frames; returns are "return of GROUP" and "return of GROUP, evaluated".
        earns_differently: whether its groups have different returns, so that there is no return of all agents.
        state: as `Run.status` has it.
        settings: as `read_settings` returns them.
    """

    run: Run
    lines: dict[str, Line] = field(default_factory=dict)
    earns_differently: bool = False
    state: str = "created"

    def __post_init__(self) -> None:
        self._follower = RunFollower(self.run)
        self.settings = read_settings(self.run.path)

    def read(self) -> None:
        """Raises RunError, OSError: the run cannot be read any more."""
        changes = self._follower.read()
        self.state = changes.status["state"]
        if changes.restarted:
            self.lines.clear()
            self.settings = read_settings(self.run.path)
        for row in changes.rows:
            self.earns_differently |= earn_differently(row.get("returns") or {})
            for name, value in _values(row).items():
                if value is not None and isfinite(value) and "frames" in row:
                    self.lines.setdefault(name, Line()).add([row["frames"]], [value])

    def line(self, metric: str) -> Line | None:
        """Its line of a metric of `metrics_of`; None before the first value."""
        suffix = metric.removeprefix(RETURN)
        if metric in (RETURN, EVALUATED):
            metric = next((name for name in self.lines if _is_return(name, suffix)), metric)
        return self.lines.get(metric)


@dataclass(frozen=True)
class ChartLines:
    """What a chart of several runs shows.

    Attributes:
        lines: by label, x, y, and where runs are averaged, low and high.
        metrics: that can be chosen.
        notes: sentences about each average, and why some runs are not averaged.
        states: of the runs.
    """

    lines: dict[str, Line]
    metrics: list[str]
    notes: list[str]
    states: list[str]


class FollowedRuns:
    """The runs of some folders and patterns.

    Args:
        entries: run folders, and patterns such as `runs/seed-*`, whose runs are averaged.
    Raises:
        RunError: an entry is no run, or matches none that can be read; or no list is given.
        ConfigError: an entry is a run whose experiment this kernel cannot read.
    """

    def __init__(self, entries: Sequence[str | os.PathLike[str] | Run]) -> None:
        given = list(entries) if isinstance(entries, Iterable) else None
        if given is None or not all(isinstance(each, str | os.PathLike | Run) for each in given):
            raise RunError(f"expected a run, its folder, or a list of these; got {shown(entries)}")
        self.entries = list(
            dict.fromkeys(each.shown_path if isinstance(each, Run) else os.fspath(each) for each in given)
        )
        if not self.entries:
            raise RunError('no runs were given; give folders or patterns, such as attach(["runs/a", "runs/seed-*"])')
        self._base = Path.cwd()  # of relative entries, also after the notebook changes its folder
        self._runs: dict[Path, FollowedRun] = {}
        for entry in self.entries:
            runs, problems = self._matches(entry)
            if not runs:
                unreadable = "".join(f" that can be read: {problem}" for problem in problems[:1])
                raise RunError(f"{entry} matches no run{unreadable or ' folder'}")

    def read(self, metric: str) -> ChartLines:
        """Reads what is new, and returns the lines of a metric. Runs that a pattern matches now are added."""
        lines: dict[str, Line] = {}
        notes: list[str] = []
        shown: dict[Path, FollowedRun] = {}
        members: dict[str, list[FollowedRun]] = {}
        for entry in self.entries:
            members[entry], problems = self._matches(entry)
            notes += problems
        for run in {each.run.path: each for runs in members.values() for each in runs}.values():
            try:
                run.read()
                shown[run.run.path] = run
            except _UNREADABLE as error:
                notes.append(str(error))
        metrics = _metrics_of(list(shown.values()))
        metric = metric if metric in metrics else (metrics or [RETURN])[0]
        for entry, runs in members.items():
            readable = [run for run in runs if run.run.path in shown]
            entry_lines, entry_notes = _entry_lines(entry, readable, metric)
            lines |= entry_lines
            notes += entry_notes
        return ChartLines(lines, metrics, notes, [run.state for run in shown.values()])

    def _matches(self, entry: str) -> tuple[list[FollowedRun], list[str]]:
        """The runs of an entry, and why some runs of a pattern cannot be read. New ones are opened; folders that are no
        runs are left out."""
        problems: list[str] = []
        folders = [self._base / expanded(entry)]
        if _PATTERN.search(entry) and not is_run(folders[0]):
            names = glob.glob(os.path.expanduser(entry), root_dir=self._base)
            folders = sorted((self._base / name for name in names), key=_natural)
            for folder in folders:
                try:
                    if folder not in self._runs and is_run(folder):
                        self._runs[folder] = FollowedRun(Run.open(folder))
                except _UNREADABLE as error:
                    problems.append(f"{short_path(folder)}: {error}")
        elif folders[0] not in self._runs:
            self._runs[folders[0]] = FollowedRun(Run.open(folders[0]))
        return [self._runs[folder] for folder in folders if folder in self._runs], problems


def _entry_lines(entry: str, runs: Sequence[FollowedRun], metric: str) -> tuple[dict[str, Line], list[str]]:
    """By label, the lines of an entry: its run, the average of its runs, or each of them, with sentences on that."""
    lines = [(run, run.line(metric)) for run in runs]
    known = [(run, line) for run, line in lines if line is not None]
    if len(runs) == 1:
        return {entry: known[0][1]} if known else {}, []
    reasons = reasons_against_average({run.run.shown_path: run.settings for run in runs})
    single = {run.run.shown_path: line for run, line in known}
    if reasons:
        return single, [f"{entry}: {reason}" for reason in reasons]
    if not known:
        return {}, []
    average = average_curves([(line.x, line.y) for _, line in known])
    if average is None:
        return single, [f"{entry}: {len(known)} runs have no frames in common, so they are not averaged"]
    label = f"{entry} ({count(len(known), 'run')})"
    ends = [[] if end is None else end.tolist() for end in (average.low, average.high)]
    line = Line(average.x.tolist(), average.value.tolist(), *ends)
    note = f"{entry}: interquartile mean of {len(known)} of {count(len(runs), 'run')} with its 95% interval over runs"
    if max(line.x[-1] for _, line in known) > average.x[-1]:
        note += f", up to where the slowest is: {format_count(average.x[-1])} frames"
    return {label: line}, [note]


def _values(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of a row of `metrics.jsonl` by metric."""
    returns = {f"return of {group}": value for group, value in (row.get("returns") or {}).items()}
    evaluated = {f"return of {group}, evaluated": value for group, value in (row.get("evaluation") or {}).items()}
    return {**returns, **evaluated, **metric_values(row)}


def _is_return(name: str, suffix: str) -> bool:
    return name.startswith("return of ") and name.endswith(", evaluated") == bool(suffix)


def _metrics_of(runs: Sequence[FollowedRun]) -> list[str]:
    """The metrics of some runs, returns first; where all groups of all runs earn the same, one return for all."""
    names = dict.fromkeys(name for run in runs for name in run.lines)
    returns = [name for name in names if name.startswith("return of ")]
    others = sorted(name for name in names if name not in returns)
    if not any(run.earns_differently for run in runs):
        kinds = {EVALUATED if name.endswith(", evaluated") else RETURN for name in returns}
        returns = [kind for kind in (RETURN, EVALUATED) if kind in kinds]
    return returns + others


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key that orders seed-2 before seed-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
