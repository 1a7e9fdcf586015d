"""Attribution: which observations, or which hidden units, drove which output of which agent, over a whole recording."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from marlnb.analysis.attribution.baselines import Baseline, Reference, deviations, resolve_reference
from marlnb.analysis.attribution.batch import Found, attribute_batch
from marlnb.analysis.attribution.feature_groups import Features
from marlnb.analysis.attribution.methods import COMPLETE, OF_DISTRIBUTION, Method, MethodOptions, check_method
from marlnb.analysis.attribution.outputs import Target, To, resolve_output
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.setup import (
    Asked,
    FeatureAxis,
    ask,
    chosen_policy,
    faithfulness_of,
    feature_axis,
    members_of,
    n_samples_of,
    tolerance,
)
from marlnb.analysis.attribution.storage import AttributionFile, beside
from marlnb.analysis.attribution.target import Sources
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from marlnb.training.progress import StatusLine

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

PATIENCE_S = 2.0  # before progress is shown


def attribute(
    recording: Recording,
    *,
    group: str,
    to: To = "action",
    target: Target = None,
    agent: str | None = None,
    site: str | None = None,
    method: Method = "integrated_gradients",
    baseline: Baseline | None = None,
    features: Features = "each",
    n_steps: int = 50,
    n_samples: int | None = None,
    n_baselines: int = 16,
    smooth: int = 0,
    noise: float = 0.1,
    sources: Sources | None = None,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    steps: Sequence[int] | None = None,
    batch_size: int = 1024,
    seed: int = 0,
    save: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Attribution:
    """What each observed feature, or hidden unit, contributed to one output of each agent, at every recorded step.

    A recurrent network is explained step by step: the state that entered the step is the recorded one, held fixed, so
    the values say what this step's observation added to it (`attribute_over_time` goes further back).

    Args:
        group: whose output is explained.
        to: action (the logit of the action taken, summed over the components of a multi-discrete one; the mean of a
            continuous one), logit (of a fixed choice), log_prob (of the action taken, or of a fixed choice; nats),
            value (the critic's, in reward), unit (a hidden one, in its activation).
        target: the choice's or component's index or name; (component, choice) for a multi-discrete logit;
            (site, unit) for a unit.
        agent: one agent of the group; None: all of them.
        site: explain by this site's units instead of by observations; `method="conductance"` needs one.
        method: conductance is by units, but integrates along the way of the observation; see `methods` for the others.
        baseline: what a feature is compared with. mean: its mean over the recording's living rows; zero; start: the
            mean over episodes' first rows; distribution: `n_baselines` rows drawn from the recording, over which values
            are averaged; ("episode", 3, "t", 0): that moment; or an array that broadcasts to `[agent, feature]` (for
            critics, a mapping group -> array). None: mean, or distribution for gradient_shap and deeplift_shap.
            There is no silent zero: a zero can be a real position.
        features: each; auto (groups that the names of features tell, as one's own velocity or the landmarks); or named
            groups of globs, `{"landmarks": ["landmark_*"]}`. Perturbations change a group together, of other methods
            the values are added.
        n_steps: quadrature points of integrated gradients and conductance.
        n_samples: permutations of shapley_value_sampling (25), or coalitions of kernel_shap (all, or 256 and two a
            feature).
        smooth, noise: average over so many noisy copies of each row; their deviation as a share of each feature's.
        sources: own (each agent's own observation), all (what agent k's output owes to each agent's observation),
            or state (of values: what they owe to the environment's state, observations held as they were); None: state
            for a critic that reads nothing else, all for other values and for actors whose agents hear one another
            (gnn), own otherwise.
        policies: by group; None: those of the checkpoint that made the recording.
        episodes: indices of the episodes to explain; None: all. checkpoint: of a recording that spans several.
        steps: those to explain, counted since their episode began; None: all.
        batch_size: rows read at once.
        seed: of everything that is drawn.
        save: write it as it goes along, batch by batch, to `<recording>.attributions/<save>.h5`, and map that into
            memory instead of holding it; one that broke off is gone on with. overwrite: replace a file of that name.
        progress: show rows done, where it takes long.
    Returns:
        values `[row, agent, feature]` in logits, nats, reward or activation, with convergence_delta `[row, agent]` in
        the same, or with infidelity and sensitivity for methods that do not promise to add up.
    Raises:
        AnalysisError: an unknown group, agent, site, output, target, feature or method; a critic that the recording
            cannot feed.
        ShapeError: the baseline does not broadcast.
    """
    source = RowSource(recording, group)
    spec = source.env.group(group)
    output = resolve_output(spec.action, to, target)
    if n_steps < 1 or batch_size < 1 or smooth < 0 or not noise >= 0:
        raise AnalysisError(
            "n_steps and batch_size must be at least 1, smooth and noise 0; got "
            f"{n_steps}, {batch_size}, {smooth} and {noise}"
        )
    method = check_method(method)
    policy = chosen_policy(policies if policies is not None else source.policies(checkpoint), group, output, source)
    members = members_of(spec, agent, policy, output, site)
    asked = ask(source, policy, output, members, sources, site, method)
    rows = source.rows(episodes, checkpoint, steps)
    baseline = baseline if baseline is not None else "distribution" if method in OF_DISTRIBUTION else "mean"
    if method in OF_DISTRIBUTION and not (isinstance(baseline, str) and baseline == "distribution"):
        raise AnalysisError(f"method={method!r} averages over baseline='distribution'; got {baseline!r}")
    recorded = source.rows(None, checkpoint)  # what is compared with does not depend on which rows are explained
    reference = resolve_reference(asked.question, source, recorded, baseline, n_baselines=n_baselines, seed=seed)
    axis = feature_axis(asked, features, source, recorded)
    if smooth and method == "conductance":
        raise AnalysisError(f"conductance is not averaged over noisy copies: smooth must be 0; got {smooth}")
    options = MethodOptions(method, n_steps, n_samples_of(method, n_samples, len(axis.names)), smooth, noise, seed)
    work = _Work(source, asked, rows, recorded, reference, axis, options, batch_size)
    result = work.unexplained(target=output.describe(spec.action))
    if save is not None:
        return _saved(work, result, save, overwrite, progress)
    parts = list(work.batches(progress))
    values, score, start = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return replace(result, values=values, score=score, baseline_score=start)


def _saved(work: _Work, result: Attribution, name: str, overwrite: bool, progress: bool) -> Attribution:
    """Written batch by batch; a break leaves what was done."""
    path = beside(work.source.recording.path, name)
    shape = (len(work.rows), len(result.agents), len(result.feature_names))
    file = AttributionFile(path, result.meta(), result.arrays(), shape, overwrite=overwrite)
    whole = False
    try:
        for part in work.batches(progress, file.done):
            file.add(*part)
        whole = True
    finally:
        file.close(complete=whole)
    return Attribution.load(path)


@dataclass(frozen=True)
class _Work:
    """All that is needed to explain the rows; `recorded` are all of the recording's."""

    source: RowSource
    asked: Asked
    rows: Rows
    recorded: Rows
    reference: Reference
    axis: FeatureAxis
    options: MethodOptions
    batch_size: int

    def batches(self, progress: bool, done: int = 0) -> Iterator[Found]:
        """Values, scores and baseline scores of each batch of rows, from row `done` on."""
        question, options = self.asked.question, self.options
        spread = deviations(question, self.source, self.recorded) if options.smooth else None
        left = Rows(self.rows.index[done:], self.rows.episode[done:], self.rows.t[done:])
        line, began = StatusLine() if progress else None, time.monotonic()
        for moments in self.source.batches(left, self.batch_size, needs_state=question.output.of_critic):
            generator = torch.Generator().manual_seed(options.seed * 1_000_003 + done)
            yield attribute_batch(
                question,
                moments,
                self.reference.values,
                options,
                groups=self.axis.groups,
                deviations=spread,
                layer=self.asked.layer,
                generator=generator,
            )
            done += len(moments.acting)
            if line is not None and line.due and time.monotonic() - began > PATIENCE_S:
                line.write(f"attribution: {done:,}/{len(self.rows):,} rows, {done / len(self.rows):.0%}")
        if line is not None:
            line.end()

    def unexplained(self, *, target: str) -> Attribution:
        """The result without its values."""
        question, options, axis = self.asked.question, self.options, self.axis
        output, spec = question.output, question.policy.group
        measured = options.method not in COMPLETE or options.smooth > 0
        faithfulness = None
        if measured:
            faithfulness = faithfulness_of(
                self.source, question, self.rows, self.recorded, self.reference, options, axis
            )
        nothing = np.zeros((0, len(question.members)), np.float32)
        return Attribution(
            values=np.zeros((0, len(question.members), len(axis.names)), np.float32),
            score=nothing,
            baseline_score=nothing,
            episode=self.rows.episode,
            t=self.rows.t,
            baseline=self._stored_baseline(),
            agents=tuple(spec.agents[k] for k in question.members),
            feature_names=axis.names,
            feature_agents=axis.owners,
            group=spec.name,
            to=output.to,
            target=target,
            units=output.units,
            method=options.method,
            n_steps=options.n_steps if options.method in ("integrated_gradients", "conductance") else 0,
            baseline_name=self.reference.name,
            sources=question.sources,
            origin=self.source.origin(),
            site="" if self.asked.site is None else self.asked.site.name,
            feature_groups=dict(axis.members or {}),
            tolerance=tolerance(question.policy, output),
            smooth=options.smooth,
            seed=options.seed,
            n_samples=options.n_samples,
            faithfulness=faithfulness,
        )

    def _stored_baseline(self) -> np.ndarray:
        """`[agent, feature]`, or `[baseline, agent, feature]` where there are several."""
        members, found = list(self.asked.question.members), self.reference.values
        by_agent = found[:, members] if found.ndim == 3 else found.unsqueeze(1).expand(-1, len(members), -1)
        return (by_agent[0] if len(by_agent) == 1 else by_agent).numpy().copy()
