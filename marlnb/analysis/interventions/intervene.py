"""intervene: plays the same episodes with and without edits, and says what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import get_args

import numpy as np

from marlnb.analysis.data.duplicate_episodes import episode_hashes, duplicate_warnings
from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.outcomes import Key, Outcomes, Pair, action_shares, outcomes
from marlnb.analysis.interventions.result import Actions, Arm, Effect, Intervention
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import PairedDifference, Intervals, paired_test
from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError, ConfigError, unknown
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import places_of
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec
from marlnb.training.policies.compatibility import check_fit, check_group_fit
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import EVALUATION, Which
from marlnb.training.runs.saved_edits import load_edits, save_edits, write_beside

MOST_COPIES = 256
FEW_EPISODES = 30
LARGE_ENOUGH = 0.5  # of the returns' standard deviation: an effect that one would not want to miss
PolicySourceLike = PolicySource | str | os.PathLike[str]


def intervene(
    subject: PolicySourceLike,
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
    """Plays episodes 0 to `episodes` - 1 twice, under `seed + k` each, without and with the edits, and compares them.

    Both rollouts of an episode begin alike, and where actions are sampled they get the same noise at the same step.

    Args:
        edits: one, several, or the name under which some were saved with the subject.
        explore: sample actions; otherwise take the most likely.
        partners: by group, another subject whose policy plays that group in the edited episodes, or (subject,
            checkpoint); edits are made in the partners' policies then.
        strengths: plays the edited episodes once for each, with the strength of every edit that has one (steer, scale, noise,
            clamp) set to it.
        n_envs: copies stepped at once; each plays one episode at a time, so that noise is matched.
        intervals: t (of the paired t test), or bootstrap (over episodes, BCa, seeded by `seed`), for outcomes that are
            skewed or seldom move; p values are the t test's either way.
        save: a name: the edits are saved with the subject under it, and the result's summary beside; `note` with them.
    Raises:
        ConfigError: an option out of range, an edit without a strength where strengths are given, a partner that does not fit.
        SiteError, ShapeError: an edit of what the policies do not have.
    """
    subject = as_policy_source(subject)
    chosen = load_edits(subject, edits) if isinstance(edits, str) else [edits] if isinstance(edits, Edit) else [*edits]
    if episodes < 1 or seed < 0 or (n_envs is not None and n_envs < 1):
        raise ConfigError(f"episodes and n_envs are 1 or more, seed 0 or more; got {episodes}, {n_envs}, {seed}")
    if intervals not in get_args(Intervals):
        raise ConfigError(unknown("kind of intervals", intervals, get_args(Intervals)))
    if not chosen and not partners:
        raise ConfigError("an intervention takes edits, or partners; got neither")
    arms_edits = _at_doses(chosen, strengths)
    origin = subject.origin(checkpoint)
    policies = subject.policies(origin.iteration, device=device)
    with_partners, told = _with_partners(subject, policies, partners or {}, device)
    copies = min(episodes, n_envs or min(subject.n_envs, MOST_COPIES))
    with subject.build_env(copies, device=device, env=env) as built:
        check_fit(subject.spec, built.spec)
        built.announce(subject.path / EVALUATION)
        gathered = _Gathered(built.spec, len(arms_edits))
        for first in range(0, episodes, copies):
            _play_batch(
                built,
                policies,
                with_partners,
                arms_edits,
                gathered,
                min(copies, episodes - first),
                seed,
                first,
                explore,
            )
    touched = touched_agents(built.spec, with_partners, chosen) | {
        agent for group in told for agent in built.spec.group(group).agents
    }
    arms = tuple(
        gathered.arm(index, strength, touched, intervals, seed)
        for index, strength in enumerate(strengths if strengths is not None else [None])
    )
    settings = {
        "env": built.spec.name,
        "episodes": episodes,
        "seed": seed,
        "explore": explore,
        "intervals": intervals,
        "n_envs": copies,
        "checkpoint": origin.iteration,
        "sha256": origin.sha256,
        "strengths": None if strengths is None else list(strengths),
    }
    result = Intervention(
        edits=tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in chosen),
        partners=told,
        agents=built.spec.agents,
        arms=arms,
        settings=settings,
        returns=gathered.returns(),
        warnings=(
            *duplicate_warnings(gathered.played, greedy=not explore),
            *_warnings(arms, episodes, gathered.spreads()),
        ),
    )
    if save is not None:
        save_edits(subject, save, chosen, note=note, replace=True)
        write_beside(subject, save, "intervention", result.to_json())
    return result


def _play_batch(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    edited_policies: Mapping[str, Policy],
    arms: Sequence[Sequence[Edit]],
    gathered: _Gathered,
    episodes: int,
    seed: int,
    first: int,
    explore: bool,
) -> None:
    plain = roll_out(env, policies, (), seed=seed, first=first, explore=explore, episodes=episodes)
    gathered.played += episode_hashes(plain)
    plain_said = evaluate_on(policies, plain)
    for index, edits in enumerate(arms):
        changed = roll_out(env, edited_policies, edits, seed=seed, first=first, explore=explore, episodes=episodes)
        would, said = evaluate_on(edited_policies, plain, edits, values=False), evaluate_on(edited_policies, changed, edits)
        gathered.add(index, outcomes(policies, plain, changed, plain_said, would, said), plain, changed)


class _Gathered:
    """Outcomes of all batches, by arm.

    Attributes:
        played: by episode, which are the same without edits.
    """

    def __init__(self, spec: EnvSpec, n_arms: int) -> None:
        self.spec = spec
        self.played: list[bytes] = []
        self._found: list[dict[Key, list[Pair]]] = [{} for _ in range(n_arms)]
        self._actions: list[dict[str, list[np.ndarray]]] = [{} for _ in range(n_arms)]

    def add(self, index: int, found: Outcomes, plain: Trajectories, changed: Trajectories) -> None:
        for key, pair in found.items():
            self._found[index].setdefault(key, []).append(pair)
        for group in self.spec.group_names:
            shares = [action_shares(track, group) for track in (plain, changed)]
            if shares[0] is not None and shares[1] is not None:
                self._actions[index].setdefault(group, []).append(np.stack([shares[0], shares[1]]))

    def pair(self, index: int, key: Key) -> Pair:
        pairs = self._found[index][key]
        return Pair(np.concatenate([p.before for p in pairs]), np.concatenate([p.after for p in pairs]))

    def arm(self, index: int, strength: float | None, touched: set[str], intervals: Intervals, seed: int) -> Arm:
        keys = list(self._found[index])
        pairs = [self.pair(index, key) for key in keys]
        tests = [paired_test(pair.after - pair.before, intervals, seed=seed) for pair in pairs]
        alone = {group.name for group in self.spec.groups if group.n_agents == 1}  # the same test as its agent's
        tested = [k for k, key in enumerate(keys) if not _is_distance(key) and key.who not in alone]
        corrected = dict(zip(tested, holm(np.array([tests[k].p_value for k in tested]))))
        groups = {group.name: set(group.agents) for group in self.spec.groups}
        for k, key in enumerate(keys):
            if key.who in alone:
                (agent,) = groups[key.who]
                corrected[k] = corrected[keys.index(key._replace(who=agent))]
        effects = tuple(
            _effect(key, pair, test, corrected.get(k), bool(groups.get(key.who, {key.who}) & touched))
            for k, (key, pair, test) in enumerate(zip(keys, pairs, tests))
        )
        return Arm(strength, effects, self._shares(index))

    def returns(self) -> dict[str, tuple[tuple[float, ...], ...]]:
        found = {}
        for agent in self.spec.agents:
            key = next(k for k in self._found[0] if k.outcome == "return" and k.who == agent)
            arms = [self.pair(index, key) for index in range(len(self._found))]
            found[agent] = tuple(tuple(values.tolist()) for values in (arms[0].before, *(arm.after for arm in arms)))
        return found

    def spreads(self) -> dict[str, float]:
        """By group and agent, the standard deviation of an episode's return without edits."""
        keys = [key for key in self._found[0] if key.outcome == "return"]
        return {key.who: float(np.std(self.pair(0, key).before)) for key in keys}

    def _shares(self, index: int) -> Actions:
        found: Actions = {}
        for name, batches in self._actions[index].items():
            counts, group = np.sum(batches, axis=0), self.spec.group(name)
            names = group.action.names or tuple(str(k) for k in range(group.action.n[0]))
            shares = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
            for k, agent in enumerate(group.agents):
                found[agent] = (names, tuple(shares[0, k].tolist()), tuple(shares[1, k].tolist()))
        return found


