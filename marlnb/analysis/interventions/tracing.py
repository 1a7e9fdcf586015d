"""Causal tracing: corrupt episodes, restore one site at one time, and measure how much of the effect is undone.

Each cell of the grid is a rollout of all episodes at once. What the restored agent does next changes what all agents
observe, so a cell measures the total effect, through the environment and the other agents. On native environments a
cell takes some milliseconds.

Source: Meng et al. 2022, Locating and Editing Factual Associations in GPT, section 2.1 (arXiv:2202.05262).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import Trajectories
from marlnb.analysis.data.views import chosen_names
from marlnb.analysis.interventions.intervene import MAX_INTERVENTION_ENVS
from marlnb.analysis.interventions.tracing_result import Tracing
from marlnb.analysis.interventions.tracing_rollouts import Restore, Rollouts
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.results import MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.bootstrap import bootstrap_weights, percentile_interval
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.config import EnvConfig
from marlnb.display.formatting import format_interval
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AnalysisError, shown, unknown
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.sites import OBSERVATION, Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.episode_index import integers_of
from marlnb.recording.file.opened import opened_if_file
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.recorded_env import check_env
from marlnb.recording.tools.recorded_policies import check_origin
from marlnb.recording.tools.replay import check_start
from marlnb.specs import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.saved_edits import resolve_edits
from marlnb.values import checked_number

N_BOOTSTRAP = 1000
MAX_ROUNDING = 1e-6
"""A change of the mean outcome up to this is rounding; where outcomes exceed 1, up to this share of the largest."""
OUTCOMES = ("return", "actions")


@closing_pools()
def trace(
    policy_source: PolicySourceLike | Recording,
    corruption: Edit | Sequence[Edit] | str,
    *,
    outcome: str = "return",
    group: str | None = None,
    sites: str | Sequence[str] = "*/actor/*",
    agents: str | Sequence[str] | None = None,
    times: int | Sequence[int] | None = None,
    span: int = 1,
    episodes: int = 64,
    seed: int = 1000,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    progress: bool = True,
) -> Tracing:
    """Corrupts episodes and measures which share of the effect is undone by restoring each site, agent and time.

    A restored site is set to its activations in the clean episodes:
    `recovered = (restored - corrupted) / (clean - corrupted)`.

    Args:
        policy_source: a run, its folder, or other agents; or a recording or its path, whose checkpoint and finished
            episodes (the first `episodes` of them) are then played again. Its actions must be greedy, without edits.
        corruption: edits, active at every step or in their own windows: another message
            (`PermuteChannel("listener")`), another goal (`PermuteChannel("speaker", units="goal_*")`), no message. Or
            the name under which some were saved with the run.
        outcome: "return", the mean return of `group`; "actions", how close its action distributions are to the clean
            ones at equal steps (total variation, or KL for continuous actions).
        group: whose outcome. None: of "actions" the mean over all groups; of "return" that of all agents, where every
            group has the same one.
        sites: globs over site names; `<group>/observation` may be among them.
        agents: one name or several; None for all.
        times: first steps of the restored windows, one or several; None: every `span` steps of the longest episode.
        span: restored steps in each window.
        episodes: how many to play, 2 to 256, stepped at once.
        progress: show how many cells of the grid are done, if it takes more than two seconds.
    Raises:
        AnalysisError: an unknown outcome, group or agent, no agent, a start of a window outside every episode, a
            recording that cannot be played again, or no group= where groups have different returns, whose mean would
            say nothing.
        ConfigError: a number out of range.
        RecordingError: the weights or the environment differ from those recorded; an episode has no known start.
        SiteError: a pattern that matches no site.
    """
    if outcome not in OUTCOMES:
        raise AnalysisError(unknown("outcome", outcome, OUTCOMES))
    episodes = checked_number(episodes, int, "episodes", ge=2, le=MAX_INTERVENTION_ENVS)
    span, seed = checked_number(span, int, "span", ge=1), checked_number(seed, int, "seed", ge=0)
    policy_source, seeds = opened_if_file(policy_source), None
    if isinstance(policy_source, Recording):
        recording, policy_source = policy_source, _source_of(policy_source, env)
        seed, seeds = int(recording.settings["seed"]), _seeds_of(recording, episodes)
        checkpoint, episodes = recording.checkpoint[0], len(seeds)
    policy_source = as_policy_source(policy_source)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration)
    edits = resolve_edits(policy_source, corruption)
    lines = _grid_lines(policies, sites, agents)
    with policy_source.build_env(episodes, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        groups = list(built.spec.group_names) if group is None else [built.spec.group(group).name]
        rollouts = Rollouts(built, policies, seed, outcome, groups, {site for site, _ in lines}, seeds)
        if group is None and outcome == "return":
            _check_same_returns(rollouts.clean)
        starts = _starts(times, span, len(rollouts.clean.in_episode))
        corrupted = rollouts.score(edits)
        with AnalysisProgress("tracing", "cells", len(lines) * len(starts), shown=progress) as shown:
            scores = _restored_scores(rollouts, edits, lines, starts, span, shown)
    clean = rollouts.clean_score
    recovered, low, high = _recovered(clean, corrupted, scores, seed)
    outcome_of = f"{outcome} of {group or 'all groups'}"
    return Tracing(
        corruption=tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in edits),
        outcome=outcome_of,
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
            *_warnings(clean, corrupted, episodes, outcome_of),
        ),
    )


def _source_of(recording: Recording, env: EnvConfig | None) -> PolicySource:
    """Who played a recording, checked to play the same again: greedy actions of one checkpoint, without edits."""
    if recording.run_path is None:
        raise AnalysisError(f"{recording.path} is in no run folder: pass the run or the agents to trace instead")
    iterations = recording.checkpoints["iteration"].unique().tolist()
    reasons = {
        f"episodes of the checkpoints {iterations}": len(iterations) > 1,
        "sampled actions": recording.settings["explore"],
        "edits": recording.settings.get("edits"),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        raise AnalysisError(
            f"{recording.path.name} has {reason}; trace plays greedy actions of one checkpoint without edits: pass the "
            "run instead, with checkpoint="
        )
    source = as_policy_source(recording.run_path)
    check_origin(recording, source, Origin(*recording.checkpoint))
    check_env(recording, source, env)
    return source


def _seeds_of(recording: Recording, episodes: int) -> Tensor:
    """Seeds of the first finished episodes, `[episode]`.

    Raises:
        AnalysisError: there are fewer than two.
    """
    finished = recording.episodes[recording.episodes["finished"]].head(episodes)
    if len(finished) < 2:
        raise AnalysisError(f"trace needs 2 or more finished episodes; {recording.path.name} has {len(finished)}")
    for episode in finished.index:
        check_start(recording, episode)
    return torch.tensor(finished["seed"].to_numpy())


def _starts(times: int | Sequence[int] | None, span: int, n_steps: int) -> list[int]:
    """The first step of each restored window, in a longest episode of `n_steps`.

    Raises:
        AnalysisError: the longest episode has no such step, or there is none.
        RecordingError: a step is no integer.
    """
    starts = list(range(0, n_steps, span)) if times is None else integers_of(times, None, "times")
    outside = [start for start in starts if not 0 <= start < n_steps]
    if outside or not starts:
        problem = f"no episode has the steps {outside}" if outside else "an empty list chooses no step"
        raise AnalysisError(f"times={shown(times)}: {problem}; valid: 0 to {n_steps - 1}")
    return starts


def _restored_scores(
    rollouts: Rollouts,
    corruption: Sequence[Edit],
    lines: Sequence[tuple[str, str]],
    starts: Sequence[int],
    span: int,
    progress: AnalysisProgress,
) -> np.ndarray:
    """`[line, time, episode]`, the outcome of corrupted episodes in which one site of one agent is restored.

    Args:
        lines: (site, agent) of each line of the grid.
        starts: first steps of the restored windows.
        span: restored steps in each window.
    """
    scores = np.empty((len(lines), len(starts), len(rollouts.clean_score)))
    for k, (site, agent) in enumerate(lines):
        activations = rollouts.clean_activations(site)
        for j, start in enumerate(starts):
            window = (start, start + span)
            restore = Restore(site, activations, rollouts.clean.in_episode, agents=(agent,), t=window)
            scores[k, j] = rollouts.score([*corruption, restore])
            progress.add()
    return scores


def _grid_lines(
    policies: Mapping[str, Policy], patterns: str | Sequence[str], agents: str | Sequence[str] | None
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
    known = [agent for policy in policies.values() for agent in policy.group.agents]
    chosen = known if agents is None else chosen_names("agent", agents, known)
    lines = [line for line in candidates if line[1] in chosen]
    if not lines:
        raise AnalysisError(f"no site of {patterns} belongs to a single agent of {chosen}")
    return lines


def _recovered(
    clean: np.ndarray, corrupted: np.ndarray, scores: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recovered shares `[line, time]` of scores `[line, time, episode]`, and their bootstrap interval.

    NaN if nothing was lost.
    """
    if _is_unchanged(clean, corrupted):
        recovered, low, high = np.full((3, *scores.shape[:2]), np.nan)
        return recovered, low, high
    lost = clean - corrupted
    gained = scores - corrupted
    recovered = gained.mean(-1) / lost.mean()
    weights = bootstrap_weights(len(clean), N_BOOTSTRAP, np.random.default_rng(derive_seed(seed, "trace")))
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = np.tensordot(weights, gained, axes=(1, 2)) / (weights @ lost)[:, None, None]
    low, high = percentile_interval(samples)
    return recovered, low, high


def _is_unchanged(clean: np.ndarray, corrupted: np.ndarray) -> bool:
    """Whether the mean outcomes of clean and corrupted episodes `[episode]` are equal up to rounding."""
    scale = max(1.0, float(np.abs(clean).max()), float(np.abs(corrupted).max()))
    return bool(abs((clean - corrupted).mean()) <= MAX_ROUNDING * scale)


def _check_same_returns(clean: Trajectories) -> None:
    names = clean.env.group_names
    returns = np.stack([clean.table.group_return(name) for name in names])
    if not np.allclose(returns, returns[:1], rtol=1e-3, atol=1e-3):
        raise AnalysisError(
            f"outcome='return' of all groups, but {', '.join(names)} have returns of their own: choose group= from "
            f"{list(names)}"
        )


def _warnings(clean: np.ndarray, corrupted: np.ndarray, episodes: int, outcome: str) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    if _is_unchanged(clean, corrupted):
        yield f"the corruption does not change the {outcome}, so nothing can be recovered"
        return
    lost = paired_test(clean - corrupted)
    if lost.low <= 0 <= lost.high:
        interval = format_interval(lost.mean, lost.low, lost.high)
        yield f"the corruption had no clear effect ({interval}), so recovered shares of it mean nothing"
