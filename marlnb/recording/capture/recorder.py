"""record: plays episodes under a run's policies and writes observations, actions and activations to one HDF5 file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from marlnb.config import accepts_options, resolve_config
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import RecordingError
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.capture.existing_file import reuse_or_set_aside
from marlnb.recording.capture.labels import reset_labels
from marlnb.recording.capture.plan import RecordingPlan, make_plan, recording_path
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.capture.progress import EpisodeProgress, RecordingProgress, ReportingCallback
from marlnb.recording.capture.provenance import agent_columns, root_attributes
from marlnb.recording.capture.sources import computed_dtype
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.opening import Locking
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segmented_writer import SegmentedWriter
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.episodes import RolloutCallback, play
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run import Origin


@closing_pools()
@accepts_options(RecordingConfig)
def record(
    policy_source: PolicySourceLike,
    config: RecordingConfig | None = None,
    *,
    exist: Literal["error", "open"] = "error",
    progress: bool = True,
    on_step: Callable[[RecordingProgress], None] | None = None,
    locking: Locking = None,
    trust: bool = False,
    **overrides: Any,
) -> Recording:
    """Records episodes 0 to `episodes` - 1 into `recordings/<name>.h5` in the source's folder.

    Observations, actions, logits, log-probabilities, rewards, ends, masks and the environment's own labels are always
    recorded. Episode k runs under `seed` + k. With several checkpoints, each plays the same episodes in turn; those of
    the k-th checkpoint are numbered from k * `episodes`. A process that is killed loses the unfinished episodes and the
    block being filled (at most 32 MiB, or the last seconds; with `n_envs=1` only the block). The file opens as it is.

    Args:
        policy_source: a run or its folder, or agents from elsewhere (`marlnb.Agents`).
        config: the options; None: the defaults.
        exist: "open" returns an existing complete recording of this name if it was made from the same checkpoint with
            the same settings; label functions are compared by their names only. An incomplete one is renamed and
            recorded again.
        progress: show a line with the number of episodes.
        on_step: called after each step of all envs. If it raises, the recording ends; finished episodes are kept and
            the file is marked incomplete.
        locking: HDF5's file locking, as h5py takes it; False for file systems without locks.
        trust: allow the code that another person's run folder names; those of your own training runs need none.
        overrides: options that replace those of `config`, such as `episodes=50`.
    Raises:
        TrustError: the folder names code that the user does not trust; the message says which, and nothing was run.
        SiteError: a pattern matches no site, or a site never fires.
        RecordingError: a recording of this name exists; the disk is full, before the start or later (what was written
            is kept, marked incomplete); or another option cannot be met.
        RunError, CheckpointError, ConfigError, EnvError: the run or the environment cannot be opened.
    """
    options = resolve_config(RecordingConfig, config, overrides)
    reset_labels(options.labels)
    if exist not in ("error", "open"):
        raise RecordingError(f"exist must be 'error' or 'open'; got {exist!r}")
    policy_source = as_policy_source(policy_source, trust=trust)
    path = recording_path(policy_source, options.name)
    if exist == "error" and path.exists():
        raise RecordingError(f"{path} already exists; give another name, or exist='open' to use it")
    origins = options.origins(policy_source)
    with prepare(policy_source, replace(options, checkpoint=origins[0].iteration)) as prepared:
        attributes = root_attributes(prepared) | _checkpoint_attributes(prepared, origins)
        n_episodes = options.episodes * len(origins)
        if exist == "open" and reuse_or_set_aside(path, json.loads(attributes["settings"]), locking):
            with EpisodeProgress(path.name, n_episodes, shown=progress) as shown:
                shown.add(n_episodes)  # a notebook that runs again shows the same line as the first time
            return Recording.open(path, locking=locking)
        plan = make_plan(prepared, path, checkpoints=len(origins))
        plan.check()
        others = (prepare(policy_source, replace(options, checkpoint=origin.iteration)) for origin in origins[1:])
        write_recording(
            [nullcontext(prepared), *others], plan, attributes, progress=progress, on_step=on_step, locking=locking
        )
    return Recording.open(path, locking=locking)


@closing_pools()
def write_recording(
    preparations: Sequence[AbstractContextManager[Prepared]],
    plan: RecordingPlan,
    attributes: Mapping[str, Any],
    *,
    first_episode: int = 0,
    progress: bool = False,
    on_step: Callable[[RecordingProgress], None] | None = None,
    locking: Locking = None,
) -> None:
    """Plays and writes. The file is closed in any case, and marked complete only if nothing was raised.

    Args:
        preparations: one per checkpoint, entered one after the other; `plan` is made from the first.
        first_episode: the number of the first checkpoint's first episode.
    """
    writer: RecordingWriter | SegmentedWriter | None = None
    frames: FrameStore | None = None
    complete = False
    with EpisodeProgress(plan.path.name, plan.episodes, shown=progress) as shown:
        try:
            for index, preparation in enumerate(preparations):
                with preparation as prepared:
                    config = prepared.config
                    if writer is None:
                        if config.frames:
                            frames = FrameStore(config.every * config.frames, prepared.dry_run.frame_shape)
                        new_writer: Callable[..., RecordingWriter | SegmentedWriter] = RecordingWriter
                        if config.segment_bytes is not None:
                            new_writer = partial(SegmentedWriter, segment_bytes=config.segment_bytes)
                        selections = prepared.dry_run.schema.selections
                        content = (
                            plan.path,
                            plan.fields,
                            attributes,
                            agent_columns(prepared.policy_source, prepared.env.spec, selections),
                        )
                        writer = new_writer(*content, expected_rows=plan.rows, frames=frames, locking=locking)
                        writer.describe(_dataset_attributes(prepared))
                    first = first_episode + index * config.episodes
                    _play(prepared, plan, writer, frames, first, shown, on_step)
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
    """Plays and writes the episodes of one checkpoint."""
    config = prepared.config
    writer.enter_checkpoint(*prepared.origin)
    recorder = EpisodeRecorder(
        prepared.env,
        prepared.dry_run.schema,
        writer,
        every=config.every,
        activations=prepared.activations,
        frames=frames,
        on_episodes=shown.add,
        first_episode=first_episode,
        fields=plan.fields,
    )
    callback: RolloutCallback = recorder
    if on_step is not None:
        report = on_step
        callback = ReportingCallback(
            recorder, lambda: report(RecordingProgress(plan.path, shown.done, plan.episodes, writer.rows))
        )
    try:
        play(
            prepared.env,
            prepared.policies,
            episodes=config.episodes,
            seed=config.seed,
            explore=config.explore,
            generator=prepared.generator(),
            callback=callback,
        )
    finally:
        recorder.write_finished()  # also after an interrupt


def _checkpoint_attributes(prepared: Prepared, origins: Sequence[Origin]) -> dict[str, Any]:
    """Root attributes of a recording of several checkpoints: the last one; `/checkpoints` lists all."""
    if len(origins) == 1:
        return {}
    settings = {**prepared.settings, "checkpoint": [origin.sha256 for origin in origins]}
    last = origins[-1]
    return {"checkpoint": last.sha256, "iteration": last.iteration, "settings": json.dumps(settings, sort_keys=True)}


def _dataset_attributes(prepared: Prepared) -> dict[str, dict[str, Any]]:
    """By dataset: names of features, choices and classes; of activations, how they were filled."""
    attributes: dict[str, dict[str, Any]] = {}
    schema = prepared.dry_run.schema
    for selection in schema.selections:
        group = selection.group
        if group.observation.names:
            attributes[f"steps/{group.name}/observation"] = {"names": list(group.observation.names)}
        if group.action.names:
            attributes[f"steps/{group.name}/action"] = {"names": list(group.action.names)}
    for label in prepared.env.spec.labels:
        if label.classes:
            attributes[f"labels/{label.name}"] = {"classes": list(label.classes)}
    for site in prepared.sites:
        filled = "recomputed" if site.name in schema.recomputed else "captured"
        computed = computed_dtype(prepared.policies[site.group], site)
        attributes[f"activations/{site.name}"] = {"filled": filled, "computed": computed}
    return attributes