def _is_distance(key: Key) -> bool:
    return key.outcome.endswith(("_direct", "_total"))


def _effect(key: Key, pair: Pair, test: PairedDifference, p_holm: float | None, edited: bool) -> Effect:
    distance = _is_distance(key)
    both = np.isfinite(pair.before) & np.isfinite(pair.after)
    before, after = (float(x[both].mean()) if both.any() else float("nan") for x in (pair.before, pair.after))
    low = max(test.low, 0.0) if distance else test.low
    return Effect(
        **key._asdict(),
        edited=edited,
        n=test.n,
        before=before,
        after=after,
        difference=test.mean,
        low=low,
        high=test.high,
        p_value=None if distance else test.p_value,
        p_holm=None if p_holm is None else float(p_holm),
        detectable=test.detectable,
    )


def _warnings(arms: Sequence[Arm], episodes: int, spreads: Mapping[str, float]) -> Iterator[str]:
    if episodes < FEW_EPISODES:
        yield f"{episodes} episodes are few: intervals from fewer than {FEW_EPISODES} are rough"
    effects = list(chain.from_iterable(arm.effects for arm in arms if arm.strength not in (0, 0.0)))
    if all(effect.difference == 0 for effect in effects):
        yield "the edits changed nothing at all, bit for bit: do they reach anything that acts?"
        return
    returns = [effect for effect in effects if effect.outcome == "return"]
    if any(effect.seen for effect in returns):
        return
    blind = [e for e in returns if e.detectable is None or e.detectable > LARGE_ENOUGH * spreads[e.who]]
    if blind:
        worst = max(blind, key=lambda e: float("inf") if e.detectable is None else e.detectable)
        size = "any" if worst.detectable is None else f"one beyond {worst.detectable:.3g}"
        yield f"no effect on returns was seen, but {episodes} episodes could hardly have shown {size} ({worst.who})"


