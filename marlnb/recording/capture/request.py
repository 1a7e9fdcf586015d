"""Request: what a recording is asked to hold, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from marlnb.config import EnvConfig
from marlnb.errors import RecordingError, unknown
from marlnb.models.hooks.edits import Edit
from marlnb.recording.capture.labels import named_label
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.layout import DTYPES
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin, Run

Fill = Literal["recomputed", "captured"]


@dataclass(frozen=True)
class Request:
    """What to record; `record` documents each option."""

    episodes: int
    sites: str | Sequence[str]
    agents: str | Sequence[str] | None
    every: int
    dtype: str
    seed: int
    explore: bool
    values: bool
    frames: bool | int
    checkpoint: int | str | Sequence[int | str]
    n_envs: int | None
    env: EnvConfig | None
    device: str
    labels: Mapping[str, LabelFn] = field(default_factory=dict)
    edits: Sequence[Edit] = ()
    fill: Fill = "recomputed"

    def __post_init__(self) -> None:
        for name in ("episodes", "every"):
            if getattr(self, name) < 1:
                raise RecordingError(f"{name} must be 1 or more; got {getattr(self, name)}")
        if self.n_envs is not None and self.n_envs < 1:
            raise RecordingError(f"n_envs must be 1 or more; got {self.n_envs}")
        if self.seed < 0 or int(self.frames) < 0:
            raise RecordingError(f"seed and frames must be 0 or more; got {self.seed}, {self.frames}")
        if self.dtype not in DTYPES:
            raise RecordingError(unknown("dtype", self.dtype, DTYPES))
        if self.fill not in get_args(Fill):
            raise RecordingError(unknown("way to fill activations", self.fill, get_args(Fill)))
        object.__setattr__(self, "labels", {name: named_label(name, given) for name, given in self.labels.items()})

    def origins(self, subject: PolicySource) -> list[Origin]:
        """The checkpoints that are asked for, in order.

        Raises:
            CheckpointError: there is no such checkpoint.
            RecordingError: none is named, or one twice.
        """
        wanted = self.checkpoint
        if wanted == "all" and isinstance(subject, Run):
            wanted = [found.iteration for found in subject.checkpoints]
        each = [wanted] if isinstance(wanted, (int, str)) else list(wanted)
        found = [subject.origin("last" if which == "all" else which) for which in each]
        if not found or len(set(found)) < len(found):
            raise RecordingError(f"checkpoint names each checkpoint once, and at least one; got {self.checkpoint!r}")
        return found

    def of(self, origin: Origin) -> Request:
        """The same of one checkpoint."""
        return replace(self, checkpoint=origin.iteration)
