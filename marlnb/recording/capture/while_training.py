"""RecordWhileTraining: records episodes at every k-th iteration of a training run, into one file.

Each iteration's episodes are a segment (`marlnb.recording.file.segments`), so that a training run that was killed and
resumed continues the same file. Segments of iterations that are trained again are deleted; a segment that a kill
prevented is recorded from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.config import option
from marlnb.errors import RecordingError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.config import EpisodeOptions, RecordingConfig
from marlnb.recording.capture.labels import reset_labels
from marlnb.recording.capture.plan import make_plan, recording_path
from marlnb.recording.capture.preparation import prepare
from marlnb.recording.capture.provenance import root_attributes
from marlnb.recording.capture.recorder import write_recording
from marlnb.recording.file.opening import Locking, open_recording_file
from marlnb.recording.file.segments import join, readable_segments, segments_folder
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

OPTIONS_ATTRIBUTE = "while_training"


@dataclass(frozen=True)
class RecordWhileTraining(EpisodeOptions):
    """A training callback: `train(experiment, callbacks=[RecordWhileTraining(every_iterations=10)])`.

    The recording `<run>/recordings/<name>.h5` holds the same episodes, under the same seeds, before the first iteration
    and after every k-th. `recording.episodes["checkpoint"]` is the iteration, whether or not it has a checkpoint on
    disk. Training is bit for bit the same with and without it. The recording is complete when the training is, and
    none of these iterations was trained without this callback. Other options are those of `marlnb.record`.

    Raises:
        ConfigError: an option is out of range.
        RecordingError: when the training starts: a population's networks may grow, or the existing file has other
            options. While training: it cannot be written.
    """

    name: str = option("training", help="name of the file")
    episodes: int = option(20, help="episodes of each recorded iteration", ge=1)
    every_iterations: int = option(10, help="iterations between two recordings", unit="iterations", ge=1)
    locking: Locking = option(None, help="HDF5's file locking, as h5py takes it")

    def begin(self, trainer: Trainer) -> None:
        self._check_sizes_stay(trainer.experiment)
        reset_labels(self.labels)
        path = recording_path(trainer.run, self.name)
        if not self._is_of_a_training(path):
            raise RecordingError(f"{path} already exists and is not of a training run; give another name")
        valid = []
        for segment in sorted(segments_folder(path).glob("*.h5")):
            if self._is_complete_until(segment, trainer.iteration):
                valid.append(segment)
            else:
                segment.unlink()
        if valid:
            self._join(valid, path, complete=False)
        else:
            path.unlink(missing_ok=True)
        self.after_iteration(trainer)

    def after_iteration(self, trainer: Trainer) -> None:
        path = recording_path(trainer.run, self.name)
        segment = segments_folder(path) / f"{trainer.iteration:09d}.h5"
        if trainer.iteration % self.every_iterations or segment.exists():
            return
        options = {item.name: getattr(self, item.name) for item in fields(EpisodeOptions)}
        config = RecordingConfig(**options, device=trainer.experiment.device)
        with prepare(CurrentPolicies(trainer), config) as prepared:
            plan = make_plan(prepared, segment)
            plan.check()
            first_episode = trainer.iteration // self.every_iterations * self.episodes
            attributes = {**root_attributes(prepared), OPTIONS_ATTRIBUTE: self._options()}
            write_recording(
                [nullcontext(prepared)], plan, attributes, first_episode=first_episode, locking=self.locking
            )
        self._join(sorted(segments_folder(path).glob("*.h5")), path, complete=False)

    def end(self, trainer: Trainer) -> None:
        path = recording_path(trainer.run, self.name)
        segments = sorted(segments_folder(path).glob("*.h5"))
        if trainer.state == "complete" and segments:
            recorded = {int(segment.stem) for segment in segments}
            due = range(0, trainer.iteration + 1, self.every_iterations)
            self._join(segments, path, complete=recorded.issuperset(due))

    def _check_sizes_stay(self, experiment: Experiment) -> None:
        """Raises RecordingError if networks may get other units or layers, which one file cannot hold."""
        if experiment.evolution is None or not self.sites:
            return
        probability = experiment.evolution.probability
        growing = [f"evolution.probability.{kind}" for kind in ("width", "depth") if getattr(probability, kind)]
        if growing:
            raise RecordingError(
                f"RecordWhileTraining records networks of one size, but {' and '.join(growing)} let the members' grow; "
                f"set {' and '.join(f'{name}=0' for name in growing)}, record no activations with sites=(), or record "
                "members after the training: mnb.record(run.population['12-3'])"
            )

    def _options(self) -> str:
        """What must be equal when a training run is resumed, as JSON."""
        names = [item.name for item in fields(self) if item.name not in ("name", "locking", "labels")]
        return json.dumps({name: getattr(self, name) for name in names} | {"labels": sorted(self.labels)})

    def _is_of_a_training(self, path: Path) -> bool:
        """Whether this class has made the recording, or there is none; not one that `record` split into segments."""
        segments = readable_segments(path)
        if not segments:
            return not path.exists() or segments_folder(path).is_dir()
        with open_recording_file(segments[0], self.locking) as file:
            return OPTIONS_ATTRIBUTE in file.attrs

    def _is_complete_until(self, segment: Path, iteration: int) -> bool:
        """Whether a segment is complete and of an iteration that is trained already.

        Raises:
            RecordingError: it was recorded with other options.
        """
        if int(segment.stem) > iteration:
            return False
        with open_recording_file(segment, self.locking) as file:
            complete, options = bool(file.attrs["complete"]), str(file.attrs[OPTIONS_ATTRIBUTE])
        if complete and options != self._options():
            raise RecordingError(
                f"{segment} was recorded with {options}, but {self._options()} is requested; give another name"
            )
        return complete

    def _join(self, segments: Sequence[Path], path: Path, *, complete: bool) -> None:
        with open_recording_file(segments[-1], self.locking) as last:
            attributes: dict[str, Any] = {name: last.attrs[name] for name in ("iteration", "checkpoint")}
        join(segments, path, complete=complete, attributes=attributes, locking=self.locking)


class CurrentPolicies:
    """The policies of a training run in progress, as they are now, as a PolicySource."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.path, self.spec = trainer, trainer.run.path, trainer.run.spec
        self.n_envs: int = trainer.experiment.n_envs
        self.experiment: Experiment | None = trainer.experiment
        self.build_env, self.policy_index = trainer.build_env, trainer.run.policy_index

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        return dict(self.trainer.policies)

    def origin(self, checkpoint: Which = "last") -> Origin:
        return self.trainer.origin
