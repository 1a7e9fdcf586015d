"""How one different action of an agent changes the other agents' actions over the following steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from marlnb.analysis.communication.influence_result import over_episodes
from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.intervene import MAX_INTERVENTION_ENVS
from marlnb.analysis.interventions.outcomes import action_distance
from marlnb.analysis.results import Result, few_episodes_warning, grid_table
from marlnb.analysis.stats.divergence import total_variation
from marlnb.config import EnvConfig
from marlnb.display.formatting import count
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.specs import ActionSpec
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import check_episodes, choose_n_envs
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run_folder import Which
from marlnb.values import checked_number

Measure = Literal["total_variation", "action"]


@dataclass(frozen=True, eq=False, repr=False)
class ActionInfluence(Result):
    """How far agents' actions move in the steps after one action of another agent was replaced.

    Attributes:
        values: `[agent, lag]`, mean over episodes of the distance between the agent's actions with and without the
            replacement, `lag` steps after it. Lag 0 is the step of the replacement.
        low: `[agent, lag]`, lower end of its 95% bootstrap interval over episodes.
        high: `[agent, lag]`, upper end of that interval.
        agents: the influenced agents.
        source: the agent whose action is replaced.
        units: of the distances.
        n_episodes: episodes that were long enough for the horizon.
        settings: the options, enough to repeat the analysis.
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
        """Reasons not to trust the result."""
        return few_episodes_warning(self.n_episodes)

    def of(self, agent: str, lag: int) -> tuple[float, float, float]:
        """Value, low and high of one agent, `lag` steps after the replacement.

        Raises:
            AnalysisError: unknown agent or lag.
        """
        if agent not in self.agents or not 0 <= lag <= self.horizon:
            raise AnalysisError(
                f"no influence on {agent!r} at lag {lag}; agents: {self.agents}, lags: 0 to {self.horizon}"
            )
        cell = self.agents.index(agent), lag
        return float(self.values[cell]), float(self.low[cell]), float(self.high[cell])

    def table(self) -> pd.DataFrame:
        """One row for each agent and lag: agent, lag, value, low, high."""
        values = {"value": self.values, "low": self.low, "high": self.high}
        return grid_table({"agent": self.agents}, {"lag": np.arange(self.horizon + 1)}, values)

    def to_json(self) -> dict[str, Any]:
        names = ("source", "units", "n_episodes", "warnings", "settings")
        return self._selected_json(*names, lags=self.table().to_dict("records"))

    @property
    def verdict(self) -> str:
        a, lag = np.unravel_index(np.argmax(np.nan_to_num(self.values, nan=-np.inf)), self.values.shape)
        value = f"{self.values[a, lag]:.2g} [{self.low[a, lag]:.2g}, {self.high[a, lag]:.2g}] ({self.units})"
        horizon = count(self.horizon, "step")
        end = f"within {horizon}; {self.n_episodes} episodes, each compared with itself up to that action."
        if not self.low[a, lag] > 0:
            return f"Another action of {self.source} is not shown to change other agents' actions: {value} {end}"
        most = f"the actions of {self.agents[a]} most, {count(int(lag), 'step')} later"
        return f"Another action of {self.source} changes {most}: {value} {end}"

    def _repr_table(self) -> pd.DataFrame:
        return self.table().sort_values("value", ascending=False, ignore_index=True)


