"""A decoding problem: one agent's rows at one site. Its checks, and its scores next to their controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from marlnb.analysis.data.labels import Classes
from marlnb.analysis.data.missing_labels import MissingLabels
from marlnb.analysis.decoding.linear_decoder import LinearDecoder, LinearFit, fit_linear
from marlnb.analysis.decoding.score import Control, DecodingScore, Gain
from marlnb.analysis.stats.bootstrap import p_value_above
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.linear_models import (
    MAX_CONSTANT_VARIANCE,
    FoldScores,
    constant_score,
    control_task_score,
    episode_folds,
    score_folds,
    score_labels,
)
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError

At = Literal["all", "each"] | int
MIN_EPISODES = 50  # intervals over folds are rough below
NOT_CONVERGED = "a logistic regression did not converge"


@dataclass(frozen=True)
class DecodingSettings:
    """What all problems of one group share in one call of `decode`.

    Attributes:
        at: which time steps: all in one model, each by itself, or one.
        label: the label's name.
        classes: how the label's values become classes or quantities.
        folds: cross-validation folds, of whole episodes.
        n_shuffles: permutations of the labels over episodes.
        seed: of folds, permutations, control labels and the untrained network.
    """

    at: At
    label: str
    classes: Classes
    folds: int
    n_shuffles: int
    seed: int

    def n_times(self, t: np.ndarray) -> int:
        """Models for each agent and offset, of rows at the time steps `[row]`."""
        return len(np.unique(t)) if self.at == "each" else 1


@dataclass(frozen=True)
class Diagnostics:
    """Collects what a result must say about its own reliability while problems are solved.

    Attributes:
        single_problem: the call has one problem only, so an error in it is raised. Otherwise the problem is skipped.
        messages: reasons to distrust the result, in the order in which they were found.
        missing: rows without a label.
    """

    single_problem: bool
    messages: list[str] = field(default_factory=list)
    missing: MissingLabels = field(default_factory=MissingLabels)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.messages, *self.missing.warnings]))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.missing.notes))

    @contextmanager
    def skipping(self, site: str, agent: str, offset: int) -> Iterator[None]:
        """Records that a problem is skipped because of an AnalysisError; raises the error where it is the only one."""
        try:
            yield
        except AnalysisError as error:
            if self.single_problem:
                raise
            at_offset = f" at offset {offset}" if offset else ""
            self.messages.append(f"skipped {site} of {agent}{at_offset}: {error}")

    def warn_of_few_episodes(
        self, agent: str, tested: Mapping[int | None, DecodingTarget], settings: DecodingSettings
    ) -> None:
        """Warns of what occurs in too few episodes at each of an agent's tested time steps; None: all together."""
        by_what: dict[str, list[tuple[FewEpisodes, int | None]]] = {}
        for t, target in tested.items():
            for few in few_episodes(target.y, target.episode, settings):
                by_what.setdefault(few.what, []).append((few, t))
        for each in by_what.values():
            few, t = min(each)
            at_times = f" at {len(each)} time steps, such as t={t}" if len(each) > 1 else f" at t={t}"
            self.messages.append(f"{agent}{'' if t is None else at_times}: {few}")


class DecodingOutcome(NamedTuple):
    """One score, the decoder fitted to all rows, and the scores of shuffled labels `[shuffle]`."""

    score: DecodingScore
    decoder: LinearDecoder
    shuffled: np.ndarray


@dataclass(frozen=True)
class DecodingTarget:
    """What is decoded: one agent's labels at one site's rows.

    Attributes:
        site: the site's name.
        agent: the agent's name.
        offset: time steps from the activations to the label.
        y: `[row]`, class indices or quantities.
        episode: `[row]`.
        t: `[row]`.
        fold: `[row]`, the same for all rows of an episode.
        is_feed_forward: the site's units are a function of the agent's own observation at the same step.
    """

    site: str
    agent: str
    offset: int
    y: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    fold: np.ndarray
    is_feed_forward: bool = False

    def select(self, rows: np.ndarray) -> DecodingTarget:
        """Some of the rows, `[row]` bool."""
        return replace(self, y=self.y[rows], episode=self.episode[rows], t=self.t[rows], fold=self.fold[rows])

    def with_full_folds(self, settings: DecodingSettings) -> DecodingTarget:
        """Other folds if one has fewer than two episodes of these rows, as at a time step that few episodes reach."""
        _, first_rows = np.unique(self.episode, return_index=True)
        if np.bincount(self.fold[first_rows], minlength=settings.folds).min() >= 2:
            return self
        fold = episode_folds(self.y, self.episode, settings.classes.kind, settings.folds, settings.seed)
        return replace(self, fold=fold)


