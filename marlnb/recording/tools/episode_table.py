"""The table of episodes of a damaged recording: checked against the rows, and rebuilt from them where it is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

import h5py
import numpy as np

from marlnb.recording.file.episode_index import seed_of
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.writer import EPISODE_COLUMNS

COLUMNS = (*EPISODE_COLUMNS, "finished", "return")
RETURN_TOLERANCE = 1e-4  # of the sum of the rewards' magnitudes; the recorder sums in the same order, in float32
Run = tuple[int, int, int]
"""(episode, start, stop): rows whose t counts up as within one episode."""


class DamageReport(Protocol):
    """The part of `Damage` that this module fills."""

    lost_episodes: set[int]
    lost_rows: int

    def add(self, problem: str) -> None: ...


def repair_table(file: h5py.File, n_rows: int, is_bad: np.ndarray, damage: DamageReport) -> None:
    """Leaves a table whose entries match the rows, and reports the episodes that are not intact.

    Args:
        is_bad: `[row]` bool, rows that are damaged.
    """
    number, t = file["steps/episode"][:n_rows], file["steps/t"][:n_rows]
    every = int(file.attrs["every"])
    runs = _runs(number, t, every)
    from_start = [run for run in runs if t[run[1]] == 0]
    try:
        table: Mapping[str, np.ndarray] | None = _read(file, n_rows)
    except (OSError, RuntimeError, KeyError, ValueError):
        table = None
    if table is None or not _matches_rows(table, from_start):
        damage.add("the table of episodes did not match the rows and was rebuilt")
        seeds = {} if table is None else dict(zip(table["episode"], table["seed"]))
        table = _from_rows(file, from_start, t, every, seeds)
        file.require_group("damaged")
        file.move("episodes", "damaged/episodes")
        for name, values in table.items():
            file[f"episodes/{name}"] = values
    n_rows = _cut_tail(file, table, runs, n_rows, damage)
    _report_lost(file, table, n_rows, is_bad, every, damage)


def _runs(number: np.ndarray, t: np.ndarray, every: int) -> list[Run]:
    if not len(number):
        return []
    continues = (np.diff(number) == 0) & (np.diff(t) == every)
    edges = [0, *(np.flatnonzero(~continues) + 1).tolist(), len(number)]
    return [(int(number[a]), a, b) for a, b in itertools.pairwise(edges)]


def _read(file: h5py.File, n_rows: int) -> dict[str, np.ndarray]:
    table = file["episodes"]
    columns = {name: table[name][:] for name in COLUMNS if name in table}
    columns.setdefault("finished", np.ones(len(columns["episode"]), bool))
    n_entries = min(len(values) for values in columns.values())
    columns = {name: values[:n_entries] for name, values in columns.items()}
    is_within = columns["start"] + columns["length"] <= n_rows
    return {name: values[is_within] for name, values in columns.items()}


def _matches_rows(table: Mapping[str, np.ndarray], runs: list[Run]) -> bool:
    """Whether the entries follow one another without gaps, with at most one interrupted episode after them."""
    order = np.argsort(table["start"], kind="stable")
    stops = (table["start"] + table["length"])[order]
    has_no_gaps = np.array_equal(table["start"][order], np.concatenate([[0], stops[:-1]])) if len(order) else True
    covered = int(stops[-1]) if len(order) else 0
    is_unique = len(np.unique(table["episode"])) == len(order)
    return bool(has_no_gaps) and is_unique and sum(start >= covered for _, start, _ in runs) <= 1


def _cut_tail(
    file: h5py.File, table: Mapping[str, np.ndarray], runs: list[Run], n_rows: int, damage: DamageReport
) -> int:
    """Cuts the rows after the last entry that are not of one interrupted episode; returns the remaining rows.

    In a recording of a training run it may have begun before the file, so that its first row is a later step.
    """
    covered = int((table["start"] + table["length"]).max(initial=0))
    interrupted = (run for run in runs if run[1] == covered and run[0] not in table["episode"])
    stop = max((stop for _, _, stop in interrupted), default=covered)
    if stop < n_rows:
        damage.add(f"the last {n_rows - stop:,} rows belong to no episode")
        damage.lost_rows += n_rows - stop
        for path in row_paths(file):
            file[path].resize(stop, axis=0)
    return stop


def _from_rows(
    file: h5py.File, runs: list[Run], t: np.ndarray, every: int, seeds: Mapping[int, int]
) -> dict[str, np.ndarray]:
    """The table rebuilt from the rows; where an episode's number occurs twice, the longer run counts.

    Args:
        seeds: by episode, in the old table; they count where the recording's own seed does not tell them.
    """
    longest: dict[int, Run] = {}
    for run in runs:
        number, start, stop = run
        _, known_start, known_stop = longest.get(number, (number, 0, 0))
        if stop - start > known_stop - known_start:
            longest[number] = run
    chosen = sorted(longest.values(), key=lambda run: run[1])
    n_agents = len(file["agents/name"])
    rewards, ended = _read_rewards(file, len(t)) if every == 1 else None, _ended(file, len(t))
    unknown = np.full(n_agents, np.nan)
    returns = [unknown if rewards is None else rewards[a:b].sum(axis=0, dtype=np.float64) for _, a, b in chosen]
    return {
        "episode": np.array([number for number, _, _ in chosen], np.int64),
        "start": np.array([a for _, a, _ in chosen], np.int64),
        "length": np.array([b - a for _, a, b in chosen], np.int64),
        "n_steps": np.array([t[b - 1] + 1 for _, _, b in chosen], np.int64),
        "seed": np.array([_seed(file, number, seeds) for number, _, _ in chosen], np.int64),
        "finished": np.array([ended[b - 1] for _, _, b in chosen], bool),
        "return": np.array(returns, np.float64).reshape(len(chosen), n_agents),
    }


def _seed(file: h5py.File, number: int, seeds: Mapping[int, int]) -> int:
    seed = seed_of(file, number)
    return int(seeds.get(number, -1)) if seed < 0 else seed


def _report_lost(
    file: h5py.File, table: Mapping[str, np.ndarray], n_rows: int, is_bad: np.ndarray, every: int, damage: DamageReport
) -> None:
    number, t = file["steps/episode"][:n_rows], file["steps/t"][:n_rows]
    rewards = _read_rewards(file, n_rows) if every == 1 else None
    is_covered = np.zeros(n_rows, bool)
    n_wrong_returns = 0
    for index, (episode, start, length) in enumerate(zip(table["episode"], table["start"], table["length"])):
        span = slice(int(start), int(start + length))
        is_covered[span] = True
        # one that began before the recording of a training run is unfinished, and its first row is a later step
        first_t = 0 if table["finished"][index] or not length else t[int(start)]
        expected_t = first_t + every * np.arange(length)
        is_counted = bool(np.all(number[span] == episode)) and np.array_equal(t[span], expected_t)
        adds_up = True
        if rewards is not None and table["finished"][index]:
            adds_up = _adds_up(rewards[span], table["return"][index])
        n_wrong_returns += int(is_counted and not adds_up)
        if not is_counted or not adds_up or is_bad[span].any():
            damage.lost_episodes.add(int(episode))
            damage.lost_rows += int(length)
    if n_wrong_returns:
        damage.add(f"the rewards of {n_wrong_returns} episodes do not add up to their returns")
    tail = np.flatnonzero(~is_covered)
    if len(tail) and is_bad[tail].any():
        damage.lost_episodes.add(int(number[tail[0]]))
        damage.lost_rows += len(tail)
    if damage.lost_episodes:
        damage.add(f"{len(damage.lost_episodes)} episodes are not intact and were dropped")


def _read_rewards(file: h5py.File, n_rows: int) -> np.ndarray | None:
    """`[row, recorded agent]`; None where a group's rewards are missing."""
    paths = [f"steps/{group}/reward" for group in _groups(file)]
    if not all(path in file for path in paths):
        return None
    return np.concatenate([file[path][:n_rows] for path in paths], axis=1)


def _adds_up(rewards: np.ndarray, returns: np.ndarray) -> bool:
    if not np.isfinite(returns).all():
        return True
    exact = rewards.astype(np.float64)
    allowed = RETURN_TOLERANCE * (1 + np.abs(exact).sum(axis=0))
    return bool((np.abs(exact.sum(axis=0) - returns) <= allowed).all())


def _ended(file: h5py.File, n_rows: int) -> np.ndarray:
    """`[row]`: whether the step terminated or truncated every recorded agent that was alive."""
    ended = np.ones(n_rows, bool)
    for group in _groups(file):
        paths = [f"steps/{group}/{name}" for name in ("truncated", "terminated", "alive")]
        if not all(path in file for path in paths):
            return np.zeros(n_rows, bool)
        truncated, terminated, alive = (file[path][:n_rows] for path in paths)
        ended &= (truncated | terminated | ~alive).all(axis=1)
    return ended


def _groups(file: h5py.File) -> list[str]:
    return list(dict.fromkeys(name.decode() for name in file["agents/group"][:]))
