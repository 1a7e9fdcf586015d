"""RunListing: the runs under some folders, each as one row, read again at the cost of what has changed.

It reads files only, imports nothing heavy and nothing that a folder names, and returns within a budget of time, so that
a panel shows the first rows of a thousand at once. A run that cannot be read is a row that says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from marlnb.display.formatting import count
from marlnb.errors import MarlnbError, RunError
from marlnb.paths import expanded
from marlnb.text_files import open_ordinary
from marlnb.training.runs.files import EXPERIMENT, LOCK, METRICS, STATUS, folder_problem, is_run, parse_line, read_json
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.metrics_rows import checked_row
from marlnb.training.runs.run_notes import NOTES, read_notes
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.training.runs.status import error_parts, read_status
from marlnb.training.shared_return import exploring_returns, scored_returns, shared_return

MAX_DEPTH = 6  # of subfolders that are searched
MAX_FOLDERS = 20_000
RESCAN_S = 5.0  # minimum time between two searches for new runs
RESCAN_FACTOR = 20  # a search of t seconds is repeated after at least this many times t
N_SAMPLES = 24  # points of a run's small curve
MAX_LINE_BYTES = 65_536
NOT_SEARCHED = {"checkpoints", "recordings", "cache", "node_modules", "site-packages", "__pycache__"}
ENDED = ("complete", "stopped", "failed")
FILES = (EXPERIMENT, STATUS, METRICS, NOTES)  # what a row shows
ENDED_FILES = (STATUS, NOTES)


@dataclass(frozen=True)
class RunSummary:
    """One run as a row of a table.

    Attributes:
        path: its folder. name: the folder relative to that which was searched. group: the name without its last part.
        state: as `Run.status` has it; "unreadable" if `problem` says why it cannot be read.
        env, algorithm, league, evolution: names; algorithm lists those of all groups. seed: of the experiment.
        frames, frames_total, frames_per_second, eta_s, host, updated: of its status.
        score: exploring return, the mean of one agent in the latest 100 or more training episodes; of the group or
            player `score_of` where they are rewarded differently. curve: the same along the training, at most
            `N_SAMPLES` values.
        returns: exploring return by group, where groups are rewarded differently, or by player, where those of
            one group play against each other; else empty.
        tags, note: of the user. problem: why a file cannot be read, or why the training failed.
    """

    path: str
    name: str
    group: str
    state: str
    env: str = ""
    algorithm: str = ""
    league: str = ""
    evolution: str = ""
    seed: int | None = None
    frames: int = 0
    frames_total: int | None = None
    frames_per_second: float | None = None
    eta_s: float | None = None
    host: str = ""
    updated: float | None = None
    score: float | None = None
    score_of: str = ""
    returns: dict[str, float] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    note: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class ListingChanges:
    """What is new since the last reading.

    Attributes:
        changed: runs that are new or have changed. removed: folders that are no runs any more.
        is_complete: whether every folder was searched and every run read; if not, read again.
        problems: what was not searched, and why.
    """

    changed: list[RunSummary]
    removed: list[str]
    is_complete: bool
    problems: list[str]


@dataclass(frozen=True)
class _Known:
    """What was read of a run last: its state, and the times and sizes of its files then."""

    folder: Path
    path: str
    times: dict[str, object] = field(default_factory=dict)
    state: str = ""


class RunListing:
    """The runs under some folders."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self.folders = [expanded(folder).absolute() for folder in folders]
        self._runs: dict[Path, _Known] = {}
        self._unchecked: list[Path] = []  # in this round, which may take several calls; the last one is next
        self._is_complete = False  # whether the last round is, so that the next call begins a new one
        self._search: Iterator[tuple[Path, Path] | None] | None = None
        self._search_started = self._search_s = 0.0
        self._next_search = -inf
        self._matches: dict[Path, Path] = {}
        self._problems: list[str] = []

    def read(self, budget_s: float = inf) -> ListingChanges:
        """What is new since the last call; at the first call, everything.

        Args:
            budget_s: seconds after which it returns with what it has read; the next call continues.
        """
        end = time.monotonic() + budget_s
        removed = self._find(end)
        if self._is_complete:
            self._unchecked = list(self._runs)[::-1]
        changed = []
        while self._unchecked:
            run = self._unchecked.pop()
            if run in self._runs and (row := self._read_changed(run)) is not None:
                if not is_run(run):  # deleted since the last search
                    del self._runs[run]
                    removed.append(run)
                else:
                    changed.append(row)
            if time.monotonic() > end:
                break
        self._is_complete = self._search is None and not self._unchecked
        return ListingChanges(changed, [str(run) for run in removed], self._is_complete, self._problems)

    def _read_changed(self, run: Path) -> RunSummary | None:
        """A run that is new or has changed; None: it has not."""
        known = self._runs[run]
        try:
            died = known.state in RUNNING_STATES and not is_locked(run / LOCK)
        except OSError:  # the row says why it cannot be read
            died = True
        if not died and _times(known.path, known.state) == known.times:
            return None
        times = _times(known.path)  # before the files are read, so that a change while they are is noticed
        row = summary(run, known.folder)
        shown = _shown_files(row.state)
        self._runs[run] = _Known(known.folder, known.path, {name: times[name] for name in shown}, row.state)
        return row

    def _find(self, end: float) -> list[Path]:
        """Searches for runs until `end`, and returns those that are gone once the search is complete."""
        if self._search is None and time.monotonic() >= self._next_search:
            self._search, self._matches, self._problems = self._walk(), {}, []
            self._search_started = time.monotonic()
        for match in self._search or ():
            if match is not None:
                self._matches.setdefault(*match)
                if match[0] not in self._runs:
                    self._runs[match[0]] = _Known(match[1], str(match[0]))
                    self._unchecked.append(match[0])
            if time.monotonic() > end:
                return []
        if self._search is None:
            return []
        self._search = None
        duration_s = time.monotonic() - self._search_started
        self._next_search = time.monotonic() + max(RESCAN_S, RESCAN_FACTOR * duration_s)
        removed = [run for run in self._runs if run not in self._matches]
        for run in removed:
            del self._runs[run]
        return removed

    def _walk(self) -> Iterator[tuple[Path, Path] | None]:
        """Runs with the folder that was searched; None after each folder without one."""
        n_folders, unreadable = 0, list[Path]()
        for root in self.folders:
            if problem := folder_problem(root):
                self._problems.append(f"{root} {problem}")
                continue
            pending = [(root, 0)]
            while pending:
                folder, depth = pending.pop()
                n_folders += 1
                if n_folders > MAX_FOLDERS:
                    self._problems.append(f"{MAX_FOLDERS:,} folders were searched, others not: choose fewer folders")
                    return
                yield (folder, root) if is_run(folder) else None
                try:
                    children = _subfolders(folder) if depth < MAX_DEPTH else []
                except PermissionError:
                    unreadable.append(folder)
                    continue
                pending += [(child, depth + 1) for child in reversed(children)]
        if unreadable:
            self._problems.append(f"{count(len(unreadable), 'folder')} may not be read, such as {unreadable[0]}")


