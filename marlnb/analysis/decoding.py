"""Decoding: what a linear model reads from an agent's hidden units, beside everything that it must be compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from marlnb.analysis.decoding_result import Decoding, DecodingScore
from marlnb.analysis.linear_models import (
    FoldScores,
    Kind,
    episode_folds,
    memorised_score,
    permute_by_episode,
    score_folds,
)
from marlnb.analysis.rows import Rows, RowSource
from marlnb.analysis.untrained import untrained_activations
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.reader import Recording

At = Literal["all", "each"] | int


@dataclass(frozen=True)
class Question:
    """One agent's rows: what is decoded, from what, and the controls' inputs.

    Attributes:
        x, observation, untrained: `[row, unit]`, `[row, feature]`, `[row, unit]` or None.
        y: `[row]`, class indices or quantities; fold: `[row]`, by episode.
    """

    agent: str
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
        return Question(self.agent, self.x[keep], self.y[keep], *arrays)


def decode(
    recording: Recording,
    *,
    site: str,
    label: str | np.ndarray,
    agent: str | None = None,
    at: At = "all",
    kind: Kind | None = None,
    folds: int = 5,
    n_shuffles: int = 20,
    episodes: list[int] | None = None,
    seed: int = 0,
) -> Decoding:
    """How well a linear model reads a label from a site, in episodes that it was not fitted to.

    Logistic regression for classes (balanced accuracy), ridge regression for quantities (R^2), on standardised units;
    folds are whole episodes, always. Beside each score stand: the constant answer, the labels of other episodes, the
    agent's raw observation, a network of the same architecture with random weights, and a memorisation control.

    Args:
        site: as `listener/actor/hidden_1`.
        label: a label of the recording by name, or an array `[row]` or `[row, agent]` of all its rows.
        agent: one agent of the site's group; None: each of them.
        at: all (one model for all steps), each (one model a time step: what is known when), or one time step.
        kind: None: classes for whole numbers and booleans, a quantity otherwise.
        n_shuffles: permutations of the labels over episodes.
        episodes: indices of those to use; None: all.
        seed: of folds, permutations, control labels and the untrained network.
    Raises:
        AnalysisError: unknown site, label or agent; too few episodes for the folds; a label that never varies; a site
            that is constant.
    """
    source = RowSource(recording, site.split("/")[0])
    spec = source.env.group(source.group)
    if agent is not None and agent not in spec.agents:
        raise AnalysisError(unknown(f"agent of group {spec.name!r}", agent, spec.agents))
    if folds < 2 or n_shuffles < 1:
        raise AnalysisError(f"decoding needs at least 2 folds and 1 shuffle; got {folds} and {n_shuffles}")
    bearers = list(recording[site].labels["agent"])
    if agent is not None and agent not in bearers:
        raise AnalysisError(unknown(f"agent at {site!r}", agent, bearers))
    rows = source.rows(episodes)
    labels, name, classes, found_kind = _labels(source, rows, label, kind)
    activations = source.activations(site, rows)
    untrained, notes = untrained_activations(source, site, rows, seed)
    acting = source.acting(rows)
    observation = source.observations(source.group, rows)
    scores: list[DecodingScore] = []
    for index, member in enumerate(spec.agents):
        if agent not in (None, member) or member not in bearers:
            continue
        y = labels[:, index]
        keep = acting[:, index] & (np.isfinite(y) if found_kind == "regression" else np.ones(len(y), bool))
        _check(
            member, site, name, y[keep], rows.episode[keep], activations[keep, index], found_kind, folds, notes, classes
        )
        fold = np.zeros(len(y), np.int64)
        fold[keep] = episode_folds(y[keep], rows.episode[keep], found_kind, folds, seed)
        control = None if untrained is None else untrained[:, index]
        seen = observation[:, index].reshape(len(y), -1)
        question = Question(member, activations[:, index], y, seen, control, rows.episode, rows.t, fold).at(keep)
        with threadpool_limits(1):  # many small fits: more threads wait for each other, 7 times slower on 2 cores
            scores += _answer(question, at, found_kind, folds, n_shuffles, seed, notes)
    return Decoding(site, name, found_kind, classes, folds, n_shuffles, tuple(scores), tuple(dict.fromkeys(notes)))


def _answer(
    question: Question, at: At, kind: Kind, folds: int, n_shuffles: int, seed: int, notes: list[str]
) -> list[DecodingScore]:
    """The scores of one agent: one, or one a time step."""
    if at == "all":
        return [_score(question, None, kind, n_shuffles, seed, notes)]
    times = np.unique(question.t)
    if at != "each":
        if at not in times:
            raise AnalysisError(f"no recorded step has t={at}; they run from {times.min()} to {times.max()}")
        times = np.array([at])
    answers, thin = [], []
    for t in times:
        here = question.at(question.t == t)
        if len(np.unique(here.episode)) < 2 * folds or len(np.unique(here.fold)) < 2 or np.ptp(here.y) == 0:
            thin.append(int(t))
        else:
            answers.append(_score(here, int(t), kind, n_shuffles, seed, notes))
    if not answers:
        raise AnalysisError(f"{question.agent}: at no time step do enough episodes go on, with a label that varies")
    if thin:
        notes.append(f"left out, with too few episodes or one label only: t = {', '.join(map(str, thin))}")
    return answers


def _score(
    question: Question, t: int | None, kind: Kind, n_shuffles: int, seed: int, notes: list[str]
) -> DecodingScore:
    q, rng = question, np.random.default_rng(seed)

    def scores(x: np.ndarray, y: np.ndarray) -> FoldScores:
        found = score_folds(x, y, q.fold, kind)
        if not found.converged:
            notes.append("a logistic regression did not converge")
        return found

    main = scores(q.x, q.y)
    low, high = main.interval()
    shuffled = [scores(q.x, permute_by_episode(q.y, q.episode, rng)).mean for _ in range(n_shuffles)]
    return DecodingScore(
        agent=q.agent,
        t=t,
        n_rows=len(q.y),
        n_episodes=len(np.unique(q.episode)),
        score=main.mean,
        low=low,
        high=high,
        chance=1 / len(np.unique(q.y)) if kind == "classification" else 0.0,
        shuffled=float(np.mean(shuffled)),
        shuffled_high=float(np.max(shuffled)),
        p_value=(1 + sum(other >= main.mean for other in shuffled)) / (1 + n_shuffles),
        observation=scores(q.observation, q.y).mean,
        untrained=None if q.untrained is None else scores(q.untrained, q.y).mean,
        control=memorised_score(q.x, q.y, q.episode, kind, rng),
    )


def _labels(
    source: RowSource, rows: Rows, label: str | np.ndarray, kind: Kind | None
) -> tuple[np.ndarray, str, tuple[str, ...], Kind]:
    """Labels `[row, agent of the group]`, their name, the classes' names and the kind."""
    values, name, class_names = source.label(label, rows)
    whole = values.dtype.kind in "iub"
    found: Kind = kind or ("classification" if whole else "regression")
    n_agents = source.env.group(source.group).n_agents
    if values.ndim == 1:
        values = np.repeat(values[:, None], n_agents, axis=1)
    if values.shape[1:] != (n_agents,):
        raise AnalysisError(
            f"label {name!r} is {list(values.shape)}; group {source.group!r} needs [row] or [row, {n_agents} agents]"
        )
    if found == "regression":
        return values.astype(np.float64), name, (), found
    present, indices = np.unique(values, return_inverse=True)
    names = tuple(class_names[int(v)] if whole and 0 <= int(v) < len(class_names) else str(v) for v in present)
    return indices.reshape(values.shape), name, names, found


