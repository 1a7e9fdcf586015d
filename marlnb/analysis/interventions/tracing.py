"""Causal tracing: corrupt episodes, restore one site at one time, and measure how much of the effect is undone.

Each cell of the grid is a rollout of all episodes at once. What the restored agent does next changes what all agents
observe, so a cell measures the total effect, through the environment and the other agents. On native environments a
cell takes some milliseconds.

Source: Meng et al. 2022, Locating and Editing Factual Associations in GPT, section 2.1 (arXiv:2202.05262).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.intervene import MAX_ENVS
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.interventions.tracing_result import Tracing
from marlnb.analysis.results import MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.bootstrap import bootstrap_weights, percentile_interval
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError, ConfigError, unknown
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.edit import Change, Edit, EditTarget
from marlnb.models.hooks.sites import OBSERVATION, Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.reader import Recording
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

N_BOOTSTRAP = 1000
OUTCOMES = ("return", "actions")


def trace(
    policy_source: PolicySourceLike | Recording,
    corruption: Edit | Sequence[Edit],
    *,
    outcome: str = "return",
    group: str | None = None,
    sites: str | Sequence[str] = "*/actor/*",
    agents: Sequence[str] | None = None,
    times: Sequence[int] | None = None,
    span: int = 1,
    episodes: int = 64,
    seed: int = 1000,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
) -> Tracing:
    """Corrupts episodes and measures which share of the effect is undone by restoring each site, agent and time.

    A restored site is set to its activations in the clean episodes:
    `recovered = (restored - corrupted) / (clean - corrupted)`.

    Args:
        policy_source: a run, its folder, or other agents; or a recording, whose checkpoint, seed and episodes (up to
            `episodes` of them) are then played again.
        corruption: edits, active at every step or in their own windows: another message
            (`PermuteChannel("listener")`), another goal (`PermuteChannel("speaker", units="goal_*")`), no message.
        outcome: "return", the mean return of `group`; "actions", how close its action distributions are to the clean
            ones at equal steps (total variation, or KL for continuous actions).
        group: whose outcome. None: of "actions" the mean over all groups; of "return" that of all agents, where every
            group has the same one.
        sites: globs over site names; `<group>/observation` may be among them.
        agents: names; None for all.
        times: first steps of the restored windows; None: every `span` steps of the longest episode.
        span: restored steps in each window.
        episodes: how many to play, 2 to 256, stepped at once.
    Raises:
        AnalysisError: an unknown outcome, group or agent, a recording whose run does not exist, or no group= where
            groups have different returns, whose mean would say nothing.
        ConfigError: episodes or span out of range.
        SiteError: a pattern that matches no site.
    """
    if isinstance(policy_source, Recording):
        if policy_source.run_path is None:
            raise AnalysisError(
                f"{policy_source.path} is in no run folder: pass the run or the agents to trace instead"
            )
        checkpoint, seed = policy_source.checkpoint[0], int(policy_source.settings["seed"])
        episodes, policy_source = min(episodes, len(policy_source.episodes)), policy_source.run_path
    if outcome not in OUTCOMES:
        raise AnalysisError(unknown("outcome", outcome, OUTCOMES))
    if not 2 <= episodes <= MAX_ENVS or span < 1:
        raise ConfigError(f"episodes must be 2 to {MAX_ENVS} and span 1 or more; got {episodes} and {span}")
    policy_source = as_policy_source(policy_source)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration)
    edits = [corruption] if isinstance(corruption, Edit) else list(corruption)
    lines = _grid_lines(policies, sites, agents)
    with policy_source.build_env(episodes, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        groups = list(built.spec.group_names) if group is None else [built.spec.group(group).name]
        rollouts = _Rollouts(built, policies, seed, outcome, groups, {site for site, _ in lines})
        if group is None and outcome == "return":
            _check_same_returns(rollouts.clean)
        corrupted = rollouts.score(edits)
        starts = list(times) if times is not None else list(range(0, len(rollouts.clean.in_episode), span))
        scores = np.empty((len(lines), len(starts), episodes))
        for k, (site, agent) in enumerate(lines):
            activations = rollouts.clean_activations(site)
            for j, start in enumerate(starts):
                restore = _Restore(site, activations, agents=(agent,), t=(start, start + span))
                scores[k, j] = rollouts.score([*edits, restore])
    clean = rollouts.clean_score
    recovered, low, high = _recovered(clean, corrupted, scores, seed)
    return Tracing(
        corruption=tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in edits),
        outcome=f"{outcome} of {group or 'all groups'}",
        units="reward" if outcome == "return" else rollouts.units,
        clean=float(clean.mean()),
        corrupted=float(corrupted.mean()),
        sites=tuple(site for site, _ in lines),
        agents=tuple(agent for _, agent in lines),
        times=tuple(starts),
        span=span,
        recovered=recovered,
        low=low,
        high=high,
        settings={"seed": seed, "episodes": episodes, "checkpoint": origin.iteration, "sha256": origin.sha256},
        warnings=(
            *duplicate_warnings(episode_hashes(rollouts.clean), greedy=False),
            *_warnings(clean, corrupted, episodes),
        ),
    )


@dataclass(frozen=True)
class _Restore(Edit):
    """Sets a site to its activations in the clean episodes; exists in memory only.

    Attributes:
        activations: `[time, env, agent, unit]`.
    """

    name: ClassVar[str] = "restore"

    activations: Tensor | None = None

    def bind(self, target: EditTarget) -> Change:
        assert self.activations is not None
        names = target.policy.group.agents
        site_agents = target.site.agents or tuple(range(len(names)))
        clean = self.activations[:, :, [site_agents.index(names.index(agent)) for agent in target.agents]]

        def restore(values: Tensor, whole: Tensor) -> Tensor:
            t = episode_context.now("restoring").t
            recorded = t < len(clean)  # a corrupted episode may last longer than the clean one
            restored = clean[t.clamp(max=len(clean) - 1), torch.arange(len(t))]
            return torch.where(recorded[:, None, None], restored, values)

        return restore


@dataclass
class _Rollouts:
    """Plays the episodes, clean or with edits, and scores each: larger is closer to the clean episode.

    Attributes:
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

    def __post_init__(self) -> None:
        self.units = "-"
        self.clean = self._play((), [site for site in sorted(self.sites) if not site.endswith(f"/{OBSERVATION}")])
        self.clean_score = self._score(self.clean)

    def clean_activations(self, site: str) -> Tensor:
        """`[time, env, agent, unit]`."""
        if site.endswith(f"/{OBSERVATION}"):
            return self.clean.observation[site.split("/")[0]].flatten(3).float()
        return self.clean.activations[site]

    def score(self, edits: Sequence[Edit]) -> np.ndarray:
        """`[episode]`."""
        return self._score(self._play(edits, ()))

    def _play(self, edits: Sequence[Edit], sites: Sequence[str]) -> Trajectories:
        return roll_out(self.env, self.policies, edits, seed=self.seed, sites=sites, labels=False)

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


