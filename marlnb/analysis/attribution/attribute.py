"""Attribution: which observations, or which hidden units, drove which output of which agent, over a whole recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from marlnb.analysis.attribution.baselines import ResolvedBaseline, baselines_by_class, deviations, resolve_baseline
from marlnb.analysis.attribution.batch import BatchResult, attribute_batch
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.faithfulness import N_ROWS, Faithfulness, measure_faithfulness
from marlnb.analysis.attribution.outputs import resolve_output
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.storage import AttributionFile, attribution_path
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.attribution.task import (
    AttributionTask,
    FeatureAxis,
    build_task,
    choose_policy,
    convergence_tolerance,
    explained_agents,
    feature_axis,
)
from marlnb.analysis.data.row_condition import rows_where
from marlnb.analysis.data.rows import RowBatch, Rows, RowSource
from marlnb.analysis.data.strata import strata_of
from marlnb.config import accepts_options, resolve_config
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from marlnb.training.progress import StatusLine

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MIN_TIME_FOR_PROGRESS_S = 2.0


@accepts_options(AttributionConfig)
def attribute(
    recording: Recording,
    config: AttributionConfig | None = None,
    *,
    policies: Mapping[str, Policy] | None = None,
    save: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
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
        progress: print the rows done, if it takes long.
        overrides: single options, as `method="saliency"`.
    Returns:
        values `[row, agent, feature]` in logits, nats, reward, action or activation, with convergence_delta
        `[row, agent]` in the same units, or with infidelity and sensitivity for methods whose values need not add up.
    Raises:
        ConfigError: an unknown option or method, or a value out of range.
        AnalysisError: an unknown group, agent, site, output, target or feature, or inputs that were not recorded.
        ShapeError: the baseline does not broadcast.
    """
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
    run = AttributionRun(source, task, rows, selected, recorded, baseline, axis, config, classes)
    result = run.empty_result()
    if save is not None:
        path, shape = attribution_path(recording.path, save), (len(rows), len(members), len(axis.names))
        with AttributionFile(path, result.meta(), result.arrays(), shape, overwrite=overwrite) as file:
            for batch_result in run.batches(progress, file.done):
                file.append(*batch_result)  # an interruption leaves what was done
        return Attribution.load(path)
    values, score, baseline_score = (np.concatenate(arrays) for arrays in zip(*run.batches(progress)))
    return replace(result, values=values, score=score, baseline_score=baseline_score)


@dataclass(frozen=True)
class GivenClasses:
    """The classes of what is given, each with its baseline.

    Attributes:
        index: `[row, agent of the group]`, the class of each explained row; -1 where it is unknown.
        baselines: by class.
        given: names of what is given.
    """

    index: np.ndarray
    baselines: Sequence[ResolvedBaseline]
    given: tuple[str, ...]

    @staticmethod
    def of(
        target: AttributionTarget, source: RowSource, recorded: Rows, rows: Rows, config: AttributionConfig
    ) -> GivenClasses:
        """The classes that the recording has.

        Raises:
            AnalysisError: an unknown name, a quantity, or an output that no agent's own observation explains.
        """
        names = [config.given] if isinstance(config.given, str) else list(config.given or ())
        strata = strata_of(source, recorded, [*names])
        baselines = baselines_by_class(target, source, recorded, config, strata)
        positions = np.searchsorted(recorded.index, rows.index)
        return GivenClasses(strata.index[positions], baselines, strata.given)

    @property
    def all_baselines(self) -> ResolvedBaseline:
        """The baselines of all classes, one after the other."""
        values = torch.cat([baseline.values for baseline in self.baselines])
        return ResolvedBaseline(values, f"rows with the same {', '.join(self.given)}")