def touched_agents(spec: EnvSpec, policies: Mapping[str, Policy], edits: Sequence[Edit]) -> set[str]:
    """Names of the agents whose activations or observations the edits change."""
    return {agent for edit in edits for place in places_of(policies, edit) for agent in place.all_agents}


def _at_doses(edits: Sequence[Edit], strengths: Sequence[float] | None) -> list[list[Edit]]:
    if strengths is None:
        return [list(edits)]
    if not len(strengths):
        raise ConfigError("strengths are numbers, at least one; got none")
    if not any(edit.strength_field for edit in edits):
        raise ConfigError(
            f"no strength can be set in {[edit.name for edit in edits]}; steer, scale, noise and clamp have one"
        )
    return [[edit.at_strength(float(strength)) if edit.strength_field else edit for edit in edits] for strength in strengths]


def _with_partners(
    subject: PolicySource,
    policies: Mapping[str, Policy],
    partners: Mapping[str, PolicySourceLike | tuple[PolicySourceLike, Which]],
    device: str,
) -> tuple[dict[str, Policy], dict[str, str]]:
    """The policies of the edited episodes, and whose they are where they are others."""
    chosen, told = dict(policies), {}
    for group, given in partners.items():
        if group not in chosen:
            raise AnalysisError(unknown("group", group, chosen))
        whose, which = given if isinstance(given, tuple) else (given, "last")
        other = as_policy_source(whose)
        origin = other.origin(which)
        if group not in other.spec.group_names:
            raise AnalysisError(f"{other.path}: {unknown('group', group, other.spec.group_names)}")
        check_group_fit(other.spec.group(group), other.spec.name, subject.spec.group(group), subject.spec.name)
        chosen[group] = other.policies(origin.iteration, device=device)[group]
        told[group] = f"{other.path.name}, checkpoint {origin.iteration}"
    return chosen, told
