"""causal_map: edits every unit of a site by itself, each in environments of its own, in one rollout.

With M units and E episodes, M + 1 parts of E environments play the same episodes: the first part without an edit, each
other part with one unit edited. A step of the policies and of the environment serves all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, get_args

import torch
from torch import Tensor, nn

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import PolicyOutputs, Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.batched_outcomes import BatchedOutcomes, power_warnings
from marlnb.analysis.interventions.causal_map_result import CausalMap, UnitEffects
from marlnb.analysis.interventions.edit_variants import logits_of_variants
from marlnb.analysis.interventions.outcomes import paired_outcomes
from marlnb.analysis.interventions.result import Arm
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.stats.paired_test import Intervals
from marlnb.config import EnvConfig
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.vector import VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError, unknown
from marlnb.models.hooks.apply_edits import edit_targets
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate, Noise
from marlnb.models.hooks.edits_variants import variants
from marlnb.models.hooks.sites import part_of
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.specs import SEED_SPAN
from marlnb.training.collect.threads import torch_threads
from marlnb.training.malloc import keep_freed_memory
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import check_episodes
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run_folder import Which

DEFAULT_N_ENVS = 16_384
"""Environments of one rollout. Their trajectories are in memory: about 0.2 GB in MPE."""


class UnitEdit(NamedTuple):
    """One unit's edit.

    Attributes:
        group: whose policy has the site.
        site: site name.
        unit: its index at the site.
        edit: of this unit alone.
        agents: the agents whose behaviour it may change.
    """

    group: str
    site: str
    unit: int
    edit: Edit
    agents: tuple[str, ...]


@closing_pools()
def causal_map(
    policy_source: PolicySourceLike,
    site: str | Edit,
    *,
    episodes: int = 200,
    seed: int = 1000,
    explore: bool = False,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int = DEFAULT_N_ENVS,
    device: str = "cpu",
    intervals: Intervals = "t",
    progress: bool = True,
) -> CausalMap:
    """The effect of each unit of a site on every outcome: what `intervene` returns for an edit of that unit alone.

    Episode k has the seed `seed + k` in every part of the environments, so each episode is its own control.

    Args:
        policy_source: a run, its folder, or other agents.
        site: a site or a glob over sites, whose units are set to zero one after another; or an edit, which is applied
            to each of its units by itself: `Ablate(site, "mean", source=recording)`, `Scale(site, 0.5)`.
        episodes: how many each unit plays.
        explore: sample actions. The units then play one after another, so that the noise of each step is the same for
            all of them; False takes the most likely actions.
        n_envs: environments stepped at once. Where M units and the part without an edit do not fit with all episodes,
            the episodes are played in several rollouts.
        intervals: as for `intervene`.
        progress: show how many edited episodes were played, if it takes more than two seconds.
    Raises:
        ConfigError: an option out of range, or an edit of a kind that has no units of its own (patches, directions).
        SiteError, ShapeError: a site or unit that the policies do not have.
    """
    keep_freed_memory()
    policy_source = as_policy_source(policy_source)
    edit = Ablate(site) if isinstance(site, str) else site
    check_episodes(episodes, seed, n_envs)
    if intervals not in get_args(Intervals):
        raise ConfigError(unknown("kind of intervals", intervals, get_args(Intervals)))
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration, device=device)
    units = unit_edits(policies, edit)
    n_at_once = max(1, min(episodes, n_envs // (len(units) + 1)))
    with policy_source.build_env(1, device=device, env=env) as one:
        together = one.resets_each and not explore
    with (
        policy_source.build_env(n_at_once * (len(units) + 1 if together else 1), device=device, env=env) as built,
        AnalysisProgress("causal map", "edited episodes", episodes * len(units), shown=progress) as shown,
        torch_threads(1),
        fast_training(nn.ModuleList(policies.values())),
    ):
        check_fit(policy_source.spec, built.spec)
        publish_evaluation(built, policy_source.path / EVALUATION)
        outcomes = BatchedOutcomes(built.spec, len(units))
        for first in range(0, episodes, n_at_once):
            n = min(n_at_once, episodes - first)
            rollout = (
                _play_together(built, policies, units, seed, first, n)
                if together
                else _play_in_turn(built, policies, units, seed, first, n, explore)
            )
            outcomes.hashes += episode_hashes(rollout.baseline)
            for chunk in rollout.chunks:
                _add(outcomes, policies, units, rollout, chunk)
                shown.add(chunk.edited.in_episode.shape[1])
        effects = outcomes.all_arms([set(unit.agents) for unit in units], intervals, seed)
    arms = [Arm(None, of_unit) for of_unit in effects]
    return CausalMap(
        edit=json.loads(json.dumps(edit.pinned().to_json())),
        groups={group.name: group.agents for group in built.spec.groups},
        units=tuple(UnitEffects(unit.site, unit.unit, of_unit) for unit, of_unit in zip(units, effects)),
        settings={
            "env": built.spec.name,
            "episodes": episodes,
            "seed": seed,
            "explore": explore,
            "intervals": intervals,
            "n_envs": built.n_envs,
            "one_rollout": together,
            "checkpoint": origin.iteration,
            "sha256": origin.sha256,
        },
        warnings=(
            *duplicate_warnings(outcomes.hashes, greedy=not explore),
            *power_warnings(arms, episodes, outcomes.return_deviations()),
        ),
    )


def unit_edits(policies: Mapping[str, Policy], edit: Edit) -> list[UnitEdit]:
    """An edit of each unit of the edit's sites by itself.

    Raises:
        SiteError, ShapeError: as `edited`.
        ConfigError: the edit has a value for each unit, or is along a direction.
    """
    if hasattr(edit, "direction") or hasattr(edit, "directions") or isinstance(getattr(edit, "value", None), tuple):
        raise ConfigError(
            f"edit {edit.name!r} is of all units together; a causal map edits each unit by itself: give a site, "
            "Ablate with one value, Scale or Noise"
        )
    return [
        UnitEdit(
            target.policy.group.name, target.site.name, unit,
            replace(edit, site=target.site.name, units=(unit,)), target.all_agents,
        )
        for target in edit_targets(policies, edit)
        for unit in target.units
    ]  # fmt: skip


class Chunk(NamedTuple):
    """The episodes of some of the units, unit after unit, on one axis of environments.

    Attributes:
        units: which ones, of all.
        edited: their episodes.
        outputs: the critics' values along them.
    """

    units: slice
    edited: Trajectories
    outputs: PolicyOutputs


class Rollout(NamedTuple):
    """One batch of episodes.

    Attributes:
        baseline: without an edit.
        outputs: the critics' values along them.
        chunks: of the units.
    """

    baseline: Trajectories
    outputs: PolicyOutputs
    chunks: Iterator[Chunk]


def _add(
    outcomes: BatchedOutcomes, policies: Mapping[str, Policy], units: Sequence[UnitEdit], rollout: Rollout, chunk: Chunk
) -> None:
    """Compares the chunk's episodes with those without edits, all units at once."""
    n_units, n = chunk.units.stop - chunk.units.start, rollout.baseline.in_episode.shape[1]
    again = torch.arange(n).repeat(n_units)
    baseline = replace(rollout.baseline, observation={}, state=None, activations={}).of_envs(again)
    direct = _logits_on(rollout.baseline, policies, units[chunk.units])
    outputs = rollout.outputs.of_envs(again)
    outcomes.add_arms(chunk.units, paired_outcomes(policies, baseline, chunk.edited, outputs, direct, chunk.outputs))


