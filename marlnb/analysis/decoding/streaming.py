"""Decoding a site that is larger than memory: the file is read in batches of whole episodes, and only sums are kept.

What is fitted and tested is what the fits in memory are; labels, folds and shuffles are the same. Quantities take one
pass over the file, classes three: sums, steps, hits.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.untrained import policy_activations, untrained_policy
from marlnb.analysis.decoding.linear_decoder import Reading, assemble_reading
from marlnb.analysis.decoding.problem import Plan, assemble_score
from marlnb.analysis.decoding.result import DecodingScore
from marlnb.analysis.stats.linear_models import FoldScores
from marlnb.analysis.stats.streaming_logistic import STEP_ROWS, STEPS, LogisticStream, balanced_from_hits
from marlnb.analysis.stats.streaming_problems import Targets
from marlnb.analysis.stats.streaming_ridge import Sums, ridge_from_sums
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from marlnb.training.progress import StatusLine, duration

BATCH_ROWS = 16384
HELD_BATCHES = 2
Found = tuple[DecodingScore, Reading, np.ndarray]
Views = dict[str, Callable[[int, int], np.ndarray]]


@dataclass(frozen=True)
class _Stream:
    """The rows of one question, batch by batch.

    Attributes:
        rows: all rows, of which `keep` (ascending) are asked about; stretches: first and last of each batch of them.
    """

    source: RowSource
    rows: Rows
    site: str
    agent: str
    keep: np.ndarray
    stretches: list[tuple[int, int]]

    def activations(self, start: int, stop: int) -> np.ndarray:
        array = self.source.recording[self.site].sel(agent=self.agent)
        return replace(array, rows=self.rows.index[self._kept(start, stop)]).to_numpy()

    def observations(self, start: int, stop: int) -> np.ndarray:
        array = self.source.recording.steps(self.source.group, "observation").sel(agent=self.agent)
        found = replace(array, rows=self.rows.index[self._kept(start, stop)]).to_numpy()
        return found.reshape(len(found), -1)

    def untrained(self, policy: Policy, start: int, stop: int) -> np.ndarray:
        rows = Rows(self.rows.index[start:stop], self.rows.episode[start:stop], self.rows.t[start:stop])
        found = policy_activations(self.source, policy, self.site, rows)
        member = self.source.env.group(self.source.group).agents.index(self.agent)
        return np.asarray(found[self._kept(start, stop) - start, member])

    def batches(self) -> Iterator[tuple[slice, int, int]]:
        """The place of a batch among the rows asked about, and its first and last row among all."""
        for start, stop in self.stretches:
            first, last = np.searchsorted(self.keep, (start, stop))
            if last > first:
                yield slice(int(first), int(last)), start, stop

    def _kept(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self.keep, (start, stop))
        return self.keep[first:last]


def answer_stream(
    source: RowSource,
    rows: Rows,
    site: str,
    agent: str,
    offset: int,
    keep: np.ndarray,
    y: np.ndarray,
    fold: np.ndarray,
    plan: Plan,
    *,
    progress: bool,
) -> Found:
    """The score of one agent over all time steps, or one, its reading and its shuffled scores.

    Raises:
        AnalysisError: activations that are not finite or never vary; each time step by itself was asked for.
    """
    if plan.at == "each":
        raise AnalysisError(
            f"{site} is streamed, since it needs more than memory_bytes: ask for one time step (at=3), or all"
        )
    t = None if plan.at == "all" else plan.at
    if t is not None:
        here = rows.t[keep] == t
        keep, y, fold = keep[here], y[here], fold[here]
        plan.check_label(agent, y, rows.episode[keep], site)
    episode = rows.episode[keep]
    targets = Targets(y, episode, fold, plan.classes.kind, plan.n_shuffles, plan.seed)
    stream = _Stream(source, rows, site, agent, keep, _stretches(rows.episode))
    watch = _Watch(f"decoding {plan.label} from {site} of {agent}", shown=progress)
    views: Views = {"site": stream.activations, "observation": stream.observations}
    policy, notes = untrained_policy(source, site, rows, plan.seed)
    plan.notes.extend(notes)
    if policy is not None:
        views["untrained"] = functools.partial(stream.untrained, policy)
    if len(stream.stretches) <= HELD_BATCHES:
        views = {name: functools.cache(view) for name, view in views.items()}
    fits = (_Quantity if plan.classes.kind == "regression" else _Class)(stream, targets, plan, watch).run(views)
    n = targets.n_folds
    by_target = fits.scores["site"][: (targets.n - 1) * n].reshape(-1, n)
    shuffled = by_target[1:].mean(axis=1)
    score = assemble_score(
        site, agent, offset, t, y, episode, fold, plan.classes.kind, FoldScores(by_target[0]), shuffled,
        float(fits.scores["observation"].mean()),
        float(fits.scores["untrained"].mean()) if "untrained" in views else None,
        float(fits.scores["site"][-2]) if targets.controlled else None,
    )  # fmt: skip
    told = {"site": site, "agent": agent, "t": t, "offset": offset, "label": plan.label, "classes": plan.classes.names}
    return score, assemble_reading(*fits.reading, **told), shuffled  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Fits:
    """Scores `[problem]` by view; what `assemble_reading` takes of the site's: filters to covariance."""

    scores: dict[str, np.ndarray]
    reading: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class _Quantity:
    """Ridge: one pass."""

    def __init__(self, stream: _Stream, targets: Targets, plan: Plan, watch: _Watch) -> None:
        self.stream, self.targets, self.plan, self.watch = stream, targets, plan, watch
        self.every = np.ones(2 * targets.n_folds, bool)

    def run(self, views: Views) -> _Fits:
        sums = self.sums(views, passes=1)
        problems = self.targets.problems()
        scores, fits = ridge_from_sums(sums["site"], problems)
        others = {name: ridge_from_sums(sums[name], self.targets.plain())[0] for name in views if name != "site"}
        self.watch.end()
        mean, covariance = sums["site"].moments(self.every)
        total = sums["site"]
        n, x, y = total.n.sum(), total.x.sum(axis=0), total.y[:, 0].sum()
        shared = total.xy[:, :, 0].sum(axis=0) / n - x * y / n**2
        pattern = shared / (total.yy[:, 0].sum() / n - (y / n) ** 2)
        return _Fits(
            {"site": scores, **others}, (fits[-1].weights, fits[-1].intercept, pattern[None], mean, covariance)
        )

    def sums(self, views: Views, passes: int) -> dict[str, Sums]:
        """Of every view, with the true labels alone for the controls."""
        found: dict[str, Sums] = {}
        for rows, start, stop in self.watch.over(self.stream, passes):
            y, part = self.columns(rows), self.targets.part[rows]
            for name, view in views.items():
                x = view(start, stop)
                columns = y if name == "site" else y[:, : self.least_columns()]
                if not np.isfinite(x).all():
                    raise AnalysisError(f"{name} of {self.stream.agent} has values that are not finite")
                if name not in found:
                    shift = x.mean(axis=0, dtype=np.float64)
                    found[name] = Sums(len(self.every), x.shape[1], shift, columns.mean(axis=0))
                found[name].add(part, x, columns)
        if np.diag(found["site"].moments(self.every)[1]).max() <= 0:
            raise AnalysisError(f"{self.stream.site} of {self.stream.agent} never varies: nothing to decode from")
        return found

    def columns(self, rows: slice) -> np.ndarray:
        """What the features' products are summed with, `[row, column]`."""
        return self.targets.of(rows)

    def least_columns(self) -> int:
        return 1


