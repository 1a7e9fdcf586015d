"""Play the same episodes with and without edits, and measure what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import get_args

import numpy as np

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.outcomes import OutcomeKey, PairedOutcome, action_counts, paired_outcomes
from marlnb.analysis.interventions.result import ActionShares, Arm, Effect, Intervention
from marlnb.analysis.results import MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import Intervals, PairedDifference, paired_test
from marlnb.config import EnvConfig
from marlnb.envs.external.interface import publish
from marlnb.errors import AnalysisError, ConfigError, unknown
from marlnb.models.hooks.apply_edits import edit_targets
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec
from marlnb.training.policies.compatibility import check_fit, check_group_fit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.saved_edits import load_edits, save_edits, write_result

MAX_ENVS = 256
RELEVANT_EFFECT = 0.5
"""An effect on returns that should not be missed, in their standard deviations (Cohen 1988: a medium effect)."""


def intervene(
    policy_source: PolicySourceLike,
    edits: Edit | Sequence[Edit] | str = (),
    *,
    episodes: int = 200,
    seed: int = 1000,
    explore: bool = False,
    partners: Mapping[str, PolicySourceLike | tuple[PolicySourceLike, Which]] | None = None,
    strengths: Sequence[float] | None = None,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    device: str = "cpu",
    intervals: Intervals = "t",
    save: str | None = None,
    note: str = "",
) -> Intervention:
    """Plays each episode twice, without and with the edits, and compares the two.

    Episode k has the seed `seed + k` in both rollouts: they start alike, and sampled actions get the same noise at the
    same step. Each episode is its own control.

    Args:
        policy_source: a run, its folder, or other agents.
        edits: one, several, or the name under which some were saved with the run.
        episodes: how many to play.
        explore: sample actions; False takes the most likely ones.
        partners: by group, another policy source, or (policy source, checkpoint), whose policy plays that group in
            the edited episodes. Edits then act in the partners' policies.
        strengths: plays the edited episodes once for each value, as the strength of every edit that has one (steer,
            scale, noise, clamp).
        n_envs: environments stepped at once. Each plays one episode at a time, so that the noise is matched.
        intervals: t (of the paired t test), or bootstrap (over episodes, BCa, seeded by `seed`) for outcomes that are
            skewed or rarely change. p-values are the t test's in both cases.
        save: name under which the edits are saved with the run, with a summary of the result and `note`.
    Raises:
        ConfigError: an option out of range, strengths without an edit that has one, or a partner that does not fit.
        SiteError, ShapeError: an edit of a site or unit that the policies do not have.
    """
    policy_source = as_policy_source(policy_source)
    edits = (
        load_edits(policy_source, edits) if isinstance(edits, str) else [edits] if isinstance(edits, Edit) else [*edits]
    )
    if episodes < 1 or seed < 0 or (n_envs is not None and n_envs < 1):
        raise ConfigError(f"episodes and n_envs must be 1 or more, seed 0 or more; got {episodes}, {n_envs} and {seed}")
    if intervals not in get_args(Intervals):
        raise ConfigError(unknown("kind of intervals", intervals, get_args(Intervals)))
    if not edits and not partners:
        raise ConfigError("an intervention needs edits= or partners=; got neither")
    edits_by_arm = _at_strengths(edits, strengths)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration, device=device)
    edited_policies, partner_names = _with_partners(policy_source, policies, partners or {}, device)
    n_envs = min(episodes, n_envs or min(policy_source.n_envs, MAX_ENVS))
    with policy_source.build_env(n_envs, device=device, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        publish(built, policy_source.path / EVALUATION)
        outcomes = _Outcomes(built.spec, len(edits_by_arm))
        for first in range(0, episodes, n_envs):
            n = min(n_envs, episodes - first)
            play = partial(roll_out, built, seed=seed, first=first, explore=explore, episodes=n)
            baseline = play(policies, ())
            outcomes.hashes += episode_hashes(baseline)
            baseline_outputs = evaluate_on(policies, baseline)
            for index, arm_edits in enumerate(edits_by_arm):
                edited = play(edited_policies, arm_edits)
                on_baseline = evaluate_on(edited_policies, baseline, arm_edits, values=False)
                edited_outputs = evaluate_on(edited_policies, edited, arm_edits)
                pairs = paired_outcomes(policies, baseline, edited, baseline_outputs, on_baseline, edited_outputs)
                outcomes.add(index, pairs, baseline, edited)
    touched = {agent for edit in edits for place in edit_targets(edited_policies, edit) for agent in place.all_agents}
    touched |= {agent for group in partner_names for agent in built.spec.group(group).agents}
    arms = tuple(
        outcomes.arm(index, strength, touched, intervals, seed)
        for index, strength in enumerate(strengths if strengths is not None else [None])
    )
    settings = {
        "env": built.spec.name,
        "episodes": episodes,
        "seed": seed,
        "explore": explore,
        "intervals": intervals,
        "n_envs": n_envs,
        "checkpoint": origin.iteration,
        "sha256": origin.sha256,
        "strengths": None if strengths is None else list(strengths),
    }
    result = Intervention(
        edits=tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in edits),
        partners=partner_names,
        agents=built.spec.agents,
        arms=arms,
        settings=settings,
        returns=outcomes.returns(),
        warnings=(
            *duplicate_warnings(outcomes.hashes, greedy=not explore),
            *_warnings(arms, episodes, outcomes.return_deviations()),
        ),
    )
    if save is not None:
        save_edits(policy_source, save, edits, note=note, replace=True)
        write_result(policy_source, save, "intervention", result.to_json())
    return result


class _Outcomes:
    """Outcomes of all batches of episodes, by arm.

    Attributes:
        hashes: by episode, a digest of the unedited episode; equal digests are duplicate episodes.
    """

    def __init__(self, spec: EnvSpec, n_arms: int) -> None:
        self.spec = spec
        self.hashes: list[bytes] = []
        self._pairs: list[dict[OutcomeKey, list[PairedOutcome]]] = [{} for _ in range(n_arms)]
        self._actions: list[dict[str, list[np.ndarray]]] = [{} for _ in range(n_arms)]

    def add(
        self, index: int, pairs: Mapping[OutcomeKey, PairedOutcome], baseline: Trajectories, edited: Trajectories
    ) -> None:
        for key, pair in pairs.items():
            self._pairs[index].setdefault(key, []).append(pair)
        for group in self.spec.group_names:
            before, after = action_counts(baseline, group), action_counts(edited, group)
            if before is not None and after is not None:
                self._actions[index].setdefault(group, []).append(np.stack([before, after]))

    def pair(self, index: int, key: OutcomeKey) -> PairedOutcome:
        return PairedOutcome(*map(np.concatenate, zip(*self._pairs[index][key])))

    def arm(self, index: int, strength: float | None, touched: set[str], intervals: Intervals, seed: int) -> Arm:
        keys = list(self._pairs[index])
        pairs = [self.pair(index, key) for key in keys]
        tests = [paired_test(pair.after - pair.before, intervals, seed=seed) for pair in pairs]
        members = {group.name: set(group.agents) for group in self.spec.groups}
        # a group of one agent has the same test as that agent, which must not count twice in Holm's correction
        single = {group.name: group.agents[0] for group in self.spec.groups if group.n_agents == 1}
        tested = [k for k, key in enumerate(keys) if not _is_distance(key) and key.who not in single]
        p_holm = {keys[k]: p for k, p in zip(tested, holm(np.array([tests[k].p_value for k in tested])))}
        for key in keys:
            if key.who in single:
                p_holm[key] = p_holm[key._replace(who=single[key.who])]
        effects = tuple(
            _effect(key, pair, test, p_holm.get(key), bool(members.get(key.who, {key.who}) & touched))
            for key, pair, test in zip(keys, pairs, tests)
        )
        return Arm(strength, effects, self._action_shares(index))

    def returns(self) -> dict[str, tuple[tuple[float, ...], ...]]:
        """By agent, the returns of each episode without edits and in each arm."""
        returns = {}
        for agent in self.spec.agents:
            pairs = [self.pair(index, OutcomeKey("return", agent, "reward")) for index in range(len(self._pairs))]
            by_arm = (pairs[0].before, *(pair.after for pair in pairs))
            returns[agent] = tuple(tuple(values.tolist()) for values in by_arm)
        return returns

    def return_deviations(self) -> dict[str, float]:
        """By group and agent, the standard deviation of an episode's return without edits."""
        keys = [key for key in self._pairs[0] if key.outcome == "return"]
        return {key.who: float(np.std(self.pair(0, key).before)) for key in keys}

    def _action_shares(self, index: int) -> ActionShares:
        by_agent: ActionShares = {}
        for name, batches in self._actions[index].items():
            counts, group = np.sum(batches, axis=0), self.spec.group(name)
            names = group.action.names or tuple(str(k) for k in range(group.action.n[0]))
            shares = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
            for k, agent in enumerate(group.agents):
                by_agent[agent] = (names, tuple(shares[0, k].tolist()), tuple(shares[1, k].tolist()))
        return by_agent


