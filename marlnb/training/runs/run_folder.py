"""RunFolder: the files of one training run, read and written without torch. `Run` adds what needs the networks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from marlnb.composition.experiment_text import shortened_tuned_text
from marlnb.disk import append_line, problem_of, write_atomically
from marlnb.display.formatting import marlnb_command, short_path
from marlnb.display.notebook_html import facts_html
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import CheckpointError, RunError, nearest
from marlnb.experiment import Experiment
from marlnb.paths import expanded
from marlnb.specs import EnvSpec
from marlnb.text_files import read_text
from marlnb.training.runs.checkpoints.checkpoint import (
    Checkpoint,
    best_checkpoint,
    competing_groups,
    damaged_checkpoints,
    list_checkpoints,
)
from marlnb.training.runs.code import log_code
from marlnb.training.runs.files import (
    CODE,
    EVALUATIONS,
    EVENTS,
    EXPERIMENT,
    LEAGUE,
    LOCK,
    METRICS,
    PAUSE,
    POPULATION,
    SAVE,
    SPEC,
    STATUS,
    folder_problem,
    is_run,
    line_of,
    may_precede,
    read_json,
    read_lines,
    remove_temporaries,
)
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.other_runs import other_runs
from marlnb.training.runs.spec_file import spec_from_json, spec_to_json
from marlnb.training.runs.standalone import standalone
from marlnb.training.runs.states import RunState
from marlnb.training.runs.status import read_status, scores_text
from marlnb.trust import trust, trusted

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("checkpoints", "recordings")
Which = int | str
Folder = TypeVar("Folder", bound="RunFolder")


class RunFolder:
    """One training's folder.

    Attributes:
        path: the folder, absolute: a notebook may change its working folder while a training run writes here.
        experiment: what is trained.
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        """Use `create` or `open`."""
        self.path, self.experiment = path, experiment
        self._spec: EnvSpec | None = None

    @classmethod
    def create(cls: type[Folder], path: str | os.PathLike[str], experiment: Experiment) -> Folder:
        """A new run folder, readable by its owner alone.

        It may exist if it is empty, or holds only what a batch job writes before a run starts, or what a killed process
        left that was creating it: `experiment.json` is written last, and makes it a run. The code that the experiment
        names is trusted from now on (`marlnb.trust`).

        Raises:
            RunError: it holds something else, or cannot be created.
            TrustError: the experiment was read from a folder whose code the user does not trust.
        """
        experiment = standalone(experiment.loaded())
        folder = expanded(path).absolute()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            remove_temporaries(folder, [EXPERIMENT])
            present = [name for name in sorted(os.listdir(folder)) if not _may_precede(folder / name)]
        except OSError as error:
            raise RunError(f"{short_path(folder)} cannot be created: {problem_of(error, folder)}") from error
        if present:
            if EXPERIMENT in present:
                raise RunError(
                    f"{short_path(folder)} exists already and is a run: resume it with resume or "
                    f"`{marlnb_command('resume', short_path(folder))}`, open it with Run.open, or choose another name"
                )
            raise RunError(
                f"{short_path(folder)} exists already and holds {', '.join(present[:5])}; choose another name"
            )
        try:
            for name in PARTS:
                (folder / name).mkdir(mode=0o700, exist_ok=True)
            write_atomically(folder / EXPERIMENT, json.dumps(experiment.to_json(), indent=2) + "\n")
        except OSError as error:
            raise RunError(f"{short_path(folder)} cannot be created: {problem_of(error, folder)}") from error
        created = cls(folder, experiment)
        if problem := trust_training(experiment, folder):
            created.log_event(f"other processes will ask before they import what this experiment names: {problem}")
        return created

    @classmethod
    def open(cls: type[Folder], path: str | os.PathLike[str], *, trust: bool = False) -> Folder:
        """An existing run folder. Nothing that it names is imported; what needs its code asks for trust.

        Args:
            trust: allow the code that the folder names, and remember it. Folders of the user's own training runs need
                none.
        Raises:
            RunError: it is not a run, or its experiment cannot be read.
        """
        folder = expanded(path).absolute()
        if not is_run(folder):
            problem = folder_problem(folder) or f"has no {EXPERIMENT}"
            raise RunError(f"{short_path(folder)} is not a run folder: it {problem}{_nearby_runs(folder)}")
        opened = cls(folder, Experiment.from_json(read_json(folder / EXPERIMENT), origin=str(folder)))
        if trust:
            opened.trust()
        return opened

    def trust(self) -> None:
        """Allows the code that this folder names to run on this machine, in this and later processes.

        That includes the code named by runs whose policies are `frozen` in it.
        """
        _trust(self, set())

    @property
    def shown_path(self) -> str:
        """The folder as one types it, for messages."""
        return short_path(self.path)

    def discard_unstarted(self) -> None:
        """Deletes a run in which nothing was trained or recorded; other files in the folder stay."""
        parts = [self.path / name for name in PARTS]
        if read_lines(self.path / METRICS) or any(os.listdir(part) for part in parts):
            return
        for name in (LEAGUE, POPULATION, *self.experiment.loggers):  # what they write before the first iteration
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in (METRICS, SPEC, CODE, STATUS, EVENTS, LOCK, PAUSE, SAVE, EXPERIMENT):
            (self.path / name).unlink(missing_ok=True)
        for folder in (*parts, self.path):
            with suppress(OSError):  # it holds a batch job's files
                folder.rmdir()

    def __repr__(self) -> str:
        status = self.status()
        scores = scores_text(status)
        progress = f"{status['state']}, {status.get('frames', 0):,} frames{f', {scores}' if scores else ''}"
        return f"{type(self).__name__}({self.shown_path!r}, {self.experiment.env.name}, {progress})"

    def _repr_html_(self) -> str:
        status, checkpoints = self.status(), [str(checkpoint.iteration) for checkpoint in self.checkpoints]
        damaged, scores = self.damaged_checkpoints, scores_text(status)
        facts = {
            "state": f"{status['state']}, {status.get('frames', 0):,} of {self.experiment.frames:,} frames",
            **({"mean return of one agent": scores.removeprefix("return ")} if scores else {}),
            "settings": shortened_tuned_text(self.experiment),
            "checkpoints": ", ".join([*checkpoints, *(f"{number} (damaged)" for number in damaged)]) or "none",
            "recordings": ", ".join(self.recordings) or "none",
        }
        title = f"{type(self).__name__} {self.shown_path}: {self.experiment.env.name}, {self.experiment.algorithm.name}"
        return facts_html(title, facts)

    @property
    @closing_pools()
    def spec(self) -> EnvSpec:
        """The environment's spec when the run started. If it has not started, an environment is built to get it."""
        file = self.path / SPEC
        if self._spec is None and file.exists():
            self._spec = spec_from_json(read_json(file))
        if self._spec is None:
            from marlnb.envs.regroup import build_env  # imports torch

            with build_env(self.experiment, 1) as env:
                self._spec = env.spec
        return self._spec

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints, oldest first."""
        return list_checkpoints(self.path / "checkpoints")

    @property
    def damaged_checkpoints(self) -> dict[int, str]:
        """By iteration, why a checkpoint cannot be opened; empty if all can."""
        return damaged_checkpoints(self.path / "checkpoints")

    def checkpoint(self, which: Which = "last") -> Checkpoint:
        """One checkpoint: "last", "best" (highest mean return when it was saved) or its iteration.

        Where groups are rewarded differently, as hunters and prey, no checkpoint is best for all of them:
        "best:adversary" is the best of one group.

        Raises:
            CheckpointError: there is no such checkpoint; the message lists the existing ones. Or "best" without a
                group where groups are rewarded differently. Or "last" or "best", and the newest checkpoint is damaged:
                an older one is used only if its iteration is given.
            ConfigError: "best" of a group that does not exist.
        """
        checkpoints = self.checkpoints
        if str(which).partition(":")[0] in ("last", "best"):
            self._check_newest(checkpoints)
        if which == "last" and checkpoints:
            return checkpoints[-1]
        name, _, group = str(which).partition(":")
        best = self._best(checkpoints, group) if name == "best" else None
        if best is not None:
            return best
        if str(which).isdecimal() and (self.path / "checkpoints" / str(which)).is_dir():
            return Checkpoint.open(self.path / "checkpoints" / str(which))
        if not checkpoints:
            raise CheckpointError(f"no checkpoint {which!r} in {self.shown_path}: it has no complete checkpoints")
        iterations = ", ".join(str(checkpoint.iteration) for checkpoint in checkpoints)
        if name == "best":
            raise CheckpointError(
                f"no checkpoint {which!r} in {self.shown_path}: when they were saved, no episode had ended, or with "
                f"evaluate_every none was evaluated, so none has a return; valid: last or one of: {iterations}"
            )
        raise CheckpointError(
            f"no checkpoint {which!r} in {self.shown_path}; valid: last, best or one of: {iterations}"
        )

    def _check_newest(self, checkpoints: list[Checkpoint]) -> None:
        """Raises CheckpointError if the newest checkpoint is damaged."""
        newest = checkpoints[-1].iteration if checkpoints else -1
        damaged = damaged_checkpoints(self.path / "checkpoints", after=newest)
        if damaged:
            number = max(damaged)
            iterations = ", ".join(str(checkpoint.iteration) for checkpoint in checkpoints) or "none"
            raise CheckpointError(
                f"the newest checkpoint of {self.shown_path}, {number}, is damaged, and no other was used instead: "
                f"{damaged[number]}; give the iteration of one that can be read: {iterations}"
            )

    def _best(self, checkpoints: list[Checkpoint], group: str) -> Checkpoint | None:
        competing = competing_groups(checkpoints)
        if group:
            self.spec.group(group)
            return best_checkpoint(checkpoints, group if competing else None)
        if competing:
            choices = " or ".join(f"'best:{name}'" for name in competing)
            raise CheckpointError(
                f"no checkpoint 'best' in {self.shown_path}: its groups are rewarded differently, so none is best for "
                f"all of them; valid: {choices}, 'last' or an iteration"
            )
        return best_checkpoint(checkpoints)

    @property
    def recordings(self) -> dict[str, Path]:
        """Files in `recordings/` by name."""
        paths = sorted((self.path / "recordings").glob("*.h5"))
        return {path.stem: path for path in paths if path.is_file()}

    def metrics(self) -> pd.DataFrame:
        """One row per iteration, in order. Nested names are joined by `/`, for example `returns/agent`."""
        import pandas as pd

        return pd.json_normalize(read_rows(self.path / METRICS), sep="/")

    def append_metrics(self, row: dict[str, Any]) -> None:
        self._append(METRICS, row)

    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations during training, oldest first.

        Each has the iteration, frames and seconds of training at that time, and the returns of its episodes by group:
        `returns[group][episode]`, an agent's undiscounted sum of rewards, averaged over the group's agents.
        """
        return read_rows(self.path / EVALUATIONS)

    def append_evaluation(self, row: dict[str, Any]) -> None:
        self._append(EVALUATIONS, row)

    def begin(self, iteration: int) -> dict[str, Any]:
        """Prepares the files for a training run from this iteration on, and records the code that trains.

        Returns:
            the iteration's row of metrics; empty if there is none.
        """
        row = self.cut_metrics(iteration)
        log_code(self.path, self.experiment, iteration)
        return row

    def cut_metrics(self, iteration: int) -> dict[str, Any]:
        """Drops the rows after `iteration`, and a line that a kill left incomplete. Returns as `begin`."""
        for name in (EVALUATIONS, METRICS):  # the metrics last, whose row is returned
            rows = {row["iteration"]: row for row in read_rows(self.path / name) if row["iteration"] <= iteration}
            text = "".join(line_of(rows[key]) + "\n" for key in sorted(rows))
            if text or name == METRICS or (self.path / name).exists():
                write_atomically(self.path / name, text)
        return rows.get(iteration, {})

    def status(self) -> dict[str, Any]:
        """state, frames, frames_per_second, eta_s, pid, host, updated (seconds since 1970); as far as known.

        state is interrupted if a training run ended without reporting it, for example after a kill.
        """
        return read_status(self.path)

    def write_status(self, state: RunState, **facts: Any) -> None:
        """Replaces `status.json` atomically; on a full disk, in the space that it has.

        Args:
            facts: what `status` returns; pid, host and updated are those of this process and time unless given.
        """
        identity = {"pid": os.getpid(), "host": socket.gethostname(), "updated": time.time()}
        text = json.dumps({"state": state, **facts, **(identity | facts)}) + "\n"
        write_atomically(self.path / STATUS, text, sync=False, in_place=True)

    def events(self) -> list[str]:
        """Lines of `events.log`, oldest first."""
        file = self.path / EVENTS
        try:
            return read_text(file, errors="replace", follow=False).splitlines() if file.exists() else []
        except OSError as error:
            raise RunError(f"{file} cannot be read: {error.strerror or error}") from error

    def log_event(self, text: str) -> None:
        """Adds a line with the time to `events.log`."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        append_line(self.path / EVENTS, f"{stamp} {text}")

    def write_spec(self, spec: EnvSpec) -> None:
        """Stores the environment's spec, which must be the same at every resume.

        Raises:
            RunError: the environment has changed since the run started.
        """
        if (self.path / SPEC).exists() and spec_to_json(self.spec) != spec_to_json(spec):
            raise RunError(
                f"{self.shown_path}: {spec.name} has changed since this run started; {SPEC} shows what it was"
            )
        self._spec = spec
        write_atomically(self.path / SPEC, json.dumps(spec_to_json(spec)) + "\n")

    def _append(self, name: str, row: dict[str, Any]) -> None:
        append_line(self.path / name, line_of(row))


def trust_training(experiment: Experiment, folder: Path) -> str:
    """Trusts the code that an experiment names, because the user trains it; returns why this cannot be recorded."""
    parts = Experiment.from_json(experiment.to_json(), origin=str(folder)).unloaded.values()
    return "".join(trust([part], trusted(part) or "trained") for part in parts)


def _may_precede(path: Path) -> bool:
    """Whether a run may be created in a folder that holds this: a batch job's file, or an empty part of a run."""
    return may_precede(path.name) or (path.name in PARTS and path.is_dir() and not os.listdir(path))


def _trust(run: RunFolder, seen: set[Path]) -> None:
    seen.add(run.path.resolve())
    trust(run.experiment.unloaded.values(), "granted")
    for other in other_runs(run.experiment):
        if is_run(other) and other.resolve() not in seen:
            _trust(RunFolder.open(other), seen)


def _nearby_runs(folder: Path) -> str:
    """A hint: the runs next to or below a folder that is not a run."""
    parents = [parent for parent in (folder, folder.parent) if not folder_problem(parent)]
    runs = [
        short_path(path.parent)
        for parent in parents
        for path in sorted(parent.glob(f"*/{EXPERIMENT}"))
        if is_run(path.parent)
    ]
    by_similarity = dict.fromkeys([*nearest(short_path(folder), runs), *runs])
    return f"; runs near it: {', '.join(list(by_similarity)[:5])}" if runs else ""