@closing_pools()
def action_influence(
    policy_source: PolicySourceLike,
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
) -> ActionInfluence:
    """Plays episodes twice, the second time with one action of `source` replaced, and compares the others' actions.

        influence[agent, lag] = mean over episodes of TV(p(. | s_t+lag), p(. | s'_t+lag))

    with p the agent's action distribution, s the states after the action a_t of `source`, and s' those after a'_t.
    In each episode the step is drawn uniformly from those at which `source` acts and `horizon` steps follow. Until then
    both rollouts are identical, bit for bit; afterwards messages, movements and recurrent states differ freely. The
    replacement is drawn uniformly from the other allowed actions (for a multi-discrete action in each component), or
    for a continuous action uniformly between its bounds.

    Args:
        policy_source: a run, its folder, or other agents.
        source: the agent whose action is replaced; if it speaks, its message.
        horizon: steps after the replacement.
        measure: total_variation (between action distributions, 0 to 1) or action (whether another action was taken;
            for continuous actions the components' mean distance, in the environment's units).
        episodes: how many to play.
        explore: sample actions, with the same noise in both rollouts; False takes the most likely ones.
        n_envs: environments stepped at once.
    Raises:
        AnalysisError: unknown agent, a source with a single action, no other agent, policies without probabilities for
            total_variation, or no episode as long as the horizon.
        ConfigError: an option out of range.
    """
    if measure not in get_args(Measure):
        raise AnalysisError(unknown("measure", measure, get_args(Measure)))
    check_episodes(episodes, seed, n_envs)
    horizon = checked_number(horizon, int, "horizon", ge=1)
    policy_source = as_policy_source(policy_source)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration, device=device)
    group = _source_group(policy_source, source, policies, measure)
    agent_index = policy_source.spec.group(group).agents.index(source)
    n_envs = choose_n_envs(policy_source, episodes, n_envs, MAX_INTERVENTION_ENVS)
    parts = []
    with policy_source.build_env(n_envs, device=device, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        publish_evaluation(built, policy_source.path / EVALUATION)
        for first in range(0, episodes, n_envs):
            n = min(n_envs, episodes - first)
            play = partial(roll_out, built, policies, (), seed=seed, first=first, explore=explore, labels=False)
            baseline = play(episodes=n)
            generator = torch.Generator().manual_seed(seed * 1_000_003 + first)
            acting = baseline.acting[group][..., agent_index].cpu()
            steps = _draw_steps(acting, baseline.in_episode.cpu(), horizon, generator)
            override = ActionOverride(baseline, group, agent_index, steps, generator)
            parts.append(_distances(policies, play(episodes=n, override_action=override), override, horizon, measure))
    distances, agents = np.concatenate(parts), list(policy_source.spec.agents)
    others = [k for k, agent in enumerate(agents) if agent != source]
    long_enough = np.isfinite(distances).any(axis=(1, 2))
    if not long_enough.any():
        raise AnalysisError(
            f"in no episode {source!r} acted with a choice and {count(horizon, 'step')} followed: "
            "use a smaller horizon="
        )
    distances = distances[long_enough][:, others]
    values, low, high, n_episodes = over_episodes(distances, np.arange(len(distances)), seed)
    settings = {
        "env": policy_source.spec.name,
        "episodes": episodes,
        "seed": seed,
        "explore": explore,
        "n_envs": n_envs,
        "measure": measure,
        "checkpoint": origin.iteration,
        "sha256": origin.sha256,
    }
    units = "total variation" if measure == "total_variation" else "share of episodes, or action's units"
    return ActionInfluence(values, low, high, tuple(agents[k] for k in others), source, units, n_episodes, settings)


def _source_group(policy_source: PolicySource, source: str, policies: Mapping[str, Policy], measure: Measure) -> str:
    agents = policy_source.spec.agents
    if source not in agents:
        raise AnalysisError(unknown("agent", source, agents))
    if len(agents) == 1:
        raise AnalysisError(f"{source!r} is the only agent: there is no other agent to influence")
    group = policy_source.spec.group_of(source)
    action = group.action
    if action.kind != "continuous" and max(action.n) < 2:
        raise AnalysisError(f"{source!r} has a single action, which cannot be replaced")
    without_probabilities = [name for name, policy in policies.items() if policy.distribution is None]
    if measure == "total_variation" and without_probabilities:
        raise AnalysisError(f"the policies of {without_probabilities} give no probabilities: use measure='action'")
    return group.name


def _draw_steps(acting: Tensor, in_episode: Tensor, horizon: int, generator: torch.Generator) -> Tensor:
    """`[env]`, a step at which the agent acts `[time, env]` and the horizon fits; -1 if there is none."""
    length = in_episode.sum(0)
    fits = torch.arange(len(acting))[:, None] + horizon < length
    drawn = torch.rand(acting.shape, generator=generator).masked_fill(~(acting & fits), -1.0)
    largest, step = drawn.max(0)
    return torch.where(largest >= 0, step, -1)


class ActionOverride:
    """Replaces the action of one agent at one step of each episode.

    Attributes:
        baseline: the episodes without the replacement.
        steps: `[env]`, the step of the replacement; -1 if there is none.
        valid: `[env]`, whether there is another action to take.
    """

    def __init__(
        self, baseline: Trajectories, group: str, agent_index: int, steps: Tensor, generator: torch.Generator
    ) -> None:
        self.baseline, self.group, self.agent_index, self.steps = baseline, group, agent_index, steps
        at, env_index = steps.clamp(min=0), torch.arange(len(steps))
        taken = baseline.action[group][at, env_index, agent_index].cpu()
        mask = baseline.mask[group]
        allowed = None if mask is None else mask[at, env_index, agent_index].cpu()
        self.action, has_other = _other_actions(taken, allowed, baseline.env.group(group).action, generator)
        self.valid = has_other & (steps >= 0)

    def __call__(self, time_step: TimeStep) -> Mapping[str, Tensor]:
        """The group's actions at this step, as `play(override_action=)` asks for them."""
        n_envs = len(self.steps)
        in_episode = time_step.episode[:n_envs] >= 0  # an env whose episode has ended plays the next one
        envs = torch.nonzero(self.valid & in_episode & (time_step.t[:n_envs] == self.steps)).squeeze(-1)
        action = time_step.output[self.group].action.clone()
        action[envs, self.agent_index] = self.action[envs].to(action)
        return {self.group: action}


def _other_actions(
    taken: Tensor, allowed: Tensor | None, spec: ActionSpec, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Actions other than `taken` `[env(, component)]`, and whether there is one `[env]`."""
    if spec.kind == "continuous":
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        return low + (high - low) * torch.rand(taken.shape, generator=generator), torch.ones(len(taken)).bool()
    components = taken.unsqueeze(-1) if spec.kind == "discrete" else taken
    masks = torch.ones(len(taken), sum(spec.n)).bool() if allowed is None else allowed
    drawn, has_other = [], torch.zeros(len(taken)).bool()
    for k, mask in enumerate(masks.split(list(spec.n), dim=-1)):
        current = components[:, k].long()
        others = mask & (torch.arange(spec.n[k]) != current.unsqueeze(-1))
        some = others.any(-1)
        weights = torch.where(some.unsqueeze(-1), others, torch.ones_like(others)).double()
        choice = torch.multinomial(weights, 1, generator=generator).squeeze(-1)
        drawn.append(torch.where(some, choice, current))
        has_other |= some
    action = torch.stack(drawn, dim=-1)
    return (action.squeeze(-1) if spec.kind == "discrete" else action), has_other


def _distances(
    policies: Mapping[str, Policy], replaced: Trajectories, override: ActionOverride, horizon: int, measure: Measure
) -> np.ndarray:
    """`[env, agent, lag]`, NaN where the agent did not act in both rollouts, or nothing was replaced."""
    baseline = override.baseline
    n_steps = min(len(baseline.in_episode), len(replaced.in_episode))
    times = override.steps.clamp(min=0).unsqueeze(-1) + torch.arange(horizon + 1)  # [env, lag]
    valid = (times < n_steps) & override.valid.unsqueeze(-1)
    env_index = torch.arange(len(override.steps)).unsqueeze(-1)
    of_groups = []
    for name in baseline.env.group_names:
        policy = policies[name]
        both_act = (baseline.acting[name][:n_steps] & replaced.acting[name][:n_steps]).cpu()
        distance: Tensor | None
        if measure == "action":
            distance, _ = action_distance(baseline.action[name][:n_steps], replaced.action[name][:n_steps], policy)
        else:
            assert policy.distribution is not None
            before, after = baseline.logits[name][:n_steps], replaced.logits[name][:n_steps]
            distance = total_variation(policy.distribution, before, after)
        if distance is None:
            raise AnalysisError(f"the actions of {name!r} have no total variation: use measure='action'")
        distance = torch.where(both_act, distance.cpu().double(), torch.nan)
        at_times = distance[times.clamp(max=n_steps - 1), env_index]  # [env, lag, agent]
        of_groups.append(torch.where(valid.unsqueeze(-1), at_times, torch.nan).transpose(1, 2))
    return torch.cat(of_groups, dim=1).numpy()