@dataclass(frozen=True)
class DecodingProblem:
    """A target, and what it is decoded from.

    Attributes:
        target: what is decoded.
        x: `[row, unit]`, activations.
        observation: `[row, feature]`, the agent's raw observation.
        untrained: `[row, unit]`, activations of an untrained network; None where there is none.
        given: `[row, column]`, what is taken as known already; None where nothing is.
    """

    target: DecodingTarget
    x: np.ndarray
    observation: np.ndarray
    untrained: np.ndarray | None
    given: np.ndarray | None = None

    def select(self, rows: np.ndarray) -> DecodingProblem:
        """The same problem at some of its rows, `[row]` bool."""
        untrained, given = (None if array is None else array[rows] for array in (self.untrained, self.given))
        return DecodingProblem(self.target.select(rows), self.x[rows], self.observation[rows], untrained, given)


def check_label(agent: str, y: np.ndarray, episode: np.ndarray, settings: DecodingSettings) -> None:
    """Rejects labels that cannot be decoded.

    Args:
        agent: whose rows these are.
        y: `[row]`, class indices or quantities.
        episode: `[row]`.
    Raises:
        AnalysisError: too few episodes for the folds, a label that never varies, or too many classes.
    """
    label, folds = settings.label, settings.folds
    n_episodes = len(np.unique(episode))
    if n_episodes < 2 * folds:
        reason = f"the label {label!r} is known in {count(n_episodes, 'episode')} of this recording"
        hint = "" if n_episodes else "; if agents take turns, use offset= to reach a step at which the other agent acts"
        raise AnalysisError(f"{agent}: {folds} folds need at least {2 * folds} episodes, but {reason}{hint}")
    if np.ptp(y) == 0:
        raise AnalysisError(f"label {label!r} never varies over {agent}'s {len(y)} rows: there is nothing to decode")
    n_classes = len(settings.classes.names_in(y))
    if n_classes > n_episodes / 2:
        raise AnalysisError(
            f"label {label!r} has {n_classes} classes in {n_episodes} episodes; is it a quantity (kind='regression')?"
        )


class FewEpisodes(NamedTuple):
    """Something that occurs in too few episodes for a reliable score.

    Attributes:
        n: how many.
        what: occurs in them; empty for the rows themselves.
        consequence: what is unreliable.
    """

    n: int
    what: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.what}only {count(self.n, 'episode')}{self.consequence}"


def few_episodes(y: np.ndarray, episode: np.ndarray, settings: DecodingSettings) -> Iterator[FewEpisodes]:
    """What occurs in too few episodes: the rows, each class of the label, or variation of a quantity.

    Args:
        y: `[row]`, class indices or quantities.
        episode: `[row]`.
    """
    n_episodes = len(np.unique(episode))
    if n_episodes < MIN_EPISODES:
        yield FewEpisodes(n_episodes, "", f"; intervals are rough below {MIN_EPISODES}")
    if settings.classes.kind == "regression":
        # a quantity that differs from its median in few episodes is constant in most folds
        varies = np.abs(y - np.median(y)) > np.sqrt(MAX_CONSTANT_VARIANCE * np.var(y))
        occurrences = {f"the label {settings.label!r} varies in ": varies}
    else:
        names = zip(settings.classes.names_in(y), np.unique(y))
        occurrences = {f"class {name!r} occurs in ": y == value for name, value in names}
    for what, rows in occurrences.items():
        n = len(np.unique(episode[rows]))
        if n < 2 * settings.folds:
            yield FewEpisodes(n, what, f", for {settings.folds} folds")


def check_activations(problem: DecodingProblem) -> None:
    """Rejects activations from which nothing can be decoded.

    Raises:
        AnalysisError: values that are not finite, or units that never vary.
    """
    site, agent = problem.target.site, problem.target.agent
    inputs = {site: problem.x, "observation": problem.observation, "untrained network": problem.untrained}
    for name, values in inputs.items():
        if values is not None and not np.isfinite(values).all():
            raise AnalysisError(f"{name} of {agent} has values that are not finite")
    if float(np.ptp(problem.x, axis=0).max()) == 0:
        raise AnalysisError(f"{site} of {agent} never varies: there is nothing to decode from")


