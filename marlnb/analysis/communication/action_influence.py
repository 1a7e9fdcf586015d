"""influence_ahead: what one other action of an agent changes in the others' actions over the steps that follow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from marlnb.analysis.communication.influence_result import FEW_EPISODES, over_episodes
from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.outcomes import action_distance
from marlnb.analysis.plain_json import plain_json
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.analysis.stats.divergence import total_variation
from marlnb.config import EnvConfig
from marlnb.errors import AnalysisError, ConfigError, unknown
from marlnb.models.hooks import episode_context as clock
from marlnb.models.policies.policy import ActorOutput, Policy
from marlnb.specs import ActionSpec
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import EVALUATION, Which

Measure = Literal["total_variation", "action"]
MOST_COPIES = 256


@dataclass(frozen=True, eq=False)
class InfluenceAhead:
    """How far agents' actions move in the steps after one action of another agent was replaced.

    Attributes:
        values, low, high: `[agent, lag]`, lags 0 to the horizon: the mean over episodes of the distance between the
            agent's actions with and without the replacement, so many steps after it, and its 95% bootstrap interval
            over episodes. Lag 0 is the step of the replacement itself.
        units: what a distance is in.
        n_episodes: those that were long enough for the horizon.
        settings: what it was made with, enough to repeat it.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    agents: tuple[str, ...]
    source: str
    units: str
    n_episodes: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def horizon(self) -> int:
        return self.values.shape[1] - 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        if self.n_episodes >= FEW_EPISODES:
            return ()
        return (f"only {self.n_episodes} episodes: intervals over fewer than {FEW_EPISODES} are too narrow",)

    def of(self, agent: str, lag: int) -> tuple[float, float, float]:
        """Value, low and high of one agent, `lag` steps after.

        Raises:
            AnalysisError: no such agent or lag.
        """
        if agent not in self.agents or not 0 <= lag <= self.horizon:
            raise AnalysisError(f"nothing of ({agent!r}, {lag}); agents {self.agents}, lags 0 to {self.horizon}")
        at = self.agents.index(agent), lag
        return float(self.values[at]), float(self.low[at]), float(self.high[at])

    def table(self) -> pd.DataFrame:
        """One line an agent and lag: agent, lag, value, low, high."""
        lags = np.arange(self.horizon + 1)
        return pd.DataFrame(
            {
                "agent": np.repeat(self.agents, len(lags)),
                "lag": np.tile(lags, len(self.agents)),
                "value": self.values.ravel(),
                "low": self.low.ravel(),
                "high": self.high.ravel(),
            }
        )

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("source", "units", "n_episodes")}
        lags = self.table().to_dict("records")
        found: dict[str, Any] = plain_json(
            {**told, "lags": lags, "warnings": list(self.warnings), "settings": self.settings}
        )
        return found

    def __repr__(self) -> str:
        return (
            f"InfluenceAhead(of {self.source} on {', '.join(self.agents)}: {self.horizon} steps, "
            f"{self.n_episodes} episodes, {self.units}{doubts(self.warnings)})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())


def influence_ahead(
    subject: PolicySource | str | os.PathLike[str],
    source: str,
    *,
    horizon: int = 5,
    measure: Measure = "total_variation",
    episodes: int = 100,
    seed: int = 1000,
    explore: bool = False,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    device: str = "cpu",
) -> InfluenceAhead:
    """Plays episodes twice, the second time with one action of `source` replaced, and compares the others' actions.

    In each episode the step is drawn evenly among those at which `source` acts and `horizon` steps follow. Up to it
    both rollouts are the same, bit for bit; after it everything goes its own way, messages, movements and memories
    alike. The action is replaced by another choice, drawn evenly among the others that are allowed (of a
    multi-discrete one, in each component); a continuous one by one drawn evenly between its bounds.

    Args:
        source: the agent whose action is replaced: what it says, where it speaks.
        measure: total_variation (between the distributions of actions, from 0 to 1) or action (whether another action
            was taken; of continuous ones the components' mean distance, in the environment's units).
        explore: sample actions, with the same noise in both rollouts; otherwise take the most likely.
        n_envs: copies stepped at once.
    Raises:
        AnalysisError: no such agent, a source without a choice, no other agent, policies that give no probabilities
            for total_variation, or no episode as long as the horizon.
        ConfigError: an option out of range.
    """
    if measure not in get_args(Measure):
        raise AnalysisError(unknown("measure", measure, get_args(Measure)))
    if horizon < 1 or episodes < 1 or seed < 0 or (n_envs is not None and n_envs < 1):
        raise ConfigError(
            f"horizon, episodes and n_envs are 1 or more, seed 0 or more; got {horizon}, {episodes}, {n_envs}, {seed}"
        )
    subject = as_policy_source(subject)
    origin = subject.origin(checkpoint)
    policies = subject.policies(origin.iteration, device=device)
    group = _group_of(subject, source, policies, measure)
    place = subject.spec.group(group).agents.index(source)
    copies = min(episodes, n_envs or min(subject.n_envs, MOST_COPIES))
    parts = []
    with subject.build_env(copies, device=device, env=env) as built:
        check_fit(subject.spec, built.spec)
        built.announce(subject.path / EVALUATION)
        for first in range(0, episodes, copies):
            asked: Any = {"seed": seed, "first": first, "explore": explore, "labels": False}
            asked["episodes"] = min(copies, episodes - first)
            plain = roll_out(built, policies, (), **asked)
            generator = torch.Generator().manual_seed(seed * 1_000_003 + first)
            when = _steps(plain.acting[group][..., place].cpu(), plain.in_episode.cpu(), horizon, generator)
            other = _Otherwise(plain, group, place, when, generator)
            with other.in_place(policies[group]):
                changed = roll_out(built, policies, (), **asked)
            parts.append(_distances(policies, plain, changed, other, horizon, measure))
    spec = subject.spec
    rows, agents = np.concatenate(parts), [agent for one in spec.groups for agent in one.agents]
    kept = [k for k, agent in enumerate(agents) if agent != source]
    long_enough = np.isfinite(rows).any(axis=(1, 2))
    if not long_enough.any():
        raise AnalysisError(
            f"in no episode did {source!r} act with another choice and {horizon} steps to follow; horizon= takes fewer"
        )
    rows = rows[long_enough][:, kept]
    values, low, high, n = over_episodes(rows, np.arange(len(rows)), seed)
    settings = {
        "env": spec.name,
        "episodes": episodes,
        "seed": seed,
        "explore": explore,
        "n_envs": copies,
        "measure": measure,
        "checkpoint": origin.iteration,
        "sha256": origin.sha256,
    }
    units = "total variation" if measure == "total_variation" else "share of episodes, or action's units"
    return InfluenceAhead(values, low, high, tuple(agents[k] for k in kept), source, units, n, settings)


def _group_of(subject: PolicySource, source: str, policies: Mapping[str, Policy], measure: Measure) -> str:
    of = {agent: group for group in subject.spec.groups for agent in group.agents}
    if source not in of:
        raise AnalysisError(unknown("agent", source, of))
    if len(of) == 1:
        raise AnalysisError(f"{source!r} is the only agent: there is none to influence")
    action = of[source].action
    if action.kind != "continuous" and max(action.n) < 2:
        raise AnalysisError(f"{source!r} has but one choice, so nothing to replace it by")
    silent = [name for name, policy in policies.items() if policy.distribution is None]
    if measure == "total_variation" and silent:
        raise AnalysisError(f"the policies of {silent} give no probabilities: measure='action' compares actions")
    return of[source].name


def _steps(acting: Tensor, counts: Tensor, horizon: int, generator: torch.Generator) -> Tensor:
    """For each copy a step drawn of those `[time, copy]` at which the agent acts and the horizon follows; -1: none."""
    length = counts.sum(0)
    follows = torch.arange(len(acting))[:, None] + horizon < length
    drawn = torch.rand(acting.shape, generator=generator).masked_fill(~(acting & follows), -1.0)
    best, step = drawn.max(0)
    return torch.where(best >= 0, step, -1)


class _Otherwise:
    """The action of one agent at one step of each episode, replaced. `valid` `[copy]`: where there is another."""

    def __init__(self, plain: Trajectories, group: str, place: int, when: Tensor, generator: torch.Generator) -> None:
        self.place, self.when = place, when
        there = when.clamp(min=0)
        copies = torch.arange(len(when))
        taken = plain.action[group][there, copies, place].cpu()
        mask = plain.mask[group]
        allowed = None if mask is None else mask[there, copies, place].cpu()
        spec = plain.env.group(group).action
        self.action, possible = _another(taken, allowed, spec, generator)
        self.valid = possible & (when >= 0)

    @contextmanager
    def in_place(self, policy: Policy) -> Iterator[None]:
        """Inside, the policy acts so."""
        act = policy.act

        def otherwise(observation: Tensor, **options: Any) -> ActorOutput:
            output = act(observation, **options)
            t = clock.now("an action that is replaced").t.cpu()[: len(self.when)]
            here = torch.nonzero(self.valid & (t == self.when)).squeeze(-1)
            if not len(here):
                return output
            action = output.action.clone()
            action[here, self.place] = self.action[here].to(action)
            return output._replace(action=action)

        policy.act = otherwise  # type: ignore[method-assign]
        try:
            yield
        finally:
            del policy.act


def _another(
    taken: Tensor, allowed: Tensor | None, spec: ActionSpec, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Other actions than those `[copy(, component)]`, and for which there is one `[copy]`."""
    if spec.kind == "continuous":
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        return low + (high - low) * torch.rand(taken.shape, generator=generator), torch.ones(len(taken)).bool()
    chosen = taken.unsqueeze(-1) if spec.kind == "discrete" else taken
    masks = torch.ones(len(taken), sum(spec.n)).bool() if allowed is None else allowed
    found, possible = [], torch.zeros(len(taken)).bool()
    for component, among in enumerate(masks.split(list(spec.n), dim=-1)):
        own = chosen[:, component].long()
        others = among & (torch.arange(spec.n[component]) != own.unsqueeze(-1))
        some = others.any(-1)
        weights = torch.where(some.unsqueeze(-1), others, torch.ones_like(others)).double()
        drawn = torch.multinomial(weights, 1, generator=generator).squeeze(-1)
        found.append(torch.where(some, drawn, own))
        possible |= some
    action = torch.stack(found, dim=-1)
    return (action.squeeze(-1) if spec.kind == "discrete" else action), possible


def _distances(
    policies: Mapping[str, Policy],
    plain: Trajectories,
    changed: Trajectories,
    other: _Otherwise,
    horizon: int,
    measure: Measure,
) -> np.ndarray:
    """`[copy, agent, lag]`, NaN where either rollout asked the agent for no action, or nothing was replaced."""
    steps = min(len(plain.in_episode), len(changed.in_episode))
    found = []
    at = other.when.clamp(min=0).unsqueeze(-1) + torch.arange(horizon + 1)  # [copy, lag]
    copies = torch.arange(len(other.when)).unsqueeze(-1)
    for name in plain.env.group_names:
        policy = policies[name]
        both = (plain.acting[name][:steps] & changed.acting[name][:steps]).cpu()
        far: Tensor | None
        if measure == "action":
            far = action_distance(plain.action[name][:steps], changed.action[name][:steps], policy)[0]
        else:
            assert policy.distribution is not None
            far = total_variation(policy.distribution, plain.logits[name][:steps], changed.logits[name][:steps])
        if far is None:
            raise AnalysisError(f"no total variation of the actions of {name!r} is known: measure='action'")
        far = torch.where(both, far.cpu().double(), torch.nan)
        inside = (at < steps) & other.valid.unsqueeze(-1)
        picked = far[at.clamp(max=steps - 1), copies]  # [copy, lag, agent]
        found.append(torch.where(inside.unsqueeze(-1), picked, torch.nan).transpose(1, 2))
    return torch.cat(found, dim=1).numpy()
