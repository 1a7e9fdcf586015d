"""One question of a decoding: an agent's rows at one site, checked, scored beside its controls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from marlnb.analysis.data.labels import Classes
from marlnb.analysis.data.missing_labels import LeftOut
from marlnb.analysis.decoding.linear_decoder import Reading, fit_reading
from marlnb.analysis.decoding.result import DecodingScore
from marlnb.analysis.stats.linear_models import (
    STANDS_STILL,
    FoldScores,
    Kind,
    constant_score,
    memorised_score,
    permute_by_episode,
    score_folds,
    score_labels,
)
from marlnb.errors import AnalysisError

At = Literal["all", "each"] | int


@dataclass(frozen=True)
class Plan:
    """What all questions of one decoding share.

    Attributes:
        alone: there is one question only, so one that cannot be answered is an error; else it is left out and noted.
        notes: why the result must not be trusted, gathered; left_out: the rows without a label.
    """

    at: At
    label: str
    classes: Classes
    folds: int
    n_shuffles: int
    seed: int
    alone: bool
    notes: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def doubts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.notes, *self.left_out.doubts]))

    def leave_out(self, error: AnalysisError, site: str, agent: str, offset: int) -> None:
        if self.alone:
            raise error
        later = f" at offset {offset}" if offset else ""
        self.notes.append(f"left out, {site} of {agent}{later}: {error}")

    def check_label(self, agent: str, y: np.ndarray, episode: np.ndarray, site: str) -> None:
        """Refuses labels that cannot be decoded; notes what must not be trusted."""
        n_episodes, kind, classes = len(np.unique(episode)), self.classes.kind, self.classes
        if n_episodes < 2 * self.folds:
            found = f"the label {self.label!r} is known at steps of {n_episodes} of this recording's"
            turns = "" if n_episodes else "; of agents that take turns another acts an offset= of steps later"
            raise AnalysisError(f"{agent}: {self.folds} folds need at least {2 * self.folds} episodes; {found}{turns}")
        if np.ptp(y) == 0:
            raise AnalysisError(
                f"label {self.label!r} never varies over {agent}'s {len(y)} rows: there is nothing to decode"
            )
        if n_episodes < 50:
            self.notes.append(f"{agent}: only {n_episodes} episodes; intervals are rough below 50")
        if kind == "regression":
            # in how many episodes it is ever anything but what it mostly is
            away = np.abs(y - np.median(y)) > np.sqrt(STANDS_STILL * np.var(y))
            bearing = len(np.unique(episode[away]))
            if bearing < 2 * self.folds:
                self.notes.append(
                    f"{agent}: the label {self.label!r} stands still but in {bearing} episodes, for {self.folds} folds"
                )
        if kind == "classification":
            if len(classes.names) > n_episodes / 2:
                raise AnalysisError(
                    f"label {self.label!r} has {len(classes.names)} classes in {n_episodes} episodes; "
                    "kind='regression'?"
                )
            for value in np.unique(y):
                bearing = len(np.unique(episode[y == value]))
                if bearing < 2 * self.folds:
                    name = classes.names[value]
                    self.notes.append(f"{agent}: {name!r} is in {bearing} episodes only, for {self.folds} folds")


@dataclass(frozen=True)
class Question:
    """One agent's rows at one site: what is decoded, from what, and the controls' inputs.

    Attributes:
        x, observation, untrained: `[row, unit]`, `[row, feature]`, `[row, unit]` or None.
        y: `[row]`, class indices or quantities; fold: `[row]`, by episode.
    """

    site: str
    agent: str
    offset: int
    x: np.ndarray
    y: np.ndarray
    observation: np.ndarray
    untrained: np.ndarray | None
    episode: np.ndarray
    t: np.ndarray
    fold: np.ndarray

    def at(self, keep: np.ndarray) -> Question:
        untrained = None if self.untrained is None else self.untrained[keep]
        arrays = (self.observation[keep], untrained, self.episode[keep], self.t[keep], self.fold[keep])
        return Question(self.site, self.agent, self.offset, self.x[keep], self.y[keep], *arrays)


def check(question: Question, plan: Plan) -> None:
    """Refuses activations from which nothing can be decoded, and controls that cannot be had."""
    site, agent, x = question.site, question.agent, question.x
    for name, values in ((site, x), ("observation", question.observation), ("untrained network", question.untrained)):
        if values is not None and not np.isfinite(values).all():
            raise AnalysisError(f"{name} of {agent} has values that are not finite")
    if float(np.ptp(x, axis=0).max()) == 0:
        raise AnalysisError(f"{site} of {agent} never varies: it holds nothing to decode from")


def answer(question: Question, plan: Plan) -> Iterator[tuple[DecodingScore, Reading, np.ndarray]]:
    """The scores of one question, one or one a time step, each with its reading and its shuffled scores."""
    at = plan.at
    if at == "all":
        yield _score(question, None, plan)
        return
    times = np.unique(question.t)
    if at != "each":
        if at not in times:
            raise AnalysisError(f"no recorded step has t={at}; they run from {times.min()} to {times.max()}")
        times = np.array([at])
    thin, answered = [], 0
    for t in times:
        here = question.at(question.t == t)
        if len(np.unique(here.episode)) < 2 * plan.folds or len(np.unique(here.fold)) < 2 or np.ptp(here.y) == 0:
            thin.append(int(t))
        else:
            answered += 1
            yield _score(here, int(t), plan)
    if not answered:
        raise AnalysisError(f"{question.agent}: at no time step do enough episodes go on, with a label that varies")
    if thin:
        plan.notes.append(f"left out, with too few episodes or one label only: t = {', '.join(map(str, thin))}")


def _score(question: Question, t: int | None, plan: Plan) -> tuple[DecodingScore, Reading, np.ndarray]:
    q, kind, rng = question, plan.classes.kind, np.random.default_rng(plan.seed)
    shuffles = [permute_by_episode(q.y, q.episode, rng) for _ in range(plan.n_shuffles)]
    main, *others = score_labels(q.x, np.stack([q.y, *shuffles], axis=1), q.fold, kind)
    seen = score_folds(q.observation, q.y, q.fold, kind)
    untrained = None if q.untrained is None else score_folds(q.untrained, q.y, q.fold, kind)
    if not all(found.converged for found in (main, *others, seen, *([untrained] if untrained else []))):
        plan.notes.append("a logistic regression did not converge")
    control = memorised_score(q.x, q.y, q.episode, kind, rng)
    shuffled = np.array([other.mean for other in others])
    score = assemble_score(
        q.site, q.agent, q.offset, t, q.y, q.episode, q.fold, kind, main, shuffled, seen.mean,
        None if untrained is None else untrained.mean, control,
    )  # fmt: skip
    reading = fit_reading(
        q.x, q.y, kind, site=q.site, agent=q.agent, t=t, offset=q.offset, label=plan.label, classes=plan.classes.names
    )
    return score, reading, shuffled


def assemble_score(
    site: str,
    agent: str,
    offset: int,
    t: int | None,
    y: np.ndarray,
    episode: np.ndarray,
    fold: np.ndarray,
    kind: Kind,
    main: FoldScores,
    shuffled: np.ndarray,
    observation: float,
    untrained: float | None,
    control: float | None,
) -> DecodingScore:
    low, high = np.clip(main.interval(), 0.0 if kind == "classification" else -np.inf, 1.0)  # no score lies beyond
    return DecodingScore(
        agent=agent,
        t=t,
        n_rows=len(y),
        n_episodes=len(np.unique(episode)),
        score=main.mean,
        low=float(low),
        high=float(high),
        chance=constant_score(y, fold, kind),
        shuffled=float(shuffled.mean()),
        shuffled_high=float(shuffled.max()),
        p_value=(1 + int((shuffled >= main.mean).sum())) / (1 + len(shuffled)),
        observation=observation,
        untrained=untrained,
        control=control,
        site=site,
        offset=offset,
    )
