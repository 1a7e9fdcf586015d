"""RecordingPlan: what a recording will hold, how large it will be and how long it will take, before it starts."""

from __future__ import annotations

import html
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.errors import RecordingError
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.capture.request import Request
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.layout import Field
from marlnb.training.policies.policy_source import PolicySource, as_policy_source

FILE_OVERHEAD_BYTES = 4 * 1024 * 1024
WRITE_BYTES_PER_S = 1e9
COPIES_IN_MEMORY = 3


@dataclass(frozen=True)
class RecordingPlan:
    """What is to be written and what it costs; prints as a table.

    Attributes:
        path: the file.
        fields: its datasets with a row a step.
        rows: at most, where the environment says how long an episode may be; else as long as those tried.
        bounded: whether `rows` is such a bound.
        size_bytes: of the file; free_bytes: on its disk now; memory_bytes: of buffers.
        time_s: for everything, from the speed of a few steps just tried; recording_s: the part that writing adds.
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
        """Raises RecordingError when the disk has no room for it."""
        if not self.fits:
            raise RecordingError(
                f"{self.path} would take {_size(self.size_bytes)}, and its disk has {_size(self.free_bytes)} free; "
                f"record fewer episodes, sites or agents, every k-th step (every=), or dtype='float16'"
            )

    def table(self) -> list[tuple[str, str, str, str]]:
        """(dataset, axes, type, size) of each field."""
        return [(field.path, _axes(field), field.dtype, _size(field.row_bytes * self.rows)) for field in self.fields]

    def summary(self) -> str:
        rows = f"{'at most' if self.bounded else 'about'} {self.rows:,} rows"
        frames = f", {self.frames:,} frames" if self.frames else ""
        return (
            f"{self.episodes:,} episodes, {rows}{frames}: {_size(self.size_bytes)} of {_size(self.free_bytes)} free, "
            f"{_size(self.memory_bytes)} of buffers, about {_time(self.time_s)} with {self.n_envs} copies, "
            f"{_time(self.recording_s)} of it writing"
        )

    def __str__(self) -> str:
        table = [("dataset", "axes", "type", "size"), *self.table()]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        return "\n".join([f"recording {self.path}", *lines, self.summary()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("dataset", "axes", "type", "size"))
        cells = (
            "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) for row in self.table()
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        caption = f"<b>{html.escape(str(self.path))}</b><br>{html.escape(self.summary())}"
        return f"<div>{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def plan_recording(
    subject: PolicySource | str | os.PathLike[str],
    *,
    episodes: int = 200,
    sites: str | Sequence[str] = "*/actor/*",
    agents: str | Sequence[str] | None = None,
    every: int = 1,
    dtype: str = "float32",
    seed: int = 2000,
    explore: bool = False,
    values: bool = True,
    labels: Mapping[str, LabelFn] | None = None,
    frames: bool | int = False,
    name: str = "recording",
    checkpoint: int | str | Sequence[int | str] = "last",
    n_envs: int | None = None,
    env: EnvConfig | None = None,
    device: str = "cpu",
) -> RecordingPlan:
    """What `record` with the same arguments would write; tries a few steps and writes nothing.

    Raises:
        SiteError, RecordingError, ConfigError, RunError, EnvError: as `record`, but for a file that is there already
            and a disk without room, which the plan only tells.
    """
    request = Request(
        episodes=episodes,
        sites=sites,
        agents=agents,
        every=every,
        dtype=dtype,
        seed=seed,
        explore=explore,
        values=values,
        frames=frames,
        checkpoint=checkpoint,
        n_envs=n_envs,
        env=env,
        device=device,
        labels=labels or {},
    )
    subject = as_policy_source(subject)
    origins = request.origins(subject)
    with prepare(subject, request.of(origins[0])) as prepared:
        return make_plan(prepared, recording_path(subject, name), checkpoints=len(origins))


def make_plan(prepared: Prepared, path: Path, *, checkpoints: int = 1) -> RecordingPlan:
    """The plan of a prepared request, to be written to `path`, of so many checkpoints alike."""
    request, trial, n_envs = prepared.request, prepared.trial, prepared.env.n_envs
    fields = tuple(trial.contents.fields)
    row_bytes = sum(field.row_bytes for field in fields)
    rows_each = ceil(trial.longest / request.every)
    episodes = checkpoints * request.episodes
    rows = episodes * rows_each
    frames = episodes * ceil(rows_each / int(request.frames)) if request.frames else 0
    recording_s = COPIES_IN_MEMORY * rows * row_bytes / WRITE_BYTES_PER_S
    return RecordingPlan(
        path=path,
        fields=fields,
        episodes=episodes,
        n_envs=n_envs,
        rows=rows,
        bounded=prepared.env.spec.max_steps is not None,
        size_bytes=rows * row_bytes + frames * trial.frame_bytes + FILE_OVERHEAD_BYTES,
        free_bytes=free_bytes(path),
        memory_bytes=n_envs * rows_each * row_bytes,
        time_s=checkpoints * ceil(request.episodes / n_envs) * trial.longest * trial.step_s + recording_s,
        recording_s=recording_s,
        frames=frames,
    )


def recording_path(subject: PolicySource, name: str) -> Path:
    """Where a subject keeps the recording of this name.

    Raises:
        RecordingError: the name is no file name.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise RecordingError(f"{name!r} cannot be a recording's name: give a file name without folders or ending")
    return subject.path / "recordings" / f"{name.removesuffix('.h5')}.h5"


def free_bytes(path: Path) -> int:
    """Free space where `path` will be."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    return shutil.disk_usage(folder).free


def _axes(field: Field) -> str:
    return " × ".join(["row", *(f"{length} {name}" for name, length in zip(field.dims, field.shape))])


def _size(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
