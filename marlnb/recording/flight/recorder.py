"""FlightRecorder: records a few of the envs that a training run learns in, while it learns.

After each rollout it copies the rows of one in `every_envs` envs on the device, computes the chosen sites of these rows
in one pass, and returns. A thread writes them to an ordinary recording. Of the other envs it keeps a hash of what each
did in each iteration: `replay_training` plays any of them again and compares.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.config import accepts_options, option, resolve_config
from marlnb.errors import RecordingError
from marlnb.recording.capture.config import ActivationOptions
from marlnb.recording.capture.plan import recording_path
from marlnb.recording.capture.provenance import agent_columns, code_commit, code_sha256, source_attributes
from marlnb.recording.capture.sources import Selection, computed_dtype
from marlnb.recording.capture.while_training import CurrentPolicies
from marlnb.recording.file.layout import check_float16
from marlnb.recording.file.opening import open_recording_file
from marlnb.recording.file.writer import RecordingWriter
from marlnb.recording.flight.buffers import RowBuffers, Slot
from marlnb.recording.flight.hashes import HashFile, rollout_hashes
from marlnb.recording.flight.rows import RolloutRows
from marlnb.recording.flight.writer import NUMBERS, RolloutWriter
from marlnb.specs import derive_seed
from marlnb.training.loop import Loop
from marlnb.training.policies.agents import states_sha256
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

EXPECTED_ROWS = 1_000_000
N_BUFFERS = 3
STARTS, ENDS, SEEDS, HASHES, WEIGHTS = "is_init", "done", "seed", "hash", "weights"
ROWS = ("steps/", "activations/", "recurrent/", "labels/")
SEPARATOR = "\0"  # in names of buffers; groups may have any other character


@dataclass(frozen=True)
class FlightOptions(ActivationOptions):
    """The options of `FlightRecorder`."""

    name: str = option("flight", help="name of the file")
    every_envs: int = option(64, help="records envs 0, k, 2k, ... of the training", unit="envs", ge=1)


class FlightRecorder:
    """A training callback: `train(experiment, callbacks=[FlightRecorder(every_envs=64)])`.

    The recording `<run>/recordings/<name>.h5` holds every step of envs 0, k, 2k, ... as the training saw it, with
    sampled actions. Its checkpoints say which iteration's weights made each row. A resumed training run continues in
    `<name>-<iteration>.h5`, and where that is complete in `<name>-<iteration>-2.h5`. `<name>.hashes` holds a hash of
    every env in every iteration.

    Training is bit for bit the same with and without it.

    Raises:
        ConfigError: an option is unknown or out of range.
        SiteError: a pattern matches no site.
        RecordingError: when the training starts: the file exists, the training is a league or a population, which
            has several loops, or it has a schedule; while training: the file cannot be written.
    """

    @accepts_options(FlightOptions)
    def __init__(self, config: FlightOptions | None = None, **overrides: Any) -> None:
        self.config = resolve_config(FlightOptions, config, overrides)
        self._flight: Flight | None = None

    def begin(self, trainer: Trainer) -> None:
        loop = trainer.loop
        if not isinstance(loop, Loop):
            raise RecordingError(
                "FlightRecorder records a training run with one policy for each group; leagues and populations have "
                "several: record their players with marlnb.record"
            )
        if trainer.experiment.schedule:
            raise RecordingError(
                "FlightRecorder does not record a run with a schedule=, which builds its networks again at each "
                "change: record its checkpoints with marlnb.record"
            )
        path = self._free_path(trainer)
        hashes = HashFile(
            recording_path(trainer.run, self.config.name).with_suffix(".hashes"), trainer.experiment.n_envs
        )
        hashes.cut(trainer.iteration)
        envs = torch.arange(0, trainer.experiment.n_envs, self.config.every_envs, device=loop.device)
        rows = RolloutRows(loop.env.spec, loop.policies, envs, self.config)
        self._flight = Flight(CurrentPolicies(trainer), loop, rows, path, hashes)

        def on_rollout(rollout: Rollout) -> None:
            assert self._flight is not None
            self._flight.add(rollout, trainer.iteration, trainer.saved_origin)

        loop.on_rollout.append(on_rollout)

    def after_iteration(self, trainer: Trainer) -> None:
        """Nothing: rows are taken before the weights change."""

    def end(self, trainer: Trainer) -> None:
        if self._flight is not None:
            self._flight.close(complete=trainer.state == "complete", quiet=trainer.state == "failed")

    def _free_path(self, trainer: Trainer) -> Path:
        """Where this session is recorded. An interrupted recording there is deleted: its iterations are trained again.

        A complete one of a resume from the same iteration stays, as where the checkpoints after it are damaged.
        """
        first = recording_path(trainer.run, self.config.name)
        if trainer.iteration:
            first = first.with_name(f"{first.stem}-{trainer.iteration}.h5")
        numbered = (first.with_name(f"{first.stem}-{number}.h5") for number in count(2))
        path = next(path for path in chain([first], numbered) if not _is_complete(path))
        if path != first and not trainer.iteration:
            raise RecordingError(f"{first} already exists; give another name")
        path.unlink(missing_ok=True)
        return path


def _is_complete(path: Path) -> bool:
    """Whether there is a recording that nothing interrupted."""
    if not path.exists():
        return False
    with open_recording_file(path, None) as file:
        return bool(file.attrs["complete"])


class Flight:
    """The recording of one session of a training run: a thread writes what `add` takes out of rollouts.

    Args:
        source: the policies.
        loop: the training, before its first recorded rollout.
        rows: what is recorded of each rollout.
        path: of the recording.
        hashes: where those of all envs are written; None: nowhere.
    """

    def __init__(
        self, source: PolicySource, loop: Loop, rows: RolloutRows, path: Path, hashes: HashFile | None
    ) -> None:
        self._source, self._loop, self._rows, self._path, self._hashes = source, loop, rows, path, hashes
        self._options, self._envs = rows.options, rows.envs.cpu().numpy()
        self._steps = loop.episodes.steps[self._envs].copy()
        self._buffers = RowBuffers(N_BUFFERS, loop.device)
        self._writer: RolloutWriter | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="flight recorder", daemon=True)
        self._thread.start()

    def add(
        self, rollout: Rollout, iteration: int, origin: Origin | None, labels: Mapping[str, Tensor] | None = None
    ) -> None:
        """Takes the rows of a rollout, which the weights of `iteration` collected.

        Args:
            origin: these weights; None: their hash is computed.
            labels: further fields of the rows, by path, `[env, time, ...]`.
        Raises:
            RecordingError: rows of an earlier rollout could not be written.
        """
        self._check()
        tensors = {**self._rows.read(rollout), **(labels or {})}
        envs = self._rows.envs
        tensors[STARTS] = rollout["is_init"][:, 0, 0].index_select(0, envs)
        tensors[ENDS] = rollout["next", "done"][..., 0].index_select(0, envs)
        tensors[SEEDS] = self._loop.episode_seeds.to(envs.device).index_select(0, envs)
        tensors[HASHES] = rollout_hashes(rollout, self._loop.env.spec)
        if origin is None:
            for name, policy in self._loop.policies.items():
                tensors |= {SEPARATOR.join((WEIGHTS, name, key)): x for key, x in policy.state_dict().items()}
        self._buffers.put(tensors, (iteration, origin))

    def close(self, *, complete: bool, quiet: bool = False) -> None:
        """Waits until everything is written, and closes the file.

        Raises:
            RecordingError: rows could not be written; not if `quiet`, where another error is more important.
        """
        self._buffers.close()
        self._thread.join()
        if self._writer is not None:
            try:
                self._writer.close(complete=complete and self._error is None)
            except RecordingError as error:
                self._error = self._error or error
        if not quiet:
            self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        """The thread: after an error it only empties the buffers, so that the training can report it."""
        while (slot := self._buffers.take()) is not None:
            try:
                if self._error is None:
                    self._append(slot)
            except BaseException as error:
                self._error = error
            finally:
                self._buffers.release(slot)

    def _append(self, slot: Slot) -> None:
        tensors, (iteration, origin) = slot.tensors(), slot.note
        rows = {name: value for name, value in tensors.items() if name.startswith(ROWS)}
        if origin is None:
            origin = Origin(iteration, _weights_sha256(tensors))
        if self._options.dtype == "float16":
            check_float16({path: rows[path] for path in rows if path.startswith(("activations/", "recurrent/"))})
        if self._hashes is not None:
            self._hashes.append(iteration + 1, tensors[HASHES].numpy())
        if self._writer is None:
            self._writer = self._open(rows, origin)
        starts, ends, seeds = (tensors[name].numpy() for name in (STARTS, ENDS, SEEDS))
        self._writer.add(rows, starts, ends, seeds, origin)

    def _open(self, rows: Mapping[str, Tensor], origin: Origin) -> RolloutWriter:
        spec, options, fields = self._loop.env.spec, self._options, self._rows.fields(rows)
        policies = self._loop.policies
        experiment = self._loop.experiment
        settings = {
            "env": spec.name,
            "checkpoint": origin.sha256,
            "sites": [site.name for site in self._rows.sites],
            "agents": list(spec.agents),
            "labels": [path.removeprefix("labels/") for path in rows if path.startswith("labels/")],
            "n_envs": experiment.n_envs,
            "envs": self._envs.tolist(),
            "every": 1,
            "dtype": options.dtype,
            "values": options.values,
            "explore": True,
        }
        seed = derive_seed(experiment.seed, "env", 0)
        attributes = source_attributes(self._source, spec, origin, settings, seed)
        attributes |= {"code_sha256": code_sha256(), "code_commit": code_commit()}
        columns = agent_columns(self._source, spec, [Selection(g, tuple(range(g.n_agents))) for g in spec.groups])
        total = experiment.iterations * experiment.rollout_steps * len(self._envs)
        writer = RecordingWriter(
            self._path, [*fields, *NUMBERS], attributes, columns, expected_rows=min(total, EXPECTED_ROWS)
        )
        names = {g.name: (("observation", g.observation.names), ("action", g.action.names)) for g in spec.groups}
        writer.describe(
            {f"steps/{g}/{item}": {"names": list(n)} for g, items in names.items() for item, n in items if n}
        )
        classes = {f"labels/{label.name}": {"classes": list(label.classes)} for label in spec.labels if label.classes}
        writer.describe(classes)
        writer.describe(
            {
                f"activations/{site.name}": {"computed": computed_dtype(policies[site.group], site)}
                for site in self._rows.sites
            }
        )
        return RolloutWriter(writer, fields, self._envs, experiment.n_envs, self._steps)


def _weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    states: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(SEPARATOR)
        if kind == WEIGHTS:
            group, _, key = rest.partition(SEPARATOR)
            states.setdefault(group, {})[key] = value
    return states_sha256(states)
