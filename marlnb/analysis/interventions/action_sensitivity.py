"""How far an agent's action distributions move when units are edited, on the states of episodes without edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.edit_variants import logits_of_variants
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.sites import part_of
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.collect.threads import torch_threads
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

NEGLIGIBLE = 0.02
"""An effect that does not count as use, unless the user says otherwise."""
Distance = Callable[[ActionDistribution, Tensor, Tensor], Tensor]
LabelFunctions = Mapping[str, Callable[[TimeStep], Tensor]]


def acting_group(policy_source: PolicySource, agent: str, site: str) -> GroupSpec:
    """The group of an agent whose actions depend on a site.

    Raises:
        AnalysisError: no such agent, or a site of the critic.
    """
    group = next((group for group in policy_source.spec.groups if agent in group.agents), None)
    if group is None or part_of(site) == "critic":
        raise AnalysisError(f"{site!r} of {agent!r} chooses no actions; the agents are {policy_source.spec.agents}")
    return group


def origin_to_play(policy_source: PolicySource, checkpoint: Which | None, fitted: int | None) -> Origin:
    """The weights to play: those asked for, else those on whose activations something was fitted, else the last.

    Args:
        fitted: the iteration of those weights; None: unknown.
    Raises:
        CheckpointError: there is no such checkpoint.
    """
    if checkpoint is None:
        checkpoint = "last" if fitted is None else fitted
    return policy_source.origin(checkpoint)


def other_weights_warning(what: str, fitted: int | None, played: Origin) -> tuple[str, ...]:
    """A warning if other weights are played than those on whose activations something was fitted."""
    if fitted is None or fitted == played.iteration:
        return ()
    return (f"{what} was fitted to checkpoint {fitted}, but checkpoint {played.iteration} is played",)


def play_episodes(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    edits: Sequence[Edit],
    *,
    episodes: int,
    n_envs: int,
    seed: int,
    explore: bool,
    sites: Sequence[str] = (),
    labels: LabelFunctions | None = None,
) -> list[Trajectories]:
    """Episodes 0 to `episodes` - 1, `n_envs` at a time; with labels, where `labels` (of the user; may be empty) is
    given."""
    return [
        roll_out(
            env, policies, edits, seed=seed, first=first, explore=explore, sites=sites, labels=labels is not None,
            label_functions=labels, episodes=min(n_envs, episodes - first),
        )
        for first in range(0, episodes, n_envs)
    ]  # fmt: skip


def baseline_warnings(baseline: Sequence[Trajectories], *, greedy: bool) -> tuple[str, ...]:
    """A warning if many of the episodes are duplicates."""
    return duplicate_warnings([hash for track in baseline for hash in episode_hashes(track)], greedy=greedy)


class ActionSensitivity:
    """How far one agent's action distributions move under edits, on the states of episodes without edits.

    Attributes:
        counted: of each trajectory, `[time, env]` bool, the steps over which effects are averaged.
        units: of the effects: total variation, KL (nats), or action for actions without a density.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        group: str,
        agent_index: int,
        baseline: Sequence[Trajectories],
        selected: Sequence[Tensor] | None = None,
        progress: AnalysisProgress | None = None,
    ) -> None:
        """
        Args:
            selected: of each trajectory, `[time, env]` bool; None: every step at which the agent acts.
            progress: counts edits; None: it is not shown.
        """
        self.progress = progress or AnalysisProgress("", "edits", shown=False)
        self.policies, self.group, self.agent_index, self.baseline = policies, group, agent_index, baseline
        acting = [track.acting[group][:, :, agent_index] for track in baseline]
        self.counted = acting if selected is None else [a & b.to(a.device) for a, b in zip(acting, selected)]
        if not any(bool(steps.any()) for steps in self.counted):
            agent = policies[group].group.agents[agent_index]
            raise AnalysisError(f"{agent} acts at none of the chosen steps of these episodes")
        distribution = policies[group].distribution
        if distribution is None:
            raise AnalysisError(f"{type(policies[group]).__name__} has no action distribution to compare")
        self.distribution = distribution
        logits = baseline[0].logits[group][:1]
        if total_variation(distribution, logits, logits) is not None:
            self.units, self._distance = "total variation", cast(Distance, total_variation)
        elif kl_divergence(distribution, logits, logits) is not None:
            self.units, self._distance = "KL (nats)", cast(Distance, kl_divergence)
        else:
            self.units, self._distance = "action", _mode_distance

    def activations(self, site: str) -> np.ndarray:
        """`[step, unit]` float64, of the counted steps, by episode."""
        of_agents = next(s for s in self.policies[self.group].sites() if s.name == site).agents
        column = 0 if of_agents is not None else self.agent_index
        rows = [
            track.activations[site][:, :, column].transpose(0, 1)[steps.T]
            for track, steps in zip(self.baseline, self.counted)
        ]
        return torch.cat(rows).double().cpu().numpy()

    @torch_threads(1)  # steps are small: more threads would wait for each other
    def effects(self, edits: Sequence[Edit]) -> np.ndarray:
        """Mean distance between the action distributions without edits and with each edit by itself, `[edit, episode]`;
        NaN where no step counts.

        Args:
            edits: as for `logits_of_variants`.
        """
        first, sizes = 0, [track.in_episode.shape[1] for track in self.baseline]
        effects = np.empty((len(edits), sum(sizes)))
        self.progress.expect(len(edits))
        for track, steps, n_envs in zip(self.baseline, self.counted, sizes):
            before = track.logits[self.group][:, :, self.agent_index]
            for k, after in enumerate(logits_of_variants(self.policies[self.group], track, edits)):
                distance = self._distance(self.distribution, before, after[:, :, self.agent_index])
                effects[k, first : first + n_envs] = mean_over_time(distance, steps)
                self.progress.add(n_envs / sum(sizes))
            first += n_envs
        return effects

    def returns(self, tracks: Sequence[Trajectories]) -> np.ndarray:
        """The agent's returns, `[episode]`."""
        return np.concatenate([track.table.returns[self.group][:, self.agent_index] for track in tracks])


def _mode_distance(distribution: ActionDistribution, before: Tensor, after: Tensor) -> Tensor:
    """For actions without a density: the mean distance of their components."""
    return (distribution.mode(before).action - distribution.mode(after).action).abs().mean(-1)