def _check(
    agent: str,
    site: str,
    label: str,
    y: np.ndarray,
    episode: np.ndarray,
    x: np.ndarray,
    kind: Kind,
    folds: int,
    notes: list[str],
    classes: tuple[str, ...],
) -> None:
    """Refuses what cannot be answered; notes what must not be trusted."""
    n_episodes = len(np.unique(episode))
    if n_episodes < 2 * folds:
        raise AnalysisError(
            f"{agent}: {folds} folds need at least {2 * folds} episodes; this recording has {n_episodes}"
        )
    if np.ptp(y) == 0:
        raise AnalysisError(f"label {label!r} never varies over {agent}'s {len(y)} rows: there is nothing to decode")
    if not np.isfinite(x).all():
        raise AnalysisError(f"{site} of {agent} has values that are not finite")
    if float(np.ptp(x, axis=0).max()) == 0:
        raise AnalysisError(f"{site} of {agent} never varies: it holds nothing to decode from")
    if n_episodes < 50:
        notes.append(f"{agent}: only {n_episodes} episodes; intervals are rough below 50")
    if kind == "classification":
        if len(classes) > n_episodes / 2:
            raise AnalysisError(
                f"label {label!r} has {len(classes)} classes in {n_episodes} episodes; kind='regression'?"
            )
        for value in np.unique(y):
            bearing = len(np.unique(episode[y == value]))
            if bearing < 2 * folds:
                notes.append(f"{agent}: {classes[value]!r} is in {bearing} episodes only, for {folds} folds")