def _is_distance(key: OutcomeKey) -> bool:
    return key.outcome.endswith(("_direct", "_total"))


def _effect(key: OutcomeKey, pair: PairedOutcome, test: PairedDifference, p_holm: float | None, edited: bool) -> Effect:
    distance = _is_distance(key)
    both = np.isfinite(pair.before) & np.isfinite(pair.after)
    before, after = (float(x[both].mean()) if both.any() else float("nan") for x in (pair.before, pair.after))
    return Effect(
        **key._asdict(),
        edited=edited,
        n=test.n,
        before=before,
        after=after,
        difference=test.mean,
        low=max(test.low, 0.0) if distance else test.low,
        high=test.high,
        p_value=None if distance else test.p_value,
        p_holm=None if p_holm is None else float(p_holm),
        detectable=test.detectable,
    )


def _warnings(arms: Sequence[Arm], episodes: int, deviations: Mapping[str, float]) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    effects = list(chain.from_iterable(arm.effects for arm in arms if arm.strength != 0))
    if all(effect.difference == 0 for effect in effects):
        yield "the edits changed nothing at all: check that the edited sites lead to actions"
        return
    returns = [effect for effect in effects if effect.outcome == "return"]
    if any(effect.excludes_zero for effect in returns):
        return
    detectable = [(float("inf") if e.detectable is None else e.detectable, e.who) for e in returns]
    undetectable = [(size, who) for size, who in detectable if size > RELEVANT_EFFECT * deviations[who]]
    if undetectable:
        size, who = max(undetectable, key=itemgetter(0))
        what = "any effect" if size == float("inf") else f"effects below {size:.3g}"
        yield f"no effect on returns, but {episodes} episodes are too few to detect {what} ({who})"