class _Class(_Quantity):
    """Logistic regression: sums for the preconditioner and the patterns, steps, and hits."""

    def run(self, views: Views) -> _Fits:
        n_batches = sum(ceil((rows.stop - rows.start) / STEP_ROWS) for rows, _, _ in self.stream.batches())
        epochs = ceil(STEPS / n_batches)
        passes = 2 + epochs
        sums = self.sums(views, passes)
        problems = {name: self.targets.problems() if name == "site" else self.targets.plain() for name in views}
        counts = self._counts()
        streams = {}
        for name in views:
            rows = np.stack([counts[p.target, p.train].sum(axis=0) for p in problems[name]])
            streams[name] = LogisticStream(problems[name], *sums[name].moments(self.every), rows, epochs * n_batches)
        for _ in range(epochs):
            for rows_, start, stop in self.watch.over(self.stream, passes):
                self._each(views, rows_, start, stop, lambda name, *batch: streams[name].learn(*batch))
        hits = {name: np.zeros((2, len(problems[name]), len(self.plan.classes.names), 2)) for name in views}
        for rows_, start, stop in self.watch.over(self.stream, passes):
            self._each(views, rows_, start, stop, lambda name, *batch: hits[name].__iadd__(streams[name].hits(*batch)))
        self.watch.end()
        scores = {name: balanced_from_hits(hits[name]) for name in views}
        n = self.targets.n_folds
        if abs(np.diff(scores["site"][:, :n].mean(axis=1))[0]) > 0.01:
            self.plan.notes.append("a streamed logistic regression had not settled")
        mean, covariance = sums["site"].moments(self.every)
        weights, intercept = streams["site"].own_units(-1)
        return _Fits(
            {name: found[0] for name, found in scores.items()},
            (weights, intercept, self._patterns(sums["site"]), mean, covariance),
        )

    def columns(self, rows: slice) -> np.ndarray:
        return np.eye(len(self.plan.classes.names))[self.targets.y[rows]]

    def least_columns(self) -> int:
        return len(self.plan.classes.names)

    def _each(
        self,
        views: Views,
        rows: slice,
        start: int,
        stop: int,
        use: Callable[..., object],
    ) -> None:
        """Hands each view's batch on in steps, rows of one episode spread over them."""
        part, y = self.targets.part[rows], self.targets.of(rows)
        n_steps = ceil(len(part) / STEP_ROWS)
        for name, view in views.items():
            x = view(start, stop)
            for k in range(n_steps):
                use(name, part[k::n_steps], x[k::n_steps], y[k::n_steps])

    def _counts(self) -> np.ndarray:
        """`[target, part, class]`: rows."""
        n_parts, n_classes = len(self.every), len(self.plan.classes.names)
        found = np.zeros((self.targets.n, n_parts * n_classes))
        for rows, _, _ in self.stream.batches():
            code = self.targets.part[rows, None] * n_classes + self.targets.of(rows)
            found += np.stack([np.bincount(column, minlength=n_parts * n_classes) for column in code.T])
        return found.reshape(-1, n_parts, n_classes)

    def _patterns(self, sums: Sums) -> np.ndarray:
        """`[class, feature]`: a class's mean less the mean of all, from the products with its indicator."""
        n, x, share = sums.n.sum(), sums.x.sum(axis=0), sums.y.sum(axis=0) / sums.n.sum() + sums.y_shift
        shifted = sums.xy.sum(axis=0) / n - np.outer(x, sums.y.sum(axis=0)) / n**2
        return np.asarray((shifted / np.where(share > 0, share, 1)).T)


class _Watch:
    """Shows how far the passes are, and about how long they still take."""

    def __init__(self, title: str, *, shown: bool) -> None:
        self.title, self.line = title, StatusLine() if shown else None
        self.done, self.began = 0, time.monotonic()

    def over(self, stream: _Stream, passes: int) -> Iterator[tuple[slice, int, int]]:
        total = passes * len(stream.rows)
        for rows, start, stop in stream.batches():
            yield rows, start, stop
            self.done += stop - start
            if self.line is not None and self.line.due:
                left = (time.monotonic() - self.began) * (total / self.done - 1)
                self.line.write(f"{self.title}: {self.done / total:.0%}, about {duration(left)} left")

    def end(self) -> None:
        if self.line is not None:
            self.line.write(f"{self.title}: done in {duration(time.monotonic() - self.began)}")
            self.line.end()


def _stretches(episode: np.ndarray) -> list[tuple[int, int]]:
    """Batches of whole episodes, of about BATCH_ROWS rows."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1, [len(episode)]])
    found, begin = [], 0
    for end in starts[1:]:
        if end - begin >= BATCH_ROWS or end == len(episode):
            found.append((int(begin), int(end)))
            begin = end
    return found
