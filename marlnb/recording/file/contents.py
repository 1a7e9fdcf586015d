"""Checks that an open file has the attributes and tables of a recording, so that reading them later cannot fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.checksums import how_to_repair
from marlnb.recording.file.layout import axis_names, is_bfloat16, row_paths

TEXTS = ("format", "experiment", "source", "spec", "settings", "checkpoint", "code_version", "dtype", "derived")
INTEGERS = ("version", "iteration", "seed", "every")
STEP_COLUMNS = ("t", "episode", "env_id")
EPISODE_COLUMNS = ("episode", "start", "length", "n_steps", "seed")
CHECKPOINT_COLUMNS = ("iteration", "row_start", "row_stop")
MAX_ROW = 2**60


def check_contents(file: h5py.File, path: Path) -> None:
    """Checks attributes, tables and the axes of every dataset with one row per step; reads no rows.

    Raises:
        RecordingError: something is missing or of another kind.
    """
    problem = _problem(file)
    if problem:
        raise RecordingError(f"{path} is damaged: {problem}; {how_to_repair(path)}")


def _problem(file: h5py.File) -> str:
    for name in (name for name in TEXTS if name in file.attrs):
        if not isinstance(file.attrs[name], str):
            return f"its attribute {name!r} is not text"
    for name in (name for name in INTEGERS if name in file.attrs):
        if not isinstance(file.attrs[name], (int, np.integer)):
            return f"its attribute {name!r} is not an integer"
    if not isinstance(file.attrs.get("complete"), (bool, int, np.bool_, np.integer)):
        return "it does not say whether it is complete"
    return (
        _column_problem(file, "agents", (), texts=("name", "group"))
        or _column_problem(file, "checkpoints", CHECKPOINT_COLUMNS, texts=("sha256",))
        or _column_problem(file, "episodes", EPISODE_COLUMNS)
        or next((text for name in STEP_COLUMNS if (text := _step_column_problem(file, name))), "")
        or _episode_problem(file)
        or _axis_problem(file)
        or _missing_rows(file)
    )


def _column_problem(file: h5py.File, table: str, integers: Sequence[str], *, texts: Sequence[str] = ()) -> str:
    """What is wrong with the columns of a table, which have one length."""
    lengths = set()
    for name in (*integers, *texts):
        column = file.get(f"{table}/{name}")
        if not isinstance(column, h5py.Dataset) or column.ndim != 1:
            return f"{table}/{name} is missing"
        if name in texts and h5py.check_string_dtype(column.dtype) is None:
            return f"{table}/{name} does not hold text"
        if name in integers and column.dtype.kind not in "iu":
            return f"{table}/{name} does not hold integers"
        lengths.add(len(column))
        if name in texts:
            [text.decode() for text in column[:]]
    return "" if len(lengths) == 1 else f"the columns of {table} differ in length"


def _step_column_problem(file: h5py.File, name: str) -> str:
    column = file.get(f"steps/{name}")
    is_column = isinstance(column, h5py.Dataset) and column.ndim == 1 and column.dtype.kind in "iu"
    return "" if is_column else f"steps/{name} is missing or does not hold integers"


def _episode_problem(file: h5py.File) -> str:
    table, n_agents = file["episodes"], len(file["agents/name"])
    n_episodes, returns = len(table["episode"]), table.get("return")
    if not isinstance(returns, h5py.Dataset) or returns.shape != (n_episodes, n_agents) or returns.dtype.kind != "f":
        return f"episodes/return does not hold {n_agents} returns for each of {n_episodes:,} episodes"
    if "finished" in table and table["finished"].shape != (n_episodes,):
        return "the columns of episodes differ in length"
    for name in ("start", "length", "n_steps", "episode"):
        values = table[name][:]
        if ((values < 0) | (values > MAX_ROW)).any():
            return f"episodes/{name} holds numbers that no recording has"
    firsts = file["checkpoints/row_start"][:]
    return "" if (firsts[1:] >= firsts[:-1]).all() else "checkpoints/row_start does not ascend"


def _missing_rows(file: h5py.File) -> str:
    """Of a file that says that it is complete; one that was interrupted may lack the rows of its last episodes."""
    if not file.attrs["complete"]:
        return ""
    starts, lengths = file["episodes/start"][:].astype(np.int64), file["episodes/length"][:].astype(np.int64)
    needed = int((starts + lengths).max(initial=0))
    if (lengths < 1).any():
        return "it is complete, but has episodes without rows"
    short = [path for path in row_paths(file) if len(file[path]) < needed]
    return f"it is complete, but {short[0]} lacks rows: it has {len(file[short[0]]):,} of {needed:,}" if short else ""


def _axis_problem(file: h5py.File) -> str:
    groups = [name.decode() for name in file["agents/group"][:]]
    for path in row_paths(file):
        dataset = file[path]
        if dataset.ndim < 1 or not (is_bfloat16(dataset) or dataset.dtype.kind in "biuf"):
            return f"{path} does not hold rows of numbers"
        group, agents = dataset.attrs.get("group", ""), dataset.attrs.get("agents", ())
        if group and group not in groups:
            return f"{path} belongs to a group {group!r} without agents"
        axes = dict(zip(axis_names(dataset), dataset.shape))
        n_agents = len(np.atleast_1d(agents)) or groups.count(group)
        if "agent" in axes and group and axes["agent"] != n_agents:
            return f"{path} has {axes['agent']} agents, and {group!r} has {n_agents}"
    return ""