def _at_strengths(edits: Sequence[Edit], strengths: Sequence[float] | None) -> list[list[Edit]]:
    if strengths is None:
        return [list(edits)]
    if not len(strengths):
        raise ConfigError("strengths must be at least one number; got none")
    if not any(edit.strength_field for edit in edits):
        raise ConfigError(
            f"strengths= needs an edit with a strength (steer, scale, noise or clamp); got "
            f"{[edit.name for edit in edits]}"
        )
    return [
        [edit.at_strength(float(strength)) if edit.strength_field else edit for edit in edits] for strength in strengths
    ]


def _with_partners(
    policy_source: PolicySource,
    policies: Mapping[str, Policy],
    partners: Mapping[str, PolicySourceLike | tuple[PolicySourceLike, Which]],
    device: str,
) -> tuple[dict[str, Policy], dict[str, str]]:
    """The policies of the edited episodes, and by group a description of each partner."""
    combined, descriptions = dict(policies), {}
    for group, partner in partners.items():
        if group not in combined:
            raise AnalysisError(unknown("group", group, combined))
        source, which = partner if isinstance(partner, tuple) else (partner, "last")
        other = as_policy_source(source)
        origin = other.origin(which)
        if group not in other.spec.group_names:
            raise AnalysisError(f"{other.path}: {unknown('group', group, other.spec.group_names)}")
        check_group_fit(
            other.spec.group(group), other.spec.name, policy_source.spec.group(group), policy_source.spec.name
        )
        combined[group] = other.policies(origin.iteration, device=device)[group]
        descriptions[group] = f"{other.path.name}, checkpoint {origin.iteration}"
    return combined, descriptions
