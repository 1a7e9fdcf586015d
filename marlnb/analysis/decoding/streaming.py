"""Decode a site that does not fit into memory: read the file in batches of whole episodes and keep only sums.

The models, labels, folds and shuffles are those of the in-memory fits. Ridge regression takes one pass over the file,
logistic regression takes passes for sums, for gradient steps and for hits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from marlnb.analysis.data.policy_activations import is_function_of_observation, policy_activations, untrained_policy
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.decoding.linear_decoder import LinearFit
from marlnb.analysis.decoding.problem import (
    DecodingOutcome,
    DecodingSettings,
    DecodingTarget,
    Diagnostics,
    assemble_outcome,
    check_label,
    warn_of_shuffles,
)
from marlnb.analysis.decoding.score import Gain
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.stats.linear_models import FoldScores
from marlnb.analysis.stats.streaming_logistic import STEP_ROWS, STEPS, StreamingLogistic, balanced_accuracy_from_counts
from marlnb.analysis.stats.streaming_problems import StreamedTargets
from marlnb.analysis.stats.streaming_ridge import RidgeSums, ridge_from_sums
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy

BATCH_ROWS = 16384
MAX_CACHED_BATCHES = 2
Views = dict[str, Callable[[int, int], np.ndarray]]
"""By name (site, observation, untrained): reads the selected rows between two positions of `_RowBatches.rows`."""


@dataclass(frozen=True)
class _RowBatches:
    """The rows of one problem, batch by batch.

    Attributes:
        source: the recording.
        rows: all rows of the recording's chosen episodes.
        site: the decoded site.
        agent: the decoded agent.
        selected: ascending positions in `rows` of the problem's rows.
        bounds: first and last position in `rows` of each batch.
    """

    source: RowSource
    rows: Rows
    site: str
    agent: str
    selected: np.ndarray
    bounds: list[tuple[int, int]]

    def activations(self, start: int, stop: int) -> np.ndarray:
        array = self.source.recording[self.site].sel(agent=self.agent)
        return array.read_rows(self.rows.index[self._selected(start, stop)])

    def observations(self, start: int, stop: int) -> np.ndarray:
        array = self.source.recording.steps(self.source.group, "observation").sel(agent=self.agent)
        values = array.read_rows(self.rows.index[self._selected(start, stop)])
        return values.reshape(len(values), -1)

    def untrained(self, policy: Policy, start: int, stop: int) -> np.ndarray:
        rows = Rows(self.rows.index[start:stop], self.rows.episode[start:stop], self.rows.t[start:stop])
        values = policy_activations(self.source, policy, self.site, rows)
        member = self.source.env.group(self.source.group).agents.index(self.agent)
        return np.asarray(values[self._selected(start, stop) - start, member])

    def __iter__(self) -> Iterator[tuple[slice, int, int]]:
        """For each batch its slice of the problem's rows, and its first and last position in `rows`."""
        for start, stop in self.bounds:
            first, last = np.searchsorted(self.selected, (start, stop))
            if last > first:
                yield slice(int(first), int(last)), start, stop

    def _selected(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self.selected, (start, stop))
        return self.selected[first:last]


