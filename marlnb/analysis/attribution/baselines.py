"""Baselines: what an output is compared with. Never a silent zero, since zero is a place like any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.attribution.target import Question
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError, ShapeError, unknown

NamedRow = tuple[str, int, str, int]
Baseline = Literal["mean", "zero", "start", "distribution"] | NamedRow | np.ndarray | Tensor | Mapping[str, Any]
NAMES = ("mean", "zero", "start", "distribution")
BATCH_ROWS = 8192


@dataclass(frozen=True)
class Reference:
    """Baselines `[baseline, agent, feature]` for own sources, `[baseline, feature]` for others, and what they are."""

    values: Tensor
    name: str


def resolve_reference(
    question: Question, source: RowSource, rows: Rows, baseline: Baseline, *, n_baselines: int, seed: int
) -> Reference:
    """The baselines that are asked for.

    Raises:
        AnalysisError: a name, episode, step or group that is not there; ShapeError: an array that does not broadcast.
    """
    if isinstance(baseline, str):
        if baseline not in NAMES:
            raise AnalysisError(
                unknown("baseline", baseline, NAMES) + ", a moment as ('episode', 3, 't', 0), or an array"
            )
        return _named(question, source, rows, baseline, n_baselines, seed)
    if isinstance(baseline, tuple) and baseline and isinstance(baseline[0], str):
        return _moment(question, source, rows, baseline)
    return Reference(_given(question, source, baseline).unsqueeze(0), "given")


def deviations(question: Question, source: RowSource, rows: Rows) -> Tensor:
    """Each feature's standard deviation over the rows: `[agent, feature]`, or `[feature]` for other sources."""
    sample = _pick(rows, _spaced(len(rows), BATCH_ROWS))
    return _inputs(question, source, sample).std(0, correction=0)


def _named(question: Question, source: RowSource, rows: Rows, name: str, n_baselines: int, seed: int) -> Reference:
    if name == "zero":
        return Reference(torch.zeros_like(_inputs(question, source, _pick(rows, np.arange(1)))), "zero")
    if name == "distribution":
        drawn = _drawn(question, source, rows, n_baselines, seed)
        return Reference(drawn, f"distribution: {n_baselines} rows of the recording, seed {seed}")
    if name == "start":
        rows = _pick(rows, np.flatnonzero(_first_of_each_episode(rows)))
    told = {"mean": "mean", "start": "start: the mean of episodes' first rows"}[name]
    return Reference(_mean(question, source, rows).unsqueeze(0), told)


def _moment(question: Question, source: RowSource, rows: Rows, asked: tuple[Any, ...]) -> Reference:
    if len(asked) != 4 or asked[0] != "episode" or asked[2] != "t":
        raise AnalysisError(f"a moment as baseline is ('episode', number, 't', step); got {asked!r}")
    all_rows = source.rows(None)
    place = np.flatnonzero((all_rows.episode == asked[1]) & (all_rows.t == asked[3]))
    if not len(place):
        steps = all_rows.t[all_rows.episode == asked[1]]
        told = f"t from {steps.min()} to {steps.max()}" if len(steps) else f"no episode {asked[1]}"
        raise AnalysisError(f"no row at episode {asked[1]}, t {asked[3]}; there is {told}")
    row = _pick(all_rows, place)
    absent = ~source.acting(row)[0, list(question.members)]
    if absent.any():
        names = [question.policy.group.agents[k] for k, gone in zip(question.members, absent) if gone]
        raise AnalysisError(f"{names} did not act at episode {asked[1]}, t {asked[3]}: no baseline for them")
    return Reference(_inputs(question, source, row), f"episode {asked[1]}, t {asked[3]}")


