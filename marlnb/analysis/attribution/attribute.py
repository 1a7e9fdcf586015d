"""Attribution: which observations, or which hidden units, drove which output of which agent, over a whole recording."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from marlnb.analysis.attribution.attribution_rows import GivenClasses, RowsToExplain
from marlnb.analysis.attribution.baselines import resolve_baseline
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.outputs import resolve_output
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.storage import AttributionFile, attribution_path
from marlnb.analysis.attribution.task import build_task, choose_policy, explained_agents, feature_axis
from marlnb.analysis.data.row_condition import rows_where
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.progress import AnalysisProgress
from marlnb.config import accepts_options, resolve_config
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording


@accepts_options(AttributionConfig)
def attribute(
    recording: RecordingLike,
    config: AttributionConfig | None = None,
    *,
    policies: Mapping[str, Policy] | None = None,
    save: str | None = None,
    overwrite: bool = False,
    progress: bool | AnalysisProgress = True,
    **overrides: Any,
) -> Attribution:
    """Attributes one output of each agent to its observed features, or hidden units, at every recorded step.

    A recurrent network is explained step by step. The state that entered the step is the recorded one, held fixed, so
    the values are what this step's observation contributed; `attribute_over_time` goes further back.

    Args:
        recording: the recording to explain.
        config: the options; None: the defaults, with `overrides`.
        policies: by group; None: those of the checkpoint that made the recording.
        save: write the values batch by batch to `<recording>.attributions/<save>.h5`, and map that file into memory
            instead of holding them; an interrupted file is continued.
        overwrite: replace a file of that name.
        progress: show the rows done, if it takes more than two seconds; or a progress that expects and
            counts them.
        overrides: single options, such as `method="saliency"`.
    Returns:
        values `[row, agent, feature]` in logits, nats, reward, action or activation, with convergence_delta
        `[row, agent]` in the same units, or with infidelity and sensitivity for methods whose values need not add up.
    Raises:
        ConfigError: an unknown option or method, or a value out of range.
        AnalysisError: an unknown group, agent, site, output, target or feature, or inputs that were not recorded.
        ShapeError: the baseline does not broadcast.
    """
    recording = opened_recording(recording)
    if overrides.get("episodes") is not None:
        overrides["episodes"] = tuple(recording.episode_numbers(overrides["episodes"]))
    config = resolve_config(AttributionConfig, config, overrides)
    source = RowSource(recording, config.group)
    spec = source.env.group(config.group)
    output = resolve_output(spec.action, config.to, config.target)
    policy = choose_policy(source, policies, config.checkpoint, output)
    members = explained_agents(spec, config.agent, policy, output, config.site)
    task = build_task(source, policy, output, members, config)
    rows = source.rows(config.episodes, config.checkpoint, config.steps)
    selected = rows_where(source, rows, config.rows)
    chosen = np.asarray(selected[:, list(members)].any(axis=1))
    if not chosen.any():
        raise AnalysisError(f"rows={config.rows!r} selects no row of the explained agents")
    rows, selected = rows.at(chosen), selected[chosen]
    recorded = source.rows(None, config.checkpoint)  # a baseline must not depend on which rows are explained
    classes = None if config.given is None else GivenClasses.of(task.target, source, recorded, rows, config)
    baseline = resolve_baseline(task.target, source, recorded, config) if classes is None else classes.all_baselines
    axis = feature_axis(task, config.features, source, recorded)
    to_explain = RowsToExplain(source, task, rows, selected, recorded, baseline, axis, config, classes)
    result = to_explain.empty_result()
    if save is not None:
        path, shape = attribution_path(recording.path, save), (len(rows), len(members), len(axis.names))
        with AttributionFile(path, result.meta(), result.arrays(), shape, overwrite=overwrite) as file:
            with _shown(progress, config.group, len(rows) - file.done) as shown:
                for batch_result in to_explain.batches(shown, file.done):
                    file.append(*batch_result)  # an interruption leaves what was done
        return Attribution.load(path)
    with _shown(progress, config.group, len(rows)) as shown:
        values, score, baseline_score = (np.concatenate(arrays) for arrays in zip(*to_explain.batches(shown)))
    return replace(result, values=values, score=score, baseline_score=baseline_score)


def _shown(progress: bool | AnalysisProgress, group: str, n_rows: int) -> AbstractContextManager[AnalysisProgress]:
    """The progress that counts the rows; a caller's own is not ended here."""
    if isinstance(progress, AnalysisProgress):
        return nullcontext(progress)
    return AnalysisProgress(f"attribution of {group}", "rows", n_rows, shown=progress)