def _play_together(
    env: VectorEnv, policies: Mapping[str, Policy], units: Sequence[UnitEdit], seed: int, first: int, episodes: int
) -> Rollout:
    """One rollout: the first part of the environments has no edit, and the others have one unit's each."""
    n_parts = len(units) + 1
    n = env.n_envs // n_parts
    by_site = {name: [None, *(u.edit if u.site == name else None for u in units)] for name in {u.site for u in units}}
    edits = [variants(edits) for edits in by_site.values()]
    seeds = ((seed + first + torch.arange(n)) % SEED_SPAN).repeat(n_parts)
    played = roll_out(env, policies, edits, seed=seed, first=first, episodes=env.n_envs, seeds=seeds)
    outputs = evaluate_on(policies, played, edits, logits=False)
    index = torch.arange(env.n_envs).view(n_parts, n)[:, :episodes]
    baseline, edited = (slice(n), slice(n, None)) if episodes == n else (index[0], index[1:].flatten())
    chunk = Chunk(slice(0, len(units)), played.of_envs(edited), outputs.of_envs(edited))
    return Rollout(played.of_envs(baseline), outputs.of_envs(baseline), iter([chunk]))


def _play_in_turn(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    units: Sequence[UnitEdit],
    seed: int,
    first: int,
    episodes: int,
    explore: bool,
) -> Rollout:
    """A rollout for each unit: for environments that cannot play one episode several times at once."""

    def play(edits: Sequence[Edit]) -> tuple[Trajectories, PolicyOutputs]:
        played = roll_out(env, policies, edits, seed=seed, first=first, explore=explore, episodes=episodes)
        return played, evaluate_on(policies, played, edits, logits=False)

    return Rollout(*play([]), (Chunk(slice(k, k + 1), *play([unit.edit])) for k, unit in enumerate(units)))  # fmt: skip


def _logits_on(baseline: Trajectories, policies: Mapping[str, Policy], units: Sequence[UnitEdit]) -> PolicyOutputs:
    """Of all groups, under each unit's edit, on the states of the episodes without edits, unit after unit."""
    n = len(units)
    logits: dict[str, Tensor | None] = {}
    for name, policy in policies.items():
        unedited = baseline.logits[name]
        by_unit = [unedited] * n
        for site, of_site in groupby(range(n), key=lambda k: units[k].site):
            where = list(of_site)
            if units[where[0]].group == name and part_of(site) != "critic":
                edited = _logits_of(policy, baseline, [units[k].edit for k in where])
                by_unit[where[0] : where[-1] + 1] = edited
        logits[name] = None if policy.distribution is None else torch.cat(by_unit, dim=1)
    return PolicyOutputs(logits, {})


def _logits_of(policy: Policy, baseline: Trajectories, edits: Sequence[Edit]) -> list[Tensor]:
    """The logits under each edit of one site by itself, each `[time, env, agent, parameter]`."""
    draws = isinstance(edits[0], Noise) or getattr(edits[0], "value", None) == "resample"
    if edits[0].t is None and not draws:
        return list(logits_of_variants(policy, baseline, edits))
    name = policy.group.name  # step by step: a window needs the time, and random numbers have an order
    policies = {name: policy}
    outputs = [evaluate_on(policies, baseline, [edit], values=False).logits[name] for edit in edits]
    return [logits for logits in outputs if logits is not None]