def _given(question: Question, source: RowSource, baseline: Any) -> Tensor:
    group = question.policy.group
    if question.site is not None:
        shape = tuple(_inputs(question, source, _pick(source.rows(None), np.arange(1))).shape[1:])
        return _broadcast(baseline, shape, f"{question.site.name!r}", "[agent, unit]")
    if question.sources == "state":
        size = int(torch.Size(source.env.state_shape or ()).numel())
        return _broadcast(baseline, (size,), "the environment's state", "[feature]")
    if question.groups == (group.name,):
        whole = baseline[group.name] if isinstance(baseline, Mapping) else baseline
        found = _broadcast(whole, (group.n_agents, group.observation.size), f"{group.name!r}", "[agent, feature]")
        return found if question.sources == "own" else found.reshape(-1)
    if not isinstance(baseline, Mapping):
        raise ShapeError(f"a value reads several groups: give the baseline as a mapping of {list(question.groups)}")
    parts = []
    for spec in source.env.groups:
        if spec.name not in baseline:
            raise AnalysisError(unknown("group in the baseline", spec.name, baseline))
        shape = (spec.n_agents, spec.observation.size)
        parts.append(_broadcast(baseline[spec.name], shape, f"{spec.name!r}", "[agent, feature]").reshape(-1))
    return torch.cat(parts)


def _broadcast(given: Any, shape: tuple[int, ...], what: str, axes: str) -> Tensor:
    array = torch.as_tensor(np.asarray(given), dtype=torch.float32)
    try:
        return array.broadcast_to(shape).clone()
    except RuntimeError:
        raise ShapeError(
            f"a baseline for {what} must broadcast to {axes} = {list(shape)}; got {list(array.shape)}"
        ) from None


def _mean(question: Question, source: RowSource, rows: Rows) -> Tensor:
    """The mean over living rows; of a site's units, over those at which the agent acted."""
    if question.site is None and question.sources != "state":
        parts = [source.mean_observation(name, rows) for name in question.groups]
        return parts[0] if question.sources == "own" else torch.cat([part.reshape(-1) for part in parts])
    total, count = torch.zeros(()), torch.zeros(())
    for moments in source.batches(rows, BATCH_ROWS, needs_state=question.output.of_critic):
        units, acting = question.inputs(moments), moments.acting
        if question.sources != "own":
            total, count = total + units.double().sum(0), count + len(units)
        else:
            total = total + torch.where(acting.unsqueeze(-1), units, 0).double().sum(0)
            count = count + acting.sum(0).unsqueeze(-1)
    return (total / count.clamp(min=1)).float()


def _drawn(question: Question, source: RowSource, rows: Rows, n: int, seed: int) -> Tensor:
    """Rows drawn evenly: for own sources each agent's from those at which it acted, for all the same for everyone."""
    if n < 1:
        raise AnalysisError(f"a distribution needs 1 baseline or more; got n_baselines={n}")
    generator = np.random.default_rng(seed)
    acting = source.acting(rows)
    if question.sources != "own":
        among = np.flatnonzero(acting.all(1))
        among = among if len(among) else np.flatnonzero(acting.any(1))
        return _inputs(question, source, _pick(rows, np.sort(_draw(generator, among, n))))
    parts = []
    for agent in range(acting.shape[1]):
        among = np.flatnonzero(acting[:, agent])
        if not len(among):
            among = np.arange(len(rows))
        chosen = np.sort(_draw(generator, among, n))
        parts.append(_inputs(question, source, _pick(rows, chosen))[:, agent])
    return torch.stack(parts, dim=1)


def _draw(generator: np.random.Generator, among: np.ndarray, n: int) -> np.ndarray:
    return np.asarray(generator.choice(among, n, replace=len(among) < n))


def _inputs(question: Question, source: RowSource, rows: Rows) -> Tensor:
    found = [question.inputs(m) for m in source.batches(rows, BATCH_ROWS, needs_state=question.output.of_critic)]
    return torch.cat(found)


def _pick(rows: Rows, places: np.ndarray) -> Rows:
    return Rows(rows.index[places], rows.episode[places], rows.t[places])


def _spaced(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def _first_of_each_episode(rows: Rows) -> np.ndarray:
    _, first = np.unique(rows.episode, return_index=True)
    marks = np.zeros(len(rows), bool)
    marks[first] = True
    return marks
