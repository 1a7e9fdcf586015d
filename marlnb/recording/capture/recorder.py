"""record: plays episodes under a run's policies and writes what agents saw, did and had inside to one HDF5 file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from marlnb.config import EnvConfig
from marlnb.errors import RecordingError
from marlnb.models.hooks.edits import Edit
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.capture.existing_file import is_there
from marlnb.recording.capture.plan import RecordingPlan, make_plan, recording_path
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.capture.progress import EpisodeProgress, RecordingProgress, Telling
from marlnb.recording.capture.provenance import root_attributes
from marlnb.recording.capture.request import Fill, Request
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.opening import Locking
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segmented_writer import SegmentedWriter, open_writer
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.episodes import RolloutCallback, play
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import Origin


def record(
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
    exist: Literal["error", "open"] = "error",
    checkpoint: int | str | Sequence[int | str] = "last",
    n_envs: int | None = None,
    env: EnvConfig | None = None,
    device: str = "cpu",
    edits: Sequence[Edit] = (),
    fill: Fill = "recomputed",
    progress: bool = True,
    on_step: Callable[[RecordingProgress], None] | None = None,
    locking: Locking = None,
    segment_bytes: int | None = None,
) -> Recording:
    """Records episodes 0 to `episodes` - 1, episode k under `seed` + k, into `recordings/<name>.h5` of the subject.

    Observations, actions, logits, log-probabilities, rewards, ends and masks are always recorded, and the
    environment's own labels. A process that is killed loses the episodes in progress and the block being gathered
    (at most 32 MiB, or what came in the last seconds); the file opens as it is.

    Args:
        subject: a run or its folder, or agents from elsewhere (`marlnb.Agents`).
        episodes: how many are played, of each checkpoint.
        seed: of the first episode.
        name: of the file.
        sites: globs over site names, as `"listener/actor/hidden_*"`, of actors and critics; `[]`: none.
        agents: names or globs; None: all.
        every: keeps the steps t = 0, `every`, 2 `every`, ... of each episode.
        dtype: float32, float16 or bfloat16, of activations and recurrent states; everything else keeps its own.
        explore: sample actions; otherwise take the most likely.
        values: run the critics, where the policies have them, and record what they estimate.
        labels: by name, functions of the moment before each step that return `[env]` or `[env, agent]`. A label of
            agents belongs to the one group of that size, or is named `<group>/<name>`.
        fill: how actors' sites are filled. recomputed: from what was recorded, many rows at once, equal to float32's
            rounding to what fired; captured: as they fire, step by step, the same bits. Edits are always captured.
        frames: rendered images of every recorded step, or of every k-th.
        exist: "open" returns a complete recording of this name if it was made from the same checkpoint with the same
            settings; an incomplete one is kept under another name and made anew.
        checkpoint: "last", "best" or an iteration; several of them, or "all" that are there: one file, with the same
            episodes under the same seeds for each, in that order; those of the k-th are numbered from k × `episodes`.
        n_envs: copies played at once; by default as in the training, at most 32. With 1, a kill loses at most a block.
        env: another environment whose groups have the same names, sizes and spaces.
        edits: interventions in the policies' sites, in force while the episodes are played; `settings` tells them.
        on_step: called before each step of all copies; what it raises ends the recording, and the episodes that had
            ended stay, marked incomplete.
        locking: HDF5's file locking, as h5py takes it; False for file systems without locks.
        segment_bytes: write segments of about this size into `recordings/<name>.segments/`, joined as
            `recordings/<name>.h5`; None: one file.
    Raises:
        SiteError: a pattern that matches no site, or a site that never fires.
        RecordingError: a recording of this name is there already; the disk has no room, before the start or
            later (then what was written stays, marked incomplete); another option that cannot be met.
        RunError, CheckpointError, ConfigError, EnvError: the run or the environment cannot be opened.
    """
    if exist not in ("error", "open"):
        raise RecordingError(f"exist must be 'error' or 'open'; got {exist!r}")
    if segment_bytes is not None and segment_bytes < 1:
        raise RecordingError(f"segment_bytes must be 1 or more, or None for one file; got {segment_bytes}")
    subject = as_policy_source(subject)
    path = recording_path(subject, name)
    if exist == "error" and path.exists():
        raise RecordingError(f"{path} is there already; give another name, or exist='open' to use it")
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
        edits=tuple(edits),
        fill=fill,
    )
    origins = request.origins(subject)
    with prepare(subject, request.of(origins[0])) as prepared:
        attributes = root_attributes(prepared) | _of_checkpoints(prepared, origins)
        total = episodes * len(origins)
        if exist == "open" and is_there(path, json.loads(attributes["settings"]), locking):
            with EpisodeProgress(f"recording {path.stem}", total, shown=progress) as shown:
                shown.add(total)  # a notebook executed again shows what the first time showed
            return Recording.open(path, locking=locking)
        plan = make_plan(prepared, path, checkpoints=len(origins))
        plan.check()
        others = (prepare(subject, request.of(origin)) for origin in origins[1:])
        write_recording(
            [nullcontext(prepared), *others],
            plan,
            attributes,
            progress=progress,
            on_step=on_step,
            locking=locking,
            segment_bytes=segment_bytes,
        )
    return Recording.open(path, locking=locking)


def write_recording(
    preparations: Sequence[AbstractContextManager[Prepared]],
    plan: RecordingPlan,
    attributes: Mapping[str, Any],
    *,
    first_episode: int = 0,
    progress: bool = False,
    on_step: Callable[[RecordingProgress], None] | None = None,
    locking: Locking = None,
    segment_bytes: int | None = None,
) -> None:
    """Plays and writes; the file is closed whatever happens, complete only if nothing did.

    Args:
        preparations: of each checkpoint in turn, entered one after the other; the first is `plan`'s.
        first_episode: the number of the first checkpoint's first episode; the others' follow.
    """
    writer: RecordingWriter | SegmentedWriter | None = None
    frames: FrameStore | None = None
    complete = False
    total = plan.episodes
    with EpisodeProgress(f"recording {plan.path.stem}", total, shown=progress) as shown:
        try:
            for place, preparation in enumerate(preparations):
                with preparation as prepared:
                    request, trial = prepared.request, prepared.trial
                    if writer is None:
                        if request.frames:
                            frames = FrameStore(request.every * int(request.frames), trial.frame_shape)
                        writer = open_writer(
                            plan.path,
                            plan.fields,
                            attributes,
                            _agents(prepared),
                            expected_rows=plan.rows,
                            segment_bytes=segment_bytes,
                            frames=frames,
                            locking=locking,
                        )
                        writer.describe(_dataset_attributes(prepared))
                    number = first_episode + place * request.episodes
                    _play(prepared, plan, writer, frames, number, shown, on_step)
            complete = True
        finally:
            if writer is not None:
                writer.close(complete=complete)


def _play(
    prepared: Prepared,
    plan: RecordingPlan,
    writer: RecordingWriter | SegmentedWriter,
    frames: FrameStore | None,
    first_episode: int,
    shown: EpisodeProgress,
    on_step: Callable[[RecordingProgress], None] | None,
) -> None:
    """Adds the episodes of one checkpoint."""
    request = prepared.request
    writer.enter_checkpoint(*prepared.origin)
    recorder = EpisodeRecorder(
        prepared.env,
        prepared.trial.contents,
        writer,
        every=request.every,
        activations=prepared.activations,
        frames=frames,
        on_episodes=shown.add,
        first_episode=first_episode,
        fields=plan.fields,
    )
    callback: RolloutCallback = recorder
    if on_step is not None:
        tell = on_step
        callback = Telling(recorder, lambda: tell(RecordingProgress(plan.path, shown.done, plan.episodes, writer.rows)))
    try:
        play(
            prepared.env,
            prepared.policies,
            episodes=request.episodes,
            seed=request.seed,
            explore=request.explore,
            generator=prepared.generator(),
            callback=callback,
        )
    finally:
        recorder.settle()  # also what had ended before an interrupt


def _of_checkpoints(prepared: Prepared, origins: Sequence[Origin]) -> dict[str, Any]:
    """Attributes of a recording that spans checkpoints: it says the last one of itself, `/checkpoints` all."""
    if len(origins) == 1:
        return {}
    settings = {**prepared.settings, "checkpoint": [origin.sha256 for origin in origins]}
    last = origins[-1]
    return {"checkpoint": last.sha256, "iteration": last.iteration, "settings": json.dumps(settings, sort_keys=True)}


def _agents(prepared: Prepared) -> dict[str, list[Any]]:
    """Columns of `/agents`: `policy_index` counts a group's networks, 0 where its agents share one."""
    columns: dict[str, list[Any]] = {"id": [], "name": [], "group": [], "policy_index": []}
    for selection in prepared.trial.contents.selections:
        group = selection.group
        networks = prepared.subject.policy_index(group)
        for index in selection.indices:
            columns["id"].append(prepared.env.spec.agents.index(group.agents[index]))
            columns["name"].append(group.agents[index])
            columns["group"].append(group.name)
            columns["policy_index"].append(networks[index])
    return columns


def _dataset_attributes(prepared: Prepared) -> dict[str, dict[str, Any]]:
    """Names of features, choices and classes, by dataset; of activations, how they came about."""
    found: dict[str, dict[str, Any]] = {}
    for selection in prepared.trial.contents.selections:
        group = selection.group
        found[f"steps/{group.name}/observation"] = {"names": list(group.observation.names)}
        found[f"steps/{group.name}/action"] = {"names": list(group.action.names)}
    for label in prepared.env.spec.labels:
        found[f"labels/{label.name}"] = {"classes": list(label.classes)}
    found = {path: names for path, names in found.items() if any(names.values())}
    recomputed = prepared.trial.contents.recomputed
    for site in prepared.sites:
        found[f"activations/{site.name}"] = {"filled": "recomputed" if site.name in recomputed else "captured"}
    return found
