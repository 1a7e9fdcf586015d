"""One attribution over a recording: batches of rows, each against its baseline, and what the result says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from marlnb.analysis.attribution.baselines import ResolvedBaseline, baselines_by_class, deviations
from marlnb.analysis.attribution.batch_attribution import BatchResult, attribute_batch
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.faithfulness import N_ROWS, Faithfulness, measure_faithfulness
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.attribution.task import AttributionTask, FeatureAxis, convergence_tolerance
from marlnb.analysis.data.rows import RowBatch, Rows, RowSource
from marlnb.analysis.data.strata import strata_of
from marlnb.analysis.progress import AnalysisProgress
from marlnb.training.policies.agents import weights_sha256


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
class RowsToExplain:
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

    def batches(self, progress: AnalysisProgress, done: int = 0) -> Iterator[BatchResult]:
        """Values, scores and baseline scores of each batch of rows, from row `done` on; `progress` counts the rows."""
        target, config = self.task.target, self.config
        spread = deviations(target, self.source, self.recorded) if config.smooth else None
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
            progress.add(len(batch.acting))

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
        weights = weights_sha256({spec.name: target.policy})
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
            origin=self.source.origin(config.checkpoint) | {"weights_sha256": weights},
            site="" if self.task.site is None else self.task.site.name,
            feature_groups=dict(axis.members or {}),
            tolerance=convergence_tolerance(target.policy, output),
            smooth=config.smooth,
            noise=config.noise if config.smooth else 0.0,
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
