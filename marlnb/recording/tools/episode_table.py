"""The table of episodes of a damaged recording: checked against the rows, and made anew where it lies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Protocol

import h5py
import numpy as np

from marlnb.envs.vector import SEED_SPAN
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.writer import EPISODE_COLUMNS

COLUMNS = (*EPISODE_COLUMNS, "finished", "return")
RETURN_TOLERANCE = 1e-4  # of the sum of the rewards' magnitudes; they are added in the same order but for float32


class Told(Protocol):
    """What findings are told to."""

    lost_episodes: set[int]
    lost_rows: int

    def tell(self, what: str) -> None: ...


def mend_table(file: h5py.File, rows: int, bad: np.ndarray, findings: Told) -> None:
    """Leaves a table of which each entry lies where it says, and tells the episodes that are not whole.

    Args:
        bad: `[row]` bool, rows that are not to be trusted.
    """
    number, t = file["steps/episode"][:rows], file["steps/t"][:rows]
    every = int(file.attrs["every"])
    runs = _runs(number, t, every)
    try:
        table: Mapping[str, np.ndarray] | None = _read(file, rows)
    except (OSError, RuntimeError, KeyError, ValueError):
        table = None
    if table is None or not _lies_right(table, runs, rows):
        findings.tell("the table of episodes does not fit the rows; it has been made anew from them")
        table = _from_rows(file, runs, t, every)
        _replace(file, table)
    rows = _cut_tail(file, table, runs, rows, findings)
    _tell_lost(file, table, rows, bad, every, findings)


def _runs(number: np.ndarray, t: np.ndarray, every: int) -> list[tuple[int, int, int]]:
    """(episode, start, stop) of stretches of rows that count up from t = 0 as an episode does."""
    if not len(number):
        return []
    follows = (np.diff(number) == 0) & (np.diff(t) == every)
    edges = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(number)]
    return [(int(number[a]), a, b) for a, b in itertools.pairwise(edges) if t[a] == 0]


def _read(file: h5py.File, rows: int) -> dict[str, np.ndarray]:
    table = file["episodes"]
    found = {name: table[name][:] for name in COLUMNS if name in table}
    found.setdefault("finished", np.ones(len(found["episode"]), bool))
    n = min(len(values) for values in found.values())
    found = {name: values[:n] for name, values in found.items()}
    whole = found["start"] + found["length"] <= rows
    return {name: values[whole] for name, values in found.items()}


def _lies_right(table: Mapping[str, np.ndarray], runs: list[tuple[int, int, int]], rows: int) -> bool:
    """Whether the entries lie one after the other, and at most one episode, that broke off, after them."""
    order = np.argsort(table["start"], kind="stable")
    stops = (table["start"] + table["length"])[order]
    one_by_one = np.array_equal(table["start"][order], np.concatenate([[0], stops[:-1]])) if len(order) else True
    covered = int(stops[-1]) if len(order) else 0
    distinct = len(np.unique(table["episode"])) == len(order)
    return bool(one_by_one) and distinct and sum(start >= covered for _, start, _ in runs) <= 1


def _cut_tail(
    file: h5py.File, table: Mapping[str, np.ndarray], runs: list[tuple[int, int, int]], rows: int, findings: Told
) -> int:
    """Cuts rows behind the last entry that are not the beginning of one episode; returns how many rows there are."""
    covered = int((table["start"] + table["length"]).max(initial=0))
    stop = max((stop for _, start, stop in runs if start == covered), default=covered)
    if stop < rows:
        findings.tell(f"the last {rows - stop:,} rows belong to no episode")
        findings.lost_rows += rows - stop
        for path in row_paths(file):
            file[path].resize(stop, axis=0)
    return stop


def _from_rows(file: h5py.File, runs: list[tuple[int, int, int]], t: np.ndarray, every: int) -> dict[str, np.ndarray]:
    seed = int(file.attrs["seed"])
    longest: dict[int, tuple[int, int, int]] = {}
    for run in runs:
        if run[2] - run[1] > longest.get(run[0], (0, 0, 0))[2] - longest.get(run[0], (0, 0, 0))[1]:
            longest[run[0]] = run
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
        "seed": np.array([(seed + number) % SEED_SPAN for number, _, _ in chosen], np.int64),
        "finished": np.array([ended[b - 1] for _, _, b in chosen], bool),
        "return": np.array(returns, np.float64).reshape(len(chosen), n_agents),
    }


def _tell_lost(
    file: h5py.File, table: Mapping[str, np.ndarray], rows: int, bad: np.ndarray, every: int, findings: Told
) -> None:
    number, t = file["steps/episode"][:rows], file["steps/t"][:rows]
    rewards = _read_rewards(file, rows) if every == 1 else None
    covered = np.zeros(rows, bool)
    odd_returns = 0
    for place, (episode, start, length) in enumerate(zip(table["episode"], table["start"], table["length"])):
        span = slice(int(start), int(start + length))
        covered[span] = True
        right = np.all(number[span] == episode) and np.array_equal(t[span], every * np.arange(length))
        summed = rewards is not None and table["finished"][place]
        adds_up = not summed or _adds_up(rewards[span], table["return"][place])  # type: ignore[index]
        odd_returns += int(bool(right) and not adds_up)
        if not right or not adds_up or bad[span].any():
            findings.lost_episodes.add(int(episode))
            findings.lost_rows += int(length)
    if odd_returns:
        findings.tell(f"the rewards of {odd_returns} episodes do not add up to their returns")
    tail = np.flatnonzero(~covered)
    if len(tail) and bad[tail].any():
        findings.lost_episodes.add(int(number[tail[0]]))
        findings.lost_rows += len(tail)
    if findings.lost_episodes:
        findings.tell(f"{len(findings.lost_episodes)} episodes are not whole and are left out")


def _read_rewards(file: h5py.File, rows: int) -> np.ndarray | None:
    """`[row, recorded agent]`; None where they are not all recorded."""
    paths = [f"steps/{group}/reward" for group in _groups(file)]
    if not all(path in file for path in paths):
        return None
    return np.concatenate([file[path][:rows] for path in paths], axis=1)


def _adds_up(rewards: np.ndarray, told: np.ndarray) -> bool:
    if not np.isfinite(told).all():
        return True
    exact = rewards.astype(np.float64)
    allowed = RETURN_TOLERANCE * (1 + np.abs(exact).sum(axis=0))
    return bool((np.abs(exact.sum(axis=0) - told) <= allowed).all())


def _ended(file: h5py.File, rows: int) -> np.ndarray:
    """`[row]`, whether every recorded agent that lived was terminated or truncated by the step."""
    ended = np.ones(rows, bool)
    for group in _groups(file):
        fields = [f"steps/{group}/{name}" for name in ("truncated", "terminated", "alive")]
        if not all(path in file for path in fields):
            return np.zeros(rows, bool)
        truncated, terminated, alive = (file[path][:rows] for path in fields)
        ended &= (truncated | terminated | ~alive).all(axis=1)
    return ended


def _groups(file: h5py.File) -> list[str]:
    return list(dict.fromkeys(name.decode() for name in file["agents/group"][:]))


def _replace(file: h5py.File, table: Mapping[str, Any]) -> None:
    file.require_group("damaged")
    file.move("episodes", "damaged/episodes")
    for name, values in table.items():
        file[f"episodes/{name}"] = values