def _grid_lines(
    policies: Mapping[str, Policy], patterns: str | Sequence[str], agents: Sequence[str] | None
) -> list[tuple[str, str]]:
    """(site, agent) of each line of the grid: observations first, then sites in the networks' order."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    observed = [pattern.split("/")[0] for pattern in patterns if pattern.endswith(f"/{OBSERVATION}")]
    inner = [pattern for pattern in patterns if not pattern.endswith(f"/{OBSERVATION}")]
    matches: list[Site] = match_sites(all_sites(policies), inner) if inner else []
    candidates = [(f"{group}/{OBSERVATION}", agent) for group in observed for agent in policies[group].group.agents]
    for policy in policies.values():
        names = {site.name for site in policy.sites()}
        for site in (site for site in matches if site.name in names and not site.shared_forward):
            indices = range(policy.group.n_agents) if site.agents is None else site.agents
            candidates += [(site.name, policy.group.agents[index]) for index in indices]
    known = {agent for policy in policies.values() for agent in policy.group.agents}
    for agent in agents or ():
        if agent not in known:
            raise AnalysisError(unknown("agent", agent, known))
    lines = [line for line in candidates if agents is None or line[1] in agents]
    if not lines:
        raise AnalysisError(f"no site of {patterns} belongs to a single agent of {agents or sorted(known)}")
    return lines


def _recovered(
    clean: np.ndarray, corrupted: np.ndarray, scores: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recovered shares `[line, time]` of scores `[line, time, episode]`, and their bootstrap interval."""
    lost = clean - corrupted
    gained = scores - corrupted
    with np.errstate(divide="ignore", invalid="ignore"):
        recovered = gained.mean(-1) / lost.mean()
        weights = bootstrap_weights(len(clean), N_BOOTSTRAP, np.random.default_rng(derive_seed(seed, "trace")))
        samples = np.tensordot(weights, gained, axes=(1, 2)) / (weights @ lost)[:, None, None]
    low, high = percentile_interval(samples)
    return recovered, low, high


def _check_same_returns(clean: Trajectories) -> None:
    names = clean.env.group_names
    returns = np.stack([clean.table.group_return(name) for name in names])
    if not np.allclose(returns, returns[:1], rtol=1e-3, atol=1e-3):
        raise AnalysisError(
            f"outcome='return' of all groups, but {', '.join(names)} have returns of their own: choose group= from "
            f"{list(names)}"
        )


def _warnings(clean: np.ndarray, corrupted: np.ndarray, episodes: int) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    lost = paired_test(clean - corrupted)
    if lost.low <= 0 <= lost.high:
        interval = f"{lost.mean:.3g} [{lost.low:.3g}, {lost.high:.3g}]"
        yield f"the corruption had no clear effect ({interval}), so recovered shares of it mean nothing"
