"""Run: a folder from which a training is watched, resumed, evaluated and explained, with nothing else needed."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from marlnb.config import EnvConfig
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError, nearest
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.learners import build_learners, load_learners
from marlnb.training.runs.checkpoint import Checkpoint, best_checkpoint, list_checkpoints
from marlnb.training.runs.files import (  # noqa: F401  (the rest is known from here too)
    CACHE,
    EVALUATION,
    EVALUATIONS,
    EVENTS,
    EXPERIMENT,
    LOCK,
    MAY_PRECEDE,
    METRICS,
    PAUSE,
    SAVE,
    SPEC,
    STATUS,
    STOP,
    is_run,
    may_precede,
    read_json,
    read_lines,
    write_atomically,
)
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.spec_file import spec_from_json, spec_to_json

if TYPE_CHECKING:
    import pandas as pd

    from marlnb.models.policies.policy import Policy

State = Literal["created", "running", "paused", "interrupted", "stopped", "complete", "failed"]
Which = int | str


class Origin(NamedTuple):
    """Which weights: the iteration of a training that made them (0 where none is known) and a hash of them."""

    iteration: int
    sha256: str


class Run:
    """One training's folder.

    Attributes:
        path: the folder.
        experiment: what it runs.
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        """Use `Run.create` or `Run.open`."""
        self.path = path
        self.experiment = experiment
        self._spec: EnvSpec | None = None

    @staticmethod
    def create(path: str | os.PathLike[str], experiment: Experiment) -> Run:
        """A new run folder, readable by its owner alone.

        It may be there already only if it is empty or holds what a batch job puts there before a run begins.

        Raises:
            RunError: it holds something already, or cannot be made.
        """
        folder = Path(path).expanduser()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            found = [name for name in sorted(os.listdir(folder)) if not may_precede(name)]
        except OSError as error:
            raise RunError(f"{folder} cannot be made: {error.strerror or error}") from error
        if found:
            hint = "open it with Run.open, go on with resume, or" if EXPERIMENT in found else ""
            raise RunError(
                f"{folder} is there already and holds {', '.join(found[:5])}; {hint} give another name".replace(
                    "  ", " "
                )
            )
        write_atomically(folder / EXPERIMENT, json.dumps(experiment.to_json(), indent=2) + "\n")
        for name in ("checkpoints", "recordings"):
            (folder / name).mkdir(mode=0o700)
        return Run(folder, experiment)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Run:
        """An existing run folder.

        Raises:
            RunError: there is none, or its experiment cannot be read.
        """
        folder = Path(path).expanduser()
        if not is_run(folder):
            raise RunError(f"{folder} is no run folder: it has no {EXPERIMENT}{_near(folder)}")
        try:
            data = json.loads((folder / EXPERIMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{folder / EXPERIMENT} cannot be read: {error}") from error
        return Run(folder, Experiment.from_json(data))

    def discard_unbegun(self) -> None:
        """Removes what is there of a run in which nothing was trained or recorded; files of others stay."""
        parts = [self.path / name for name in ("checkpoints", "recordings")]
        if read_lines(self.path / METRICS) or any(os.listdir(part) for part in parts):
            return
        for name in (METRICS, SPEC, STATUS, EVENTS, LOCK, EXPERIMENT):
            (self.path / name).unlink(missing_ok=True)
        for folder in (*parts, self.path):
            with suppress(OSError):  # a batch job's own files are in it
                folder.rmdir()

    def __repr__(self) -> str:
        status = self.status()
        progress = f"{status['state']}, {status.get('frames', 0):,} frames"
        return f"Run({str(self.path)!r}, {self.experiment.env.name}, {progress})"

    @property
    def spec(self) -> EnvSpec:
        """What the environment told when the run began; it is built for a moment where the run has not begun."""
        if self._spec is None:
            file = self.path / SPEC
            if file.exists():
                self._spec = spec_from_json(read_json(file))
            else:
                with build_env(self.experiment, 1) as env:
                    self._spec = env.spec
        return self._spec

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Those that are whole, oldest first."""
        return list_checkpoints(self.path / "checkpoints")

    def checkpoint(self, which: Which = "last") -> Checkpoint:
        """One checkpoint: "last", "best" (highest mean return as known when it was saved) or its iteration.

        Raises:
            CheckpointError: there is no such one; the message names those that are there.
        """
        found = self.checkpoints
        if which == "last" and found:
            return found[-1]
        best = best_checkpoint(found)
        if which == "best" and best is not None:
            return best
        if str(which).isdigit() and (self.path / "checkpoints" / str(which)).is_dir():
            return Checkpoint.open(self.path / "checkpoints" / str(which))
        have = ", ".join(str(checkpoint.iteration) for checkpoint in found) or "none"
        raise CheckpointError(f"no checkpoint {which!r} in {self.path}; valid: last, best or an iteration of: {have}")

    @property
    def n_envs(self) -> int:
        """Copies that its training stepped at once."""
        return self.experiment.n_envs

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """Copies of its environment, or of `env` with its agents grouped alike; the caller closes them."""
        return build_env(self.experiment, n_envs, device=device, env=env)

    def origin(self, checkpoint: Which = "last") -> Origin:
        """Iteration and hash of a checkpoint."""
        found = self.checkpoint(checkpoint)
        return Origin(found.iteration, found.sha256)

    def policy_index(self, group: GroupSpec) -> list[int]:
        """For each agent of a group the number of its network, counted from 0."""
        models = [self.experiment.models.get(agent, self.experiment.actor_of(group.name)) for agent in group.agents]
        keys = [(model, -1 if model.share_parameters else index) for index, model in enumerate(models)]
        distinct = [key for index, key in enumerate(keys) if key not in keys[:index]]
        return [distinct.index(key) for key in keys]

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group with the weights of a checkpoint, ready to act.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
        """
        state = self.checkpoint(checkpoint).load()
        learners = build_learners(self.experiment, self.spec, device)
        load_learners(learners, state.get("learners", {}))
        return {name: learner.policy.eval() for name, learner in learners.items()}

    def metrics(self) -> pd.DataFrame:
        """One row an iteration, in order; nested names are joined by `/`, as `returns/agent`."""
        import pandas as pd

        return pd.json_normalize(read_lines(self.path / METRICS), sep="/")

    def evaluations(self) -> list[dict[str, Any]]:
        """Each evaluation made during the training, oldest first.

        iteration, frames and seconds of training when it was made, and the return of each of its episodes by group:
        `returns[group][episode]`, one agent's undiscounted sum of rewards, averaged over the group's agents.
        """
        return read_lines(self.path / EVALUATIONS)

    @property
    def recordings(self) -> dict[str, Path]:
        """Files of `recordings/` by name."""
        return {path.stem: path for path in sorted((self.path / "recordings").glob("*.h5"))}

    def status(self) -> dict[str, Any]:
        """state, frames, frames_per_second, eta_s, pid, host, updated (seconds since 1970); what is known of them.

        state is interrupted where a training ended without saying so, as after a kill.
        """
        file = self.path / STATUS
        status: dict[str, Any] = read_json(file) if file.exists() else {"state": "created", "frames": 0}
        if status["state"] in ("running", "paused") and not is_locked(self.path / LOCK):
            status["state"] = "interrupted"
        return status

    def events(self) -> list[str]:
        """Lines of `events.log`, oldest first."""
        file = self.path / EVENTS
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def log_event(self, text: str) -> None:
        """Adds a line with the time to `events.log`."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        with open(self.path / EVENTS, "a", encoding="utf-8") as file:
            file.write(f"{stamp} {text}\n")

    def write_spec(self, spec: EnvSpec) -> None:
        """Keeps what the environment tells; the same on every resume.

        Raises:
            RunError: the environment has changed since the run began.
        """
        if (self.path / SPEC).exists() and spec_to_json(self.spec) != spec_to_json(spec):
            raise RunError(
                f"{self.path}: {spec.name} is no longer what this run began with; see {SPEC} for what it was"
            )
        self._spec = spec
        write_atomically(self.path / SPEC, json.dumps(spec_to_json(spec)) + "\n")

    def write_status(self, state: State, **facts: Any) -> None:
        """Replaces `status.json` atomically."""
        identity = {"pid": os.getpid(), "host": socket.gethostname(), "updated": time.time()}
        write_atomically(self.path / STATUS, json.dumps({"state": state, **facts, **identity}) + "\n", sync=False)

    def append_metrics(self, row: dict[str, Any]) -> None:
        self._append(METRICS, row)

    def append_evaluation(self, row: dict[str, Any]) -> None:
        self._append(EVALUATIONS, row)

    def cut_metrics(self, iteration: int) -> None:
        """Drops the rows after `iteration`, and a line that was being written when the process died."""
        for name in (METRICS, EVALUATIONS):
            rows = {row["iteration"]: row for row in read_lines(self.path / name) if row["iteration"] <= iteration}
            text = "".join(json.dumps(rows[key]) + "\n" for key in sorted(rows))
            if text or name == METRICS or (self.path / name).exists():
                write_atomically(self.path / name, text)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")


def _near(folder: Path) -> str:
    """A hint: the runs beside or below a folder that is none."""
    places = [folder, folder.parent] if folder.is_dir() else [folder.parent]
    runs = [str(path.parent) for place in places if place.is_dir() for path in sorted(place.glob(f"*/{EXPERIMENT}"))]
    alike = dict.fromkeys([*nearest(str(folder), runs), *runs])
    return f"; runs near it: {', '.join(list(alike)[:5])}" if runs else ""
