"""CheckpointNotes: notes on a run's checkpoints, and their evaluations, stored with the run.

One JSON file, replaced as a whole. Entries belong to weights, by their hash: if an iteration is trained again with
another result, its checkpoint starts without notes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from math import isfinite
from typing import Any

from marlnb.codec import to_json
from marlnb.config import option
from marlnb.errors import ConfigError, RunError, shown
from marlnb.training.policies.evaluation import Evaluation
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.training.runs.lock import wait_for_lock
from marlnb.training.runs.records import checked_record
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which

NOTES = "checkpoint_notes.json"
MAX_TIME = 253_402_300_799.0  # the end of the year 9999, in seconds since 1970


@dataclass(frozen=True)
class _StoredEvaluation:
    """`Evaluation.to_json()`, the return of each episode by group, and when it was made."""

    env: str
    policy: str
    checkpoint: int
    episodes: int
    seed: int
    explore: bool
    return_mean: Mapping[str, float]
    return_se: Mapping[str, float | None]
    length_mean: float
    seconds: float
    score: float | None
    edits: list[Any]
    returns: Mapping[str, list[float | None]]
    made: float = option(help="seconds since 1970", ge=0, le=MAX_TIME)
    env_options: Mapping[str, Any] = option({}, help="of the environment; empty in files of earlier versions")
    opponent_returns: Mapping[str, Mapping[str, list[float | None]]] = option(
        {}, help="of each group whose agents play against each other: each agent's return of each episode"
    )

    def __post_init__(self) -> None:
        if not (self.return_mean and self.return_mean.keys() == self.return_se.keys() == self.returns.keys()):
            groups = [list(values) for values in (self.return_mean, self.return_se, self.returns)]
            raise ConfigError(f"return_mean, return_se and returns must be of the same groups; got {groups}")
        if not self.opponent_returns.keys() <= self.returns.keys():
            raise ConfigError(f"opponent_returns must be of groups of returns; got {list(self.opponent_returns)}")
        by_agent = [returns for agents in self.opponent_returns.values() for returns in agents.values()]
        for returns in (*self.returns.values(), *by_agent):
            if len(returns) != self.episodes:
                raise ConfigError(f"returns must have {self.episodes} values; got {len(returns)}")
        values = chain(self.return_mean.values(), self.return_se.values(), *self.returns.values(), *by_agent)
        if not all(value is None or isfinite(value) for value in values):
            raise ConfigError("returns must be finite numbers")


@dataclass(frozen=True)
class _Entry:
    """What the file has of one checkpoint."""

    iteration: int = 0
    note: str = ""
    evaluations: tuple[_StoredEvaluation, ...] = ()


class CheckpointNotes:
    """Notes and evaluations of a run's checkpoints.

    Attributes:
        run: whose checkpoints.
        path: the file; it exists once something has been stored.
    """

    def __init__(self, run: str | os.PathLike[str] | Run) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.path = self.run.path / NOTES

    def note(self, which: Which | Checkpoint = "last") -> str:
        """The note on a checkpoint; empty if there is none.

        Raises:
            CheckpointError: there is no such checkpoint.
            RunError: the file is damaged.
        """
        return self._of(which).note

    def write(self, which: Which | Checkpoint, text: str) -> None:
        """Replaces the note on a checkpoint; an empty text deletes it. Raises as `note`."""
        with self._changing(which) as entry:
            entry["note"] = text

    def evaluations(self, which: Which | Checkpoint = "last") -> list[dict[str, Any]]:
        """Stored evaluations of a checkpoint, oldest first: see `stored_form`."""
        return [asdict(evaluation) for evaluation in self._of(which).evaluations]

    def keep(self, evaluation: Evaluation) -> dict[str, Any]:
        """Stores an evaluation with its checkpoint. It replaces one of the same episodes under the same conditions.

        Raises:
            RunError: it does not belong to a checkpoint, like that of a random policy.
            As `note`.
        """
        if evaluation.checkpoint is None:
            raise RunError(f"an evaluation of the policy {evaluation.policy!r} does not belong to a checkpoint")
        data = stored_form(evaluation)
        with self._changing(evaluation.checkpoint) as entry:
            others = [old for old in entry["evaluations"] if not is_comparable(old, data)]
            entry["evaluations"] = [*others, data]
        return data

    def _of(self, which: Which | Checkpoint) -> _Entry:
        return self._read().get(self._checkpoint(which).sha256, _Entry())

    def _checkpoint(self, which: Which | Checkpoint) -> Checkpoint:
        return which if isinstance(which, Checkpoint) else self.run.checkpoint(which)

    def _read(self) -> dict[str, _Entry]:
        """The entries by hash."""
        stored = read_json(self.path) if self.path.exists() else {}
        entries = {key: checked_record(entry, _Entry, f"{self.path}, {key[:16]!r},") for key, entry in stored.items()}
        groups = {frozenset(one.return_mean) for entry in entries.values() for one in entry.evaluations}
        if len(groups) > 1:
            sets = shown(sorted(map(sorted, groups)))
            raise RunError(f"{self.path} is damaged: expected evaluations of the same groups; got {sets}")
        return entries

    @contextmanager
    def _changing(self, which: Which | Checkpoint) -> Iterator[dict[str, Any]]:
        """The entry of a checkpoint, written back at the end."""
        checkpoint = self._checkpoint(which)
        with wait_for_lock(self.path.with_name(f".{NOTES}.lock")):
            entries = self._read()
            entry = to_json(entries.get(checkpoint.sha256, _Entry()))
            yield entry
            changed = {**entry, "iteration": checkpoint.iteration}
            content = {**to_json(entries), checkpoint.sha256: changed}
            write_atomically(self.path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def stored_form(evaluation: Evaluation) -> dict[str, Any]:
    """`Evaluation.to_json()`, with `returns[group][episode]`; with `opponent_returns[group][agent][episode]` of groups
    whose agents play against each other, whose mean is always 0; and with the time."""
    table = evaluation.table
    agents = {group: table.spec.group(group).agents for group in table.zero_sum_groups}
    opponents = {group: dict(zip(names, table.returns[group].T.tolist())) for group, names in agents.items()}
    return to_json(
        {**evaluation.to_json(), "returns": table.to_json(), "opponent_returns": opponents, "made": time.time()}
    )


def is_comparable(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two evaluations played the same episodes in the same way, so that they can be compared one by one."""
    names = ("env", "env_options", "episodes", "seed", "explore", "edits")
    return all(first.get(name) == second.get(name) for name in names)
