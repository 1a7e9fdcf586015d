"""RecordingPlan: what a recording will hold, how large it will be and how long it will take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from marlnb.config import accepts_options, resolve_config
from marlnb.disk import free_bytes, mount_point
from marlnb.display.formatting import count, format_bytes, format_duration, short_path
from marlnb.display.notebook_html import note_html, table_html, title_html
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import RecordingError
from marlnb.paths import is_file_name
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.labels import reset_labels
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.file.layout import Field
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source

FILE_OVERHEAD_BYTES = 4 * 1024 * 1024
WRITE_BYTES_PER_S = 1e9
N_COPIES = 3  # times that each row is copied in memory before it is written


@dataclass(frozen=True, repr=False)
class RecordingPlan:
    """What will be written and what it costs. Prints as a table.

    Attributes:
        path: the file.
        fields: its datasets with one row per step.
        episodes: played, of all checkpoints.
        n_envs: environments stepped at once.
        rows: an upper bound where the environment states its longest episode, otherwise an estimate from a few steps.
        bounded: whether `rows` is an upper bound.
        size_bytes: of the file.
        free_bytes: on its disk now.
        memory_bytes: of buffers.
        time_s: of the whole recording, from the speed of a few steps.
        recording_s: the part of `time_s` that writing takes.
        frames: rendered images.
    """

    path: Path
    fields: tuple[Field, ...]
    episodes: int
    n_envs: int
    rows: int
    bounded: bool
    size_bytes: int
    free_bytes: int
    memory_bytes: int
    time_s: float
    recording_s: float
    frames: int = 0

    @property
    def fits(self) -> bool:
        return self.size_bytes <= self.free_bytes

    def check(self) -> None:
        """Raises RecordingError where the disk has too little space."""
        if not self.fits:
            raise RecordingError(
                f"{self.path} cannot be written: it needs {format_bytes(self.size_bytes)}, and the disk "
                f"{mount_point(self.path)} has {format_bytes(self.free_bytes)} free; "
                f"record fewer episodes, sites or agents, every k-th step (every=), or dtype='float16'"
            )

    def table(self) -> list[tuple[str, str, str, str]]:
        """(dataset, axes, type, size) of each field."""
        return [
            (field.path, _axes(field), field.dtype, format_bytes(field.row_bytes * self.rows)) for field in self.fields
        ]

    def summary(self) -> str:
        rows = f"{'at most' if self.bounded else 'about'} {count(self.rows, 'row')}"
        frames = f", {count(self.frames, 'frame')}" if self.frames else ""
        return (
            f"{count(self.episodes, 'episode')}, {rows}{frames}: "
            f"{format_bytes(self.size_bytes)} of {format_bytes(self.free_bytes)} free, "
            f"{format_bytes(self.memory_bytes)} of buffers, "
            f"{self._duration()}"
        )

    def _duration(self) -> str:
        if self.time_s < 1:
            return f"less than a second with {self.n_envs} envs"
        writing = format_duration(self.recording_s)
        return f"about {format_duration(self.time_s)} with {self.n_envs} envs, {writing} of it writing"

    def __str__(self) -> str:
        table = [("dataset", "axes", "type", "size"), *self.table()]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        return "\n".join([f"recording {short_path(self.path)}", *lines, self.summary()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = table_html(("dataset", "axes", "type", "size"), self.table())
        return title_html(short_path(self.path)) + note_html(self.summary()) + table


@closing_pools()
@accepts_options(RecordingConfig)
def plan_recording(
    policy_source: PolicySourceLike, config: RecordingConfig | None = None, *, trust: bool = False, **overrides: Any
) -> RecordingPlan:
    """What `record` with the same arguments would write. Plays a few steps and writes nothing.

    Args:
        policy_source: a run or its folder, or agents from elsewhere (`marlnb.Agents`).
        config: the options; None: the defaults.
        trust: as in `record`: the plan plays steps of the environment with the policies.
        overrides: options that replace those of `config`.
    Raises:
        SiteError, RecordingError, ConfigError, RunError, EnvError: as `record`. An existing file and a full disk are
            no errors here; the plan shows the disk's free space.
    """
    options = resolve_config(RecordingConfig, config, overrides)
    reset_labels(options.labels)
    policy_source = as_policy_source(policy_source, trust=trust)
    origins = options.origins(policy_source)
    with prepare(policy_source, replace(options, checkpoint=origins[0].iteration)) as prepared:
        return make_plan(prepared, recording_path(policy_source, options.name), checkpoints=len(origins))


def make_plan(prepared: Prepared, path: Path, *, checkpoints: int = 1) -> RecordingPlan:
    """The plan of a prepared request that is written to `path`, for so many checkpoints."""
    config, dry_run, n_envs = prepared.config, prepared.dry_run, prepared.env.n_envs
    fields = tuple(dry_run.schema.fields)
    row_bytes = sum(field.row_bytes for field in fields)
    episode_rows = ceil(dry_run.max_steps / config.every)
    episodes = checkpoints * config.episodes
    rows = episodes * episode_rows
    frames = episodes * ceil(episode_rows / config.frames) if config.frames else 0
    recording_s = N_COPIES * rows * row_bytes / WRITE_BYTES_PER_S
    return RecordingPlan(
        path=path,
        fields=fields,
        episodes=episodes,
        n_envs=n_envs,
        rows=rows,
        bounded=prepared.env.spec.max_steps is not None,
        size_bytes=rows * row_bytes + frames * dry_run.frame_bytes + FILE_OVERHEAD_BYTES,
        free_bytes=free_bytes(path),
        memory_bytes=n_envs * episode_rows * row_bytes,
        time_s=checkpoints * ceil(config.episodes / n_envs) * dry_run.max_steps * dry_run.step_s + recording_s,
        recording_s=recording_s,
        frames=frames,
    )


def recording_path(policy_source: PolicySource, name: str) -> Path:
    """The path of a recording with this name.

    Raises:
        RecordingError: the name is not a file name.
    """
    if not is_file_name(name) or name.startswith("."):
        raise RecordingError(f"{name!r} is not a valid recording name; give a file name without folders")
    return policy_source.path / "recordings" / f"{name.removesuffix('.h5')}.h5"


def _axes(field: Field) -> str:
    return " × ".join(["row", *(f"{length} {name}" for name, length in zip(field.dims, field.shape))])
