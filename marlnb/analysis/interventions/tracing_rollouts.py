"""The episodes of causal tracing: clean or with edits, and restored to their clean activations at single sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.edit import Change, Edit, EditTarget
from marlnb.models.hooks.sites import OBSERVATION, group_of
from marlnb.models.policies.policy import Policy


@dataclass(frozen=True)
class Restore(Edit):
    """Sets a site to its activations in the clean episodes; exists in memory only.

    Attributes:
        activations: `[time, env, agent, unit]`.
        in_episode: `[time, env]` bool, False after the env's clean episode, where nothing is restored.
    """

    name: ClassVar[str] = "restore"

    activations: Tensor | None = None
    in_episode: Tensor | None = None

    def bind(self, target: EditTarget) -> Change:
        assert self.activations is not None and self.in_episode is not None
        in_episode = self.in_episode.to(self.activations.device)
        names = target.policy.group.agents
        site_agents = target.site.agents or tuple(range(len(names)))
        clean = self.activations[:, :, [site_agents.index(names.index(agent)) for agent in target.agents]]

        def restore(values: Tensor, whole: Tensor) -> Tensor:
            t = episode_context.now("restoring").t
            at, envs = t.clamp(max=len(clean) - 1), torch.arange(len(t))
            recorded = (t < len(clean)) & in_episode[at, envs]  # a corrupted episode may last longer than the clean one
            return torch.where(recorded[:, None, None], clean[at, envs], values)

        return restore


@dataclass
class Rollouts:
    """Plays the episodes, clean or with edits, and scores each: larger is closer to the clean episode.

    Attributes:
        seeds: of the episodes, `[episode]`, if they do not follow from `seed`.
        clean: the episodes without edits, with the activations of `sites`.
        clean_score: `[episode]`.
        units: of the scores.
    """

    env: VectorEnv
    policies: Mapping[str, Policy]
    seed: int
    outcome: str
    groups: Sequence[str]
    sites: Iterable[str]
    seeds: Tensor | None = None

    def __post_init__(self) -> None:
        self.units = "-"
        self.clean = self._play((), [site for site in sorted(self.sites) if not site.endswith(f"/{OBSERVATION}")])
        self.clean_score = self._score(self.clean)

    def clean_activations(self, site: str) -> Tensor:
        """`[time, env, agent, unit]`."""
        if site.endswith(f"/{OBSERVATION}"):
            return self.clean.observation[group_of(site)].flatten(3).float()
        return self.clean.activations[site]

    def score(self, edits: Sequence[Edit]) -> np.ndarray:
        """`[episode]`."""
        return self._score(self._play(edits, ()))

    def _play(self, edits: Sequence[Edit], sites: Sequence[str]) -> Trajectories:
        return roll_out(self.env, self.policies, edits, seed=self.seed, sites=sites, labels=False, seeds=self.seeds)

    def _score(self, track: Trajectories) -> np.ndarray:
        if self.outcome == "return":
            return np.mean([track.table.group_return(group) for group in self.groups], axis=0)
        return -np.mean([self._distance(track, group) for group in self.groups], axis=0)

    def _distance(self, track: Trajectories, group: str) -> np.ndarray:
        """Mean distance of the group's action distributions from the clean ones at equal steps, `[episode]`."""
        distribution = self.policies[group].distribution
        if distribution is None:
            raise AnalysisError(
                f"the policy of {group!r} has no action distribution: use outcome='return', or another group="
            )
        steps = min(len(track.in_episode), len(self.clean.in_episode))
        p, q = self.clean.logits[group][:steps], track.logits[group][:steps]
        distance, self.units = total_variation(distribution, p, q), "- total variation"
        if distance is None:
            distance, self.units = kl_divergence(distribution, p, q), "- nats"
        if distance is None:
            distance = (self.clean.action[group][:steps] - track.action[group][:steps]).abs().mean(-1)
            self.units = "- action"
        both_act = self.clean.acting[group][:steps] & track.acting[group][:steps]
        return np.asarray(np.nanmean(mean_over_time(distance, both_act), axis=1))