@dataclass(frozen=True)
class AttributionRun:
    """All that is needed to explain the rows.

    Attributes:
        source: the recording, as the group sees it.
        task: the target, and the layer of conductance.
        rows: to be explained.
        selected: `[row, agent of the group]` bool, which agents are explained at which rows.
        recorded: all rows of the recording.
        baseline: what the output is compared with.
        axis: the features.
        config: the options.
        classes: of what is given, with their baselines; None where nothing is.
    """

    source: RowSource
    task: AttributionTask
    rows: Rows
    selected: np.ndarray
    recorded: Rows
    baseline: ResolvedBaseline
    axis: FeatureAxis
    config: AttributionConfig
    classes: GivenClasses | None = None

    def batches(self, progress: bool, done: int = 0) -> Iterator[BatchResult]:
        """Values, scores and baseline scores of each batch of rows, from row `done` on."""
        target, config = self.task.target, self.config
        spread = deviations(target, self.source, self.recorded) if config.smooth else None
        status, started = StatusLine() if progress else None, time.monotonic()
        remaining = self.rows.at(slice(done, None))
        explain_batch = partial(attribute_batch, groups=self.axis.groups, deviations=spread, layer=self.task.layer)
        for batch in self.source.batches(remaining, config.batch_size, needs_state=target.output.of_critic):
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + done)
            part = slice(done, done + len(batch.acting))
            batch = replace(batch, acting=batch.acting & torch.from_numpy(self.selected[part]))
            explain_rows = partial(explain_batch, target, config=config, generator=generator)
            if self.classes is None:
                yield explain_rows(batch, self.baseline.values)
            else:
                yield self._by_class(batch, self.classes, part, explain_rows)
            done += len(batch.acting)
            if status is not None and status.due and time.monotonic() - started > MIN_TIME_FOR_PROGRESS_S:
                status.write(f"attribution: {done:,}/{len(self.rows):,} rows, {done / len(self.rows):.0%}")
        if status is not None:
            status.end()

    def _by_class(
        self, batch: RowBatch, classes: GivenClasses, part: slice, explain_rows: Callable[..., BatchResult]
    ) -> BatchResult:
        """The rows of each class, explained against the baseline of their class."""
        members = list(self.task.target.members)
        index = np.where(batch.acting[:, members].numpy(), classes.index[part][:, members], -1)
        shape = index.shape
        results = [np.full((*shape, *more), np.nan, np.float32) for more in ((len(self.axis.names),), (), ())]
        for k in np.unique(index[index >= 0]):
            rows = np.flatnonzero((index == k).any(axis=1))
            of_class = index[rows] == k
            for result, values in zip(
                results, explain_rows(batch.at(torch.from_numpy(rows)), classes.baselines[k].values)
            ):
                merged = result[rows]
                merged[of_class] = values[of_class]
                result[rows] = merged
        return results[0], results[1], results[2]

    def empty_result(self) -> Attribution:
        """The result without values and scores."""
        target, config, axis = self.task.target, self.config, self.axis
        output, spec, method = target.output, target.policy.group, config.settings
        no_scores = np.zeros((0, len(target.members)), np.float32)
        members, values = list(target.members), self.baseline.values
        by_agent = values[:, members] if values.ndim == 3 else values.unsqueeze(1).expand(-1, len(members), -1)
        return Attribution(
            values=np.zeros((0, len(target.members), len(axis.names)), np.float32),
            score=no_scores,
            baseline_score=no_scores,
            episode=self.rows.episode,
            t=self.rows.t,
            baseline=(by_agent[0] if len(by_agent) == 1 else by_agent).numpy().copy(),
            agents=tuple(spec.agents[k] for k in target.members),
            feature_names=axis.names,
            feature_agents=axis.owners,
            group=spec.name,
            to=output.to,
            target=output.describe(spec.action),
            units=output.units,
            method=config.method,
            n_steps=config.n_steps if method.integrates else 0,
            baseline_name=self.baseline.name,
            sources=target.sources,
            origin=self.source.origin(),
            site="" if self.task.site is None else self.task.site.name,
            feature_groups=dict(axis.members or {}),
            tolerance=convergence_tolerance(target.policy, output),
            smooth=config.smooth,
            seed=config.seed,
            rows=config.rows or "",
            given=() if self.classes is None else self.classes.given,
            n_samples=config.n_samples or method.default_n_samples(len(axis.names)),
            faithfulness=None if config.complete else self.sampled_faithfulness(),
        )

    def sampled_faithfulness(self) -> Faithfulness | None:
        """Faithfulness over a seeded sample of the rows; None if no agent acts at any of them.

        With something given it is measured in the largest class, against its baseline.
        """
        source, target, config = self.source, self.task.target, self.config
        selected, baseline, candidates = self.selected, self.baseline, np.arange(len(self.rows))
        if self.classes is not None:
            index = np.where(selected, self.classes.index, -1)[:, list(target.members)]
            if not (index >= 0).any():
                return None
            largest = int(np.bincount(index[index >= 0]).argmax())
            selected, baseline = selected & (self.classes.index == largest), self.classes.baselines[largest]
            candidates = np.flatnonzero(selected[:, list(target.members)].any(axis=1))
        n_drawn = min(N_ROWS, len(candidates))
        drawn = candidates[np.sort(np.random.default_rng(config.seed).choice(len(candidates), n_drawn, replace=False))]
        sample = self.rows.at(drawn)
        (batch,) = source.batches(sample, len(sample), needs_state=target.output.of_critic)
        batch = replace(batch, acting=batch.acting & torch.from_numpy(selected[drawn]))
        if config.method == "gradient_shap":  # each of its draws is one more pass
            batch = batch.at(slice(0, N_ROWS // 2))
        inputs = target.inputs(batch)
        examples = target.examples(batch, inputs)
        acting = batch.acting[:, list(target.members)]
        if not acting.any():
            return None
        counted = torch.zeros(len(inputs), examples.n_agents, dtype=torch.bool)
        counted[:, examples.explained] = acting
        spread = target.baseline(deviations(target, source, self.recorded), len(inputs))
        baselines = [target.baseline(values, len(inputs)) for values in baseline.values]
        return measure_faithfulness(
            examples, baselines, config, acting=counted.reshape(-1), groups=self.axis.groups, deviations=spread
        )