def list_runs(folder: str | os.PathLike[str], problems: list[str] | None = None) -> list[RunSummary]:
    """The runs in a folder and its subfolders, by name.

    Args:
        problems: receives what was not searched, and why.
    Raises:
        RunError: there is no such folder, or it may not be read.
    """
    if problem := folder_problem(expanded(folder)):
        raise RunError(f"the folder {folder} {problem}; give one that contains runs")
    changes = RunListing([folder]).read()
    if problems is not None:
        problems += changes.problems
    return sorted(changes.changed, key=lambda run: run.name)


def summary(run: Path, folder: Path | None = None) -> RunSummary:
    """One run as a row; what cannot be read is its `problem`.

    Args:
        folder: the one that was searched; None: that which holds the run.
    """
    name = run.name if folder is None or run == folder else str(run.relative_to(folder))
    facts: dict[str, Any] = {"path": str(run), "name": name, "group": os.path.dirname(name), "state": "unreadable"}
    try:
        facts |= _experiment_facts(read_json(run / EXPERIMENT))
        facts |= _status_facts(read_status(run))
        facts |= _score_facts(run / METRICS)
        facts |= read_notes(run)
    except (OSError, MarlnbError) as error:
        facts["problem"] = str(error)
    return RunSummary(**facts)


def sampled_rows(path: Path, n_rows: int = N_SAMPLES) -> list[dict[str, Any]]:
    """Rows of `metrics.jsonl`, evenly spaced in the file, with the first and the last; its cost is bounded.

    Raises:
        RunError: a line is damaged. OSError: the file cannot be read.
    """
    if not path.exists():
        return []
    lines: list[bytes] = []
    with open_ordinary(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        first = len(file.readline(MAX_LINE_BYTES))
        length = 2 * max(first, _last_line_bytes(file, size, first)) + 256  # holds a whole line wherever it starts
        if size <= n_rows * length:
            file.seek(0)
            lines = [line for line in file.read(size).splitlines(keepends=True) if line.endswith(b"\n")]
            lines = [lines[k] for k in evenly_spaced(len(lines), n_rows)]
        else:
            for start in evenly_spaced(size - length + 1, n_rows):
                file.seek(start)
                chunk = file.read(length)
                complete = chunk[: chunk.rfind(b"\n") + 1].splitlines()
                lines += complete[1:][-1:] if start else complete[:1]  # the piece before the first end is cut off
    where = f"{path}: a line"
    return [checked_row(parse_line(line.decode("utf-8", "replace"), where), where, False) for line in lines]


def _last_line_bytes(file: BinaryIO, size: int, expected: int) -> int:
    """The length of the last complete line, or MAX_LINE_BYTES; lines of off-policy runs grow once learning starts."""
    length = 2 * expected + 256
    while length < min(size, 2 * MAX_LINE_BYTES):
        file.seek(size - length)
        lines = file.read(length).splitlines(keepends=True)
        complete = [line for line in lines[1:] if line.endswith(b"\n")]
        if complete:
            return len(complete[-1])
        length *= 2
    return min(size, MAX_LINE_BYTES)


def evenly_spaced(length: int, n: int) -> list[int]:
    """At most n indices in `[0, length)`, evenly spaced, with the first and the last."""
    if length <= n:
        return list(range(length))
    return [round(k * (length - 1) / (n - 1)) for k in range(n)]


def _experiment_facts(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """What an experiment's file says. It may come from anyone, so any value may have any type."""

    def name(value: Any) -> str:
        return str(value.get("name", "")) if isinstance(value, dict) else ""

    others = experiment.get("algorithms")
    names = [experiment.get("algorithm"), *(others.values() if isinstance(others, dict) else ())]
    seed, frames = experiment.get("seed"), experiment.get("frames")
    return {
        "env": name(experiment.get("env")),
        "algorithm": ", ".join(dict.fromkeys(filter(None, map(name, names)))),
        "league": name(experiment.get("league")),
        "evolution": name(experiment.get("evolution")),
        "seed": seed if type(seed) is int else None,
        "frames_total": frames if type(frames) is int else None,
    }


def _status_facts(status: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {key: status.get(key) for key in ("state", "frames", "updated")}
    facts["host"] = status.get("host") or ""
    if status.get("frames_total"):
        facts["frames_total"] = status["frames_total"]
    if status["state"] in RUNNING_STATES:
        facts |= {key: status.get(key) for key in ("eta_s", "frames_per_second")}
    if status["state"] == "failed":
        message, cause = error_parts(status.get("error", ""))
        facts["problem"] = (cause or message or "the training failed").splitlines()[0]
    return facts


def _score_facts(path: Path) -> dict[str, Any]:
    rows = [returns for row in sampled_rows(path) if any(map(_is_known, (returns := _returns(row)).values()))]
    if not rows:
        return {}
    group = "" if shared_return(rows[-1]) is not None else next(iter(rows[-1]))
    values = [row.get(group) if group else next(iter(row.values())) for row in rows]
    curve = [float(value) for value in values if _is_known(value)]
    last = {name: float(value) for name, value in rows[-1].items() if _is_known(value)}
    score = curve[-1] if curve else None
    return {"score": score, "score_of": group, "returns": last if group else {}, "curve": curve}


def _returns(row: Mapping[str, Any]) -> dict[str, float]:
    """The exploring returns; in a row of an older version, which has none, those of its own episodes."""
    return exploring_returns(row) or scored_returns(row)


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and isfinite(value)


def _times(run: str, state: str = "") -> dict[str, object]:
    """By file that a row shows, its time and size."""
    return {name: _stat(f"{run}{os.sep}{name}") for name in _shown_files(state)}


def _shown_files(state: str) -> tuple[str, ...]:
    """The files that change when a row does. Any change of a run that has ended also writes its status."""
    return ENDED_FILES if state in ENDED else FILES


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _subfolders(folder: Path) -> list[Path]:
    """Those that may hold runs, by name; hidden ones and links are not searched. Raises PermissionError."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and entry.name not in NOT_SEARCHED
                and entry.is_dir(follow_symlinks=False)
            ]
    except PermissionError:
        raise
    except OSError:
        return []
    return [folder / name for name in sorted(names)]
