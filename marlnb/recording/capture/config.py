"""RecordingConfig: the options of a recording, stated once for functions, the command, the form and the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from marlnb.config import EnvConfig, option
from marlnb.errors import CheckpointError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.capture.labels import named_label
from marlnb.recording.file.layout import DTYPES
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin, Run
from marlnb.values import validate


@dataclass(frozen=True)
class ActivationOptions:
    """Which activations are recorded and how they are stored."""

    sites: str | tuple[str, ...] = option(
        "*/actor/*",
        help="globs over site names of actors and critics, such as listener/actor/hidden_*; empty: no sites",
    )
    dtype: str = option("float32", help="of activations and recurrent states", choices=DTYPES)
    values: bool = option(True, help="run the critics and record their value estimates")

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class EpisodeOptions(ActivationOptions):
    """Which episodes are played and which of their steps and agents are recorded."""

    name: str = option("recording", help="name of the file")
    episodes: int = option(200, help="episodes played, of each checkpoint", ge=1, le=10_000_000)
    seed: int = option(2000, help="seed of the first episode; episode k runs under seed + k", ge=0)
    explore: bool = option(False, help="sample actions instead of taking the most likely")
    every: int = option(1, help="record the steps t = 0, k, 2k, ... of each episode", ge=1)
    agents: str | tuple[str, ...] | None = option(None, help="names or globs of the recorded agents; none: all")
    n_envs: int | None = option(None, help="environments stepped at once; none: as in the training, at most 32", ge=1)
    labels: Mapping[str, Callable[[TimeStep], Tensor]] = option(
        {},
        help="by name, functions of the time step before each step that return [env] or [env, agent]; name a label "
        "<group>/<name> where several groups have as many agents",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Wrapped once here: every checkpoint's labels must have the same shape and dtype.
        labels = {name: named_label(name, function) for name, function in self.labels.items()}
        object.__setattr__(self, "labels", labels)


@dataclass(frozen=True)
class RecordingConfig(EpisodeOptions):
    """The options of `marlnb.record`."""

    checkpoint: int | str | tuple[int | str, ...] = option(
        "last",
        help="last, best (or best:<group>) or an iteration; several of them, or all: one file, the same episodes for "
        "each",
    )
    frames: int = option(0, help="rendered images of every k-th recorded step; 0: none; True means 1", ge=0)
    env: EnvConfig | None = option(
        None, help="another environment whose groups have the same names, sizes and spaces; none: the run's own"
    )
    edits: tuple[Edit, ...] = option((), help="interventions at sites, in force while the episodes are played")
    fill: Literal["recomputed", "captured"] = option(
        "recomputed",
        help="how actor sites are filled: recomputed from the inputs for many rows at once, equal within float32 "
        "rounding; captured by hooks at every step, bit for bit; with edits they are always captured",
    )
    device: str = option("cpu", help="where policies and native environments run: cpu, cuda, cuda:1")
    segment_bytes: int | None = option(
        None, help="write segments of about this size, joined as one file; none: one file", unit="bytes", ge=1
    )

    def __post_init__(self) -> None:
        if isinstance(self.frames, bool):
            object.__setattr__(self, "frames", int(self.frames))
        super().__post_init__()

    def origins(self, source: PolicySource) -> list[Origin]:
        """The requested checkpoints, in order.

        Raises:
            CheckpointError: there is no such checkpoint.
            RecordingError: no checkpoint is requested, or one twice.
        """
        requested = (self.checkpoint,) if isinstance(self.checkpoint, (int, str)) else self.checkpoint
        if requested == ("all",) and isinstance(source, Run) and source.damaged_checkpoints:
            damaged = ", ".join(map(str, source.damaged_checkpoints))
            readable = ", ".join(str(item.iteration) for item in source.checkpoints)
            raise CheckpointError(f"checkpoint='all': {source.path} has damaged ones: {damaged}; readable: {readable}")
        if requested == ("all",):
            requested = tuple(item.iteration for item in source.checkpoints) if isinstance(source, Run) else ("last",)
        origins = [source.origin(item) for item in requested]
        if not origins or len(set(origins)) < len(origins):
            raise RecordingError(f"checkpoint must name at least one checkpoint, each once; got {self.checkpoint!r}")
        return origins
