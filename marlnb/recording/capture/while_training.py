"""RecordWhileTraining: at every k-th iteration of a training the policies play some episodes, into one file.

Each iteration's episodes are a segment of their own (`marlnb.recording.file.segments`), so that a training that was killed
goes on with the same file: segments of iterations that are trained anew are dropped, and one that a kill prevented is
made from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.config import EnvConfig, Experiment
from marlnb.envs.vector import VectorEnv
from marlnb.errors import RecordingError
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.plan import make_plan, recording_path
from marlnb.recording.capture.preparation import prepare
from marlnb.recording.capture.provenance import root_attributes
from marlnb.recording.capture.recorder import write_recording
from marlnb.recording.capture.request import Request
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.layout import DTYPES
from marlnb.recording.file.opening import Locking, open_recording_file
from marlnb.recording.file.segments import join, segments_folder
from marlnb.specs import GroupSpec
from marlnb.training.runs.run import Origin, Which

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

OPTIONS = "while_training"


@dataclass(frozen=True)
class RecordWhileTraining:
    """A callback of a training: `train(experiment, callbacks=[RecordWhileTraining(every=10)])`.

    The recording `<run>/recordings/<name>.h5` has the same episodes, under the same seeds, of the policies before the
    first iteration and after every k-th; `recording.episodes["checkpoint"]` tells the iteration, whether it has a
    checkpoint on disk or not. What is learnt is the same with and without. It is complete when the training is.

    Attributes:
        every: iterations between two recordings; every_step: keeps each k-th step of an episode.
        episodes, sites, agents, dtype, seed, explore, values, labels, n_envs: as in `record`.
    Raises:
        RecordingError: an option out of range; while training: the file is of other options, or cannot be written.
    """

    every: int = 10
    episodes: int = 20
    sites: str | Sequence[str] = "*/actor/*"
    name: str = "training"
    agents: str | Sequence[str] | None = None
    every_step: int = 1
    dtype: str = DTYPES[0]
    seed: int = 2000
    explore: bool = False
    values: bool = True
    labels: Mapping[str, LabelFn] = field(default_factory=dict)
    n_envs: int | None = None
    locking: Locking = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise RecordingError(f"every must be 1 iteration or more; got {self.every}")
        self._request("cpu")

    def begin(self, trainer: Trainer) -> None:
        path = recording_path(trainer.run, self.name)
        if path.exists() and not segments_folder(path).is_dir():
            raise RecordingError(f"{path} is there already, and not of a training; give another name")
        kept = []
        for segment in sorted(segments_folder(path).glob("*.h5")):
            if self._is_of_before(segment, trainer.iteration):
                kept.append(segment)
            else:
                segment.unlink()
        if kept:
            self._join(kept, path, complete=False)
        else:
            path.unlink(missing_ok=True)
        self.after_iteration(trainer)

    def after_iteration(self, trainer: Trainer) -> None:
        path = recording_path(trainer.run, self.name)
        segment = segments_folder(path) / f"{trainer.iteration:09d}.h5"
        if trainer.iteration % self.every or segment.exists():
            return
        with prepare(Now(trainer), self._request(trainer.experiment.device)) as prepared:
            plan = make_plan(prepared, segment)
            plan.check()
            first = trainer.iteration // self.every * self.episodes
            attributes = {**root_attributes(prepared), OPTIONS: self._options()}
            write_recording([nullcontext(prepared)], plan, attributes, first_episode=first, locking=self.locking)
        self._join(sorted(segments_folder(path).glob("*.h5")), path, complete=False)

    def end(self, trainer: Trainer) -> None:
        path = recording_path(trainer.run, self.name)
        segments = sorted(segments_folder(path).glob("*.h5"))
        if trainer.state == "complete" and segments:
            self._join(segments, path, complete=True)

    def _request(self, device: str) -> Request:
        return Request(
            episodes=self.episodes,
            sites=self.sites,
            agents=self.agents,
            every=self.every_step,
            dtype=self.dtype,
            seed=self.seed,
            explore=self.explore,
            values=self.values,
            frames=False,
            checkpoint="last",
            n_envs=self.n_envs,
            env=None,
            device=device,
            labels=self.labels,
        )

    def _options(self) -> str:
        names = ("every", "episodes", "sites", "agents", "every_step", "dtype", "seed", "explore", "values", "n_envs")
        found = {name: getattr(self, name) for name in names} | {"labels": sorted(self.labels)}
        return json.dumps({name: list(x) if isinstance(x, tuple) else x for name, x in found.items()}, sort_keys=True)

    def _is_of_before(self, segment: Path, iteration: int) -> bool:
        """Whether a segment is whole and of what is trained already.

        Raises:
            RecordingError: it was made with other options.
        """
        if int(segment.stem) > iteration:
            return False
        with open_recording_file(segment, self.locking) as file:
            complete, options = bool(file.attrs["complete"]), str(file.attrs[OPTIONS])
        if complete and options != self._options():
            raise RecordingError(
                f"{segment} was recorded with {options}, now {self._options()} is asked for; give another name"
            )
        return complete

    def _join(self, segments: Sequence[Path], path: Path, *, complete: bool) -> None:
        with open_recording_file(segments[-1], self.locking) as last:
            of_last: dict[str, Any] = {name: last.attrs[name] for name in ("iteration", "checkpoint")}
        join(segments, path, complete=complete, attributes=of_last, locking=self.locking)


class Now:
    """The subject of a training that goes on: its policies as they are at this moment."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.path, self.spec = trainer, trainer.run.path, trainer.run.spec

    @property
    def n_envs(self) -> int:
        return self.trainer.experiment.n_envs

    @property
    def experiment(self) -> Experiment | None:
        return self.trainer.experiment

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        return self.trainer.run.build_env(n_envs, device=device, env=env)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        return dict(self.trainer.policies)

    def origin(self, checkpoint: Which = "last") -> Origin:
        return self.trainer.origin

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.trainer.run.policy_index(group)