def solve(problem: DecodingProblem, settings: DecodingSettings, diagnostics: Diagnostics) -> Iterator[DecodingOutcome]:
    """The outcome of a problem: one, or with `at="each"` one for each time step.

    Raises:
        AnalysisError: the requested time step was not recorded, or none has enough episodes.
    """
    target = problem.target
    if settings.at == "all":
        yield _score(problem, None, settings, diagnostics)
        diagnostics.warn_of_few_episodes(target.agent, {None: target}, settings)
        return
    times = np.unique(target.t)
    if settings.at != "each":
        if settings.at not in times:
            raise AnalysisError(f"no recorded step has t={settings.at}; t runs from {times.min()} to {times.max()}")
        times = np.array([settings.at])
    skipped: list[int] = []
    tested: dict[int | None, DecodingTarget] = {}
    for t in map(int, times):
        at_t = problem.select(target.t == t)
        if len(np.unique(at_t.target.episode)) < 2 * settings.folds or np.ptp(at_t.target.y) == 0:
            skipped.append(t)
        else:
            tested[t] = at_t.target.with_full_folds(settings)
            yield _score(replace(at_t, target=tested[t]), t, settings, diagnostics)
    diagnostics.warn_of_few_episodes(target.agent, tested, settings)
    if len(skipped) == len(times):
        raise AnalysisError(
            f"{target.agent}: no time step has both a label that varies and {2 * settings.folds} episodes"
        )
    if skipped:
        diagnostics.messages.append(
            f"skipped time steps with too few episodes or a constant label: t = {', '.join(map(str, skipped))}"
        )


def _score(
    problem: DecodingProblem, t: int | None, settings: DecodingSettings, diagnostics: Diagnostics
) -> DecodingOutcome:
    target, x, kind = problem.target, problem.x, settings.classes.kind
    y, episode, fold, rng = target.y, target.episode, target.fold, np.random.default_rng(settings.seed)
    shuffle = EpisodeShuffle(episode, target.t, y)
    warn_of_shuffles(shuffle, target, settings, diagnostics)
    permuted = [shuffle.permute(y, rng) for _ in range(settings.n_shuffles)]
    main, *of_permuted = score_labels(x, np.stack([y, *permuted], axis=1), fold, kind)
    gains: list[Gain] = []

    def compare(control: Control, features: np.ndarray, of_site: FoldScores = main) -> None:
        of_control = score_folds(features, y, fold, kind)
        gains.append(Gain.over(control, of_control, of_site))
        if not (of_control.converged and of_site.converged):
            diagnostics.messages.append(NOT_CONVERGED)

    compare("observation", problem.observation)
    if problem.untrained is not None:
        compare("untrained network", problem.untrained)
    if problem.given is not None:
        compare("given", problem.given, score_folds(np.concatenate([x, problem.given], axis=1), y, fold, kind))
    if not all(scores.converged for scores in of_permuted):
        diagnostics.messages.append(NOT_CONVERGED)
    control = control_task_score(x, y, episode, kind, rng)
    shuffled = np.array([scores.mean for scores in of_permuted])
    fit = fit_linear(x, y, kind)
    return assemble_outcome(target, t, settings, fit, main, shuffled, tuple(gains), control)


def warn_of_shuffles(
    shuffle: EpisodeShuffle, target: DecodingTarget, settings: DecodingSettings, diagnostics: Diagnostics
) -> None:
    """Warns of classes that are much rarer or more frequent among shuffled labels."""
    if settings.classes.kind == "classification":
        warnings = shuffle.warnings(settings.label, target.y, settings.classes.names_in(target.y))
        diagnostics.messages.extend(f"{target.agent}: {each}" for each in warnings)


def assemble_outcome(
    target: DecodingTarget,
    t: int | None,
    settings: DecodingSettings,
    fit: LinearFit,
    main: FoldScores,
    shuffled: np.ndarray,
    gains: tuple[Gain, ...],
    control: float | None,
) -> DecodingOutcome:
    """A decoder and its score, with its interval, its chance level and its permutation p-value.

    Args:
        gains: over the observation, the untrained network and what is given.
        control: score of the memorised random labels.
    """
    kind = settings.classes.kind
    low, high = np.clip(main.interval(), 0.0 if kind == "classification" else -np.inf, 1.0)  # the scores' own range
    score = DecodingScore(
        agent=target.agent,
        t=t,
        n_rows=len(target.y),
        n_episodes=len(np.unique(target.episode)),
        score=main.mean,
        low=float(low),
        high=float(high),
        chance=constant_score(target.y, target.fold, kind),
        shuffled=float(shuffled.mean()),
        shuffled_high=float(shuffled.max()),
        p_value=p_value_above(main.mean, shuffled),
        control=control,
        site=target.site,
        offset=target.offset,
        gains=gains,
        is_feed_forward=target.is_feed_forward,
    )
    classes = settings.classes.names_in(target.y)
    decoder = fit.decoder(
        site=target.site, agent=target.agent, t=t, offset=target.offset, label=settings.label, classes=classes
    )
    return DecodingOutcome(score, decoder, shuffled)