def solve_streaming(
    source: RowSource,
    rows: Rows,
    selected: np.ndarray,
    target: DecodingTarget,
    settings: DecodingSettings,
    diagnostics: Diagnostics,
    *,
    progress: bool,
) -> DecodingOutcome:
    """The outcome for one agent, over all time steps or at one.

    Args:
        selected: ascending positions in `rows` of the target's rows.
    Raises:
        AnalysisError: activations that are not finite or never vary; `at="each"`, which is not streamed.
    """
    site, agent = target.site, target.agent
    if settings.at == "each":
        raise AnalysisError(
            f"{site} needs more than memory_bytes and is streamed, which at='each' does not support: use one time "
            "step (at=3), at='all', or a larger memory_bytes"
        )
    t = None if settings.at == "all" else settings.at
    if t is not None:
        selected, target = selected[target.t == t], target.select(target.t == t)
        check_label(f"{agent} at t={t}", target.y, target.episode, settings)
        target = target.with_full_folds(settings)
    kind = settings.classes.kind
    targets = StreamedTargets(target.y, target.episode, target.t, target.fold, kind, settings.n_shuffles, settings.seed)
    batches = _RowBatches(source, rows, site, agent, selected, _batch_bounds(rows.episode))
    views: Views = {"site": batches.activations, "observation": batches.observations}
    policy, messages = untrained_policy(source, site, rows, settings.seed)
    diagnostics.messages.extend(messages)
    if policy is not None:
        views["untrained"] = functools.partial(batches.untrained, policy)
        target = replace(target, is_feed_forward=is_function_of_observation(policy, site))
    if len(batches.bounds) <= MAX_CACHED_BATCHES:
        views = {name: functools.cache(view) for name, view in views.items()}
    fit_class = _RidgeFit if kind == "regression" else _LogisticFit
    with AnalysisProgress(f"decoding {settings.label} from {site} of {agent}", "rows", shown=progress) as shown:
        scores, fit = fit_class(batches, targets, settings, diagnostics, shown).run(views)
    diagnostics.warn_of_few_episodes(agent, {t: target}, settings)
    warn_of_shuffles(targets.shuffle, target, settings, diagnostics)
    n = targets.n_folds
    by_target = scores["site"][: (targets.n - 1) * n].reshape(-1, n)
    shuffled = by_target[1:].mean(axis=1)
    main = FoldScores(by_target[0])
    gains = [Gain.over("observation", FoldScores(scores["observation"]), main)]
    if "untrained" in views:
        gains.append(Gain.over("untrained network", FoldScores(scores["untrained"]), main))
    control = float(scores["site"][-2]) if targets.has_control else None
    return assemble_outcome(target, t, settings, fit, main, shuffled, tuple(gains), control)


@dataclass(frozen=True)
class _RidgeFit:
    """Ridge regression of a quantity, in one pass."""

    batches: _RowBatches
    targets: StreamedTargets
    settings: DecodingSettings
    diagnostics: Diagnostics
    progress: AnalysisProgress

    @property
    def all_parts(self) -> np.ndarray:
        return np.ones(2 * self.targets.n_folds, bool)

    def run(self, views: Views) -> tuple[dict[str, np.ndarray], LinearFit]:
        """Scores by view, `[problem]`, and the fit to all rows of the site."""
        self.progress.expect(len(self.batches.rows))
        sums = self.sums(views)
        scores, fits = ridge_from_sums(sums["site"], self.targets.splits())
        controls = {
            name: ridge_from_sums(sums[name], self.targets.true_label_splits())[0] for name in views if name != "site"
        }
        total = sums["site"]
        mean, covariance = total.moments(self.all_parts)
        n, x, y = total.n.sum(), total.x.sum(axis=0), total.y[:, 0].sum()
        label_covariance = total.xy[:, :, 0].sum(axis=0) / n - x * y / n**2
        pattern = label_covariance / (total.yy[:, 0].sum() / n - (y / n) ** 2)
        fit = LinearFit(fits[-1].weights, fits[-1].intercept, pattern[None], mean, covariance)
        return {"site": scores, **controls}, fit

    def sums(self, views: Views) -> dict[str, RidgeSums]:
        """Sums of every view; of the controls with the true labels alone."""
        sums: dict[str, RidgeSums] = {}
        for rows, start, stop in self.one_pass():
            y, part = self.columns(rows), self.targets.part[rows]
            for name, view in views.items():
                x = view(start, stop)
                columns = y if name == "site" else y[:, : self.n_true_columns]
                if not np.isfinite(x).all():
                    raise AnalysisError(f"{name} of {self.batches.agent} has values that are not finite")
                if name not in sums:
                    shift = x.mean(axis=0, dtype=np.float64)
                    sums[name] = RidgeSums(len(self.all_parts), x.shape[1], shift, columns.mean(axis=0))
                sums[name].add(part, x, columns)
        if np.diag(sums["site"].moments(self.all_parts)[1]).max() <= 0:
            who = f"{self.batches.site} of {self.batches.agent}"
            raise AnalysisError(f"{who} never varies: there is nothing to decode from")
        return sums

    def one_pass(self) -> Iterator[tuple[slice, int, int]]:
        """The batches, counted as progress."""
        for rows, start, stop in self.batches:
            yield rows, start, stop
            self.progress.add(stop - start)

    def columns(self, rows: slice) -> np.ndarray:
        """What the features' products are summed with, `[row, column]`."""
        return self.targets.of(rows)

    @property
    def n_true_columns(self) -> int:
        """How many of the first columns hold the true labels."""
        return 1


