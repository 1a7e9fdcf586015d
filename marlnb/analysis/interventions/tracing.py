"""trace: causal tracing. Episodes are corrupted, one site is restored at one time: what comes back went through it.

A cell of the grid is a rollout of all episodes at once, as copies of one environment, so that what the restored agent
does next changes what everybody sees: the whole effect, through the environment and the others as well. On native
environments a cell takes some milliseconds.

Source: Meng et al. 2022, Locating and Editing Factual Associations in GPT, section 2.1 (arXiv:2202.05262).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import episode_hashes, duplicate_warnings
from marlnb.analysis.data.trajectories import Trajectories, roll_out
from marlnb.analysis.interventions.intervene import FEW_EPISODES, MOST_COPIES, PolicySourceLike
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.interventions.tracing_result import Tracing
from marlnb.analysis.stats.bootstrap import bootstrap_weights, percentile_interval
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError, ConfigError, unknown
from marlnb.models.hooks import episode_context as clock
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.edit import OBSERVATION, Change, Edit, Place
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.reader import Recording
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import as_policy_source
from marlnb.training.runs.run import Which

REPETITIONS = 1000


def trace(
    subject: PolicySourceLike | Recording,
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
    """Corrupts episodes, restores each site of each agent at each time to what it was in the clean ones, and says which
    share of the corruption's effect is gone.

    Args:
        subject: a run or its folder, agents from elsewhere, or a recording: then its checkpoint, seed and (of its
            episodes) as many as are asked for, played again.
        corruption: edits, in force at every step or in their own windows: another message
            (`PermuteChannel("listener")`), another goal (`PermuteChannel("speaker", units="goal_*")`), no message.
        outcome: "return", the mean return of `group`; "actions", how near its action distributions are to the clean
            ones at equal steps (total variation, or KL where actions are continuous).
        group: whose outcome; None: the mean over all groups.
        sites: globs over site names; `<group>/observation` may be among them. agents: names; None for all.
        times: first steps of the restored windows; None: every `span` steps of the longest episode.
        episodes: at most 256, stepped at once.
    Raises:
        AnalysisError: an unknown outcome, group or agent, or a recording whose run is not there.
        SiteError: a pattern that matches no site.
    """
    if isinstance(subject, Recording):
        if subject.run_path is None:
            raise AnalysisError(f"{subject.path} lies in no run folder; trace the run, or the agents, themselves")
        checkpoint, seed = subject.checkpoint[0], int(subject.settings["seed"])
        episodes, subject = min(episodes, len(subject.episodes)), subject.run_path
    if outcome not in ("return", "actions"):
        raise AnalysisError(unknown("outcome to trace", outcome, ("return", "actions")))
    if not 2 <= episodes <= MOST_COPIES or span < 1:
        raise ConfigError(f"episodes are 2 to {MOST_COPIES}, span 1 or more; got {episodes}, {span}")
    subject = as_policy_source(subject)
    origin = subject.origin(checkpoint)
    policies = subject.policies(origin.iteration)
    edits = [corruption] if isinstance(corruption, Edit) else list(corruption)
    lines = _lines(policies, sites, agents)
    with subject.build_env(episodes, env=env) as built:
        check_fit(subject.spec, built.spec)
        groups = [group] if group is not None else list(built.spec.group_names)
        if group is not None:
            built.spec.group(group)
        bench = _Bench(built, policies, seed, outcome, groups, sorted({site for site, _ in lines}))
        corrupted = bench.score(edits)
        starts = list(times) if times is not None else list(range(0, len(bench.clean.in_episode), span))
        scores = np.empty((len(lines), len(starts), episodes))
        for k, (site, agent) in enumerate(lines):
            held = bench.held(site)
            for j, start in enumerate(starts):
                restore = _Restore(site, held, agents=(agent,), t=(start, start + span))
                scores[k, j] = bench.score([*edits, restore])
    clean = bench.clean_score
    recovered, low, high = _shares(clean, corrupted, scores, seed)
    return Tracing(
        corruption=tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in edits),
        outcome=f"{outcome} of {group or 'all groups'}",
        units="reward" if outcome == "return" else bench.units,
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
        warnings=(*duplicate_warnings(episode_hashes(bench.clean), greedy=False), *_warnings(clean, corrupted, episodes)),
    )


@dataclass(frozen=True)
class _Restore(Edit):
    """Puts back what a site was in the clean episodes, `held` `[time, copy, agent, unit]`; it lives in memory only."""

    name: ClassVar[str] = "restore"

    held: Tensor | None = None

    def begin(self, place: Place) -> Change:
        held = self.held
        assert held is not None
        names = place.policy.group.agents
        own = place.site.agents or tuple(range(len(names)))
        columns = [own.index(names.index(agent)) for agent in place.agents]
        held = held[:, :, columns]

        def restore(values: Tensor, whole: Tensor) -> Tensor:
            t = clock.now("restoring").t
            there = t < len(held)
            found = held[t.clamp(max=len(held) - 1), torch.arange(len(t))]
            return torch.where(there[:, None, None], found, values)

        return restore


class _Bench:
    """The clean episodes, and the score of any others: by episode, larger is nearer to the clean."""

    def __init__(
        self,
        env: VectorEnv,
        policies: Mapping[str, Policy],
        seed: int,
        outcome: str,
        groups: Sequence[str],
        sites: Sequence[str],
    ) -> None:
        self.env, self.policies, self.seed, self.outcome, self.groups = env, policies, seed, outcome, groups
        inner = [site for site in sites if not site.endswith(f"/{OBSERVATION}")]
        self.clean = self._play((), inner)
        self.units = "-"
        self.clean_score = self._of(self.clean)

    def held(self, site: str) -> Tensor:
        """`[time, copy, agent, unit]`."""
        if site.endswith(f"/{OBSERVATION}"):
            return self.clean.observation[site.split("/")[0]].flatten(3).float()
        return self.clean.activations[site]

    def score(self, edits: Sequence[Edit]) -> np.ndarray:
        """`[episode]`."""
        return self._of(self._play(edits, ()))

    def _play(self, edits: Sequence[Edit], sites: Sequence[str]) -> Trajectories:
        return roll_out(self.env, self.policies, edits, seed=self.seed, sites=sites, labels=False)

    def _of(self, track: Trajectories) -> np.ndarray:
        if self.outcome == "return":
            return np.mean([track.table.group_return(group) for group in self.groups], axis=0)
        return -np.mean([self._distance(track, group) for group in self.groups], axis=0)

    def _distance(self, track: Trajectories, group: str) -> np.ndarray:
        distribution = self.policies[group].distribution
        if distribution is None:
            raise AnalysisError(f"the policy of {group!r} tells no action distribution; outcome='return', or group=")
        steps = min(len(track.in_episode), len(self.clean.in_episode))
        p, q = self.clean.logits[group][:steps], track.logits[group][:steps]
        moved, self.units = total_variation(distribution, p, q), "- total variation"
        if moved is None:
            moved, self.units = kl_divergence(distribution, p, q), "- nats"
        if moved is None:
            moved = (self.clean.action[group][:steps] - track.action[group][:steps]).abs().mean(-1)
            self.units = "- action"
        both = self.clean.acting[group][:steps] & track.acting[group][:steps]
        return np.asarray(np.nanmean(mean_over_time(moved, both), axis=1))


def _lines(
    policies: Mapping[str, Policy], patterns: str | Sequence[str], agents: Sequence[str] | None
) -> list[tuple[str, str]]:
    """(site, agent) of each line of the grid, sites in the networks' order, observations first."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    seen = [pattern.split("/")[0] for pattern in wanted if pattern.endswith(f"/{OBSERVATION}")]
    inner = [pattern for pattern in wanted if not pattern.endswith(f"/{OBSERVATION}")]
    chosen: list[Site] = match_sites(all_sites(policies), inner) if inner else []
    found = [(f"{group}/{OBSERVATION}", agent) for group in seen for agent in policies[group].group.agents]
    for policy in policies.values():
        names = {site.name for site in policy.sites()}
        for site in (site for site in chosen if site.name in names and not site.shared_forward):
            own = range(policy.group.n_agents) if site.agents is None else site.agents
            found += [(site.name, policy.group.agents[index]) for index in own]
    have = {agent for policy in policies.values() for agent in policy.group.agents}
    for agent in agents or ():
        if agent not in have:
            raise AnalysisError(unknown("agent", agent, have))
    lines = [line for line in found if agents is None or line[1] in agents]
    if not lines:
        raise AnalysisError(f"no site of {wanted} belongs to one of {agents or sorted(have)} alone")
    return lines


def _shares(
    clean: np.ndarray, corrupted: np.ndarray, scores: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recovered shares `[line, time]` of scores `[line, time, episode]`, and their bootstrap interval."""
    lost = clean - corrupted
    gained = scores - corrupted
    with np.errstate(divide="ignore", invalid="ignore"):
        recovered = gained.mean(-1) / lost.mean()
        weights = bootstrap_weights(len(clean), REPETITIONS, np.random.default_rng(derive_seed(seed, "trace")))
        samples = np.tensordot(weights, gained, axes=(1, 2)) / (weights @ lost)[:, None, None]
    low, high = percentile_interval(samples)
    return recovered, low, high


def _warnings(clean: np.ndarray, corrupted: np.ndarray, episodes: int) -> Iterator[str]:
    if episodes < FEW_EPISODES:
        yield f"{episodes} episodes are few: intervals from fewer than {FEW_EPISODES} are rough"
    lost = paired_test(clean - corrupted)
    if lost.low <= 0 <= lost.high:
        interval = f"{lost.mean:.3g} [{lost.low:.3g}, {lost.high:.3g}]"
        yield f"the corruption had no clear effect ({interval}), so no share of it can be told"