class _LogisticFit(_RidgeFit):
    """Logistic regression of classes: a pass for sums (preconditioner and patterns), passes of steps, one for hits."""

    def run(self, views: Views) -> tuple[dict[str, np.ndarray], LinearFit]:
        n_steps = sum(ceil((rows.stop - rows.start) / STEP_ROWS) for rows, _, _ in self.batches)
        epochs = ceil(STEPS / n_steps)
        self.progress.expect((2 + epochs) * len(self.batches.rows))
        sums = self.sums(views)
        splits = {name: self.targets.splits() if name == "site" else self.targets.true_label_splits() for name in views}
        counts = self._counts()
        models = {}
        for name in views:
            rows = np.stack([counts[p.target, p.train].sum(axis=0) for p in splits[name]])
            models[name] = StreamingLogistic(splits[name], *sums[name].moments(self.all_parts), rows, epochs * n_steps)
        for _ in range(epochs):
            for batch, start, stop in self.one_pass():
                for name, *step in self._steps(views, batch, start, stop):
                    models[name].learn(*step)
        hits = {name: np.zeros((2, len(splits[name]), self.n_true_columns, 2)) for name in views}
        for batch, start, stop in self.one_pass():
            for name, *step in self._steps(views, batch, start, stop):
                hits[name] += models[name].count_correct(*step)
        scores = {name: balanced_accuracy_from_counts(hits[name]) for name in views}
        n = self.targets.n_folds
        if abs(np.diff(scores["site"][:, :n].mean(axis=1))[0]) > 0.01:
            self.diagnostics.messages.append("a streamed logistic regression did not converge")
        mean, covariance = sums["site"].moments(self.all_parts)
        outputs = models["site"].unstandardised(-1)
        present = np.unique(self.targets.y)
        weights, intercept, patterns = (output[present] for output in (*outputs, self._patterns(sums["site"])))
        fit = LinearFit(weights, intercept, patterns, mean, covariance)
        return {name: by_average[0] for name, by_average in scores.items()}, fit

    def columns(self, rows: slice) -> np.ndarray:
        return np.eye(self.n_true_columns)[self.targets.y[rows]]

    @property
    def n_true_columns(self) -> int:
        return len(self.settings.classes.names)

    def _steps(
        self, views: Views, rows: slice, start: int, stop: int
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
        """View, parts, features and labels of each gradient step; the rows of an episode are spread over the steps."""
        part, y = self.targets.part[rows], self.targets.of(rows)
        n_steps = ceil(len(part) / STEP_ROWS)
        for name, view in views.items():
            x = view(start, stop)
            for k in range(n_steps):
                yield name, part[k::n_steps], x[k::n_steps], y[k::n_steps]

    def _counts(self) -> np.ndarray:
        """Rows, `[target, part, class]`."""
        n_parts, n_classes = len(self.all_parts), self.n_true_columns
        counts = np.zeros((self.targets.n, n_parts * n_classes))
        for rows, _, _ in self.batches:
            code = self.targets.part[rows, None] * n_classes + self.targets.of(rows)
            counts += np.stack([np.bincount(column, minlength=n_parts * n_classes) for column in code.T])
        return counts.reshape(-1, n_parts, n_classes)

    def _patterns(self, sums: RidgeSums) -> np.ndarray:
        """`E[x | class] - E[x]`, `[class, feature]`, from the features' products with the class indicators."""
        n, x, share = sums.n.sum(), sums.x.sum(axis=0), sums.y.sum(axis=0) / sums.n.sum() + sums.y_shift
        shifted = sums.xy.sum(axis=0) / n - np.outer(x, sums.y.sum(axis=0)) / n**2
        return np.asarray((shifted / np.where(share > 0, share, 1)).T)


def _batch_bounds(episode: np.ndarray) -> list[tuple[int, int]]:
    """First and last position of batches of whole episodes, of about BATCH_ROWS rows each."""
    episode_ends = [*(np.flatnonzero(np.diff(episode)) + 1), len(episode)]
    bounds, start = [], 0
    for end in episode_ends:
        if end - start >= BATCH_ROWS or end == len(episode):
            bounds.append((int(start), int(end)))
            start = end
    return bounds
