"""Outcomes of many batches of episodes, and the effects that are tested once all of them are played."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np

from marlnb.analysis.data.trajectories import Trajectories
from marlnb.analysis.interventions.outcomes import OutcomeKey, PairedOutcome, action_counts
from marlnb.analysis.interventions.result import ActionShares, Arm, Effect
from marlnb.analysis.results import MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import Intervals, PairedDifference, paired_tests
from marlnb.specs import EnvSpec

RELEVANT_EFFECT = 0.5
"""An effect on returns that should not be missed, in their standard deviations (Cohen 1988: a medium effect)."""


class BatchedOutcomes:
    """Outcomes of all batches of episodes, by arm.

    Attributes:
        hashes: by episode, a digest of the unedited episode; equal digests are duplicate episodes.
        classes: by episode, its class of what is given, or None; empty where nothing is given.
    """

    def __init__(self, spec: EnvSpec, n_arms: int) -> None:
        self.spec = spec
        self.hashes: list[bytes] = []
        self.classes: list[str | None] = []
        self._keys: list[OutcomeKey] = []
        self._values: list[list[np.ndarray]] = [[] for _ in range(n_arms)]  # of each batch, [outcome, side, episode]
        self._actions: list[dict[str, list[np.ndarray]]] = [{} for _ in range(n_arms)]

    def add(
        self, index: int, pairs: Mapping[OutcomeKey, PairedOutcome], baseline: Trajectories, edited: Trajectories
    ) -> None:
        """Outcomes of one batch of one arm's episodes, and how often each action was taken."""
        self.add_arms(slice(index, index + 1), pairs)
        for group in self.spec.group_names:
            before, after = action_counts(baseline, group), action_counts(edited, group)
            if before is not None and after is not None:
                self._actions[index].setdefault(group, []).append(np.stack([before, after]))

    def add_arms(self, arms: slice, pairs: Mapping[OutcomeKey, PairedOutcome]) -> None:
        """Outcomes of one batch of several arms, arm after arm on the axis of episodes. Actions are not counted."""
        self._keys = list(pairs)
        values = np.array(list(pairs.values()), dtype=np.float64)
        chosen = self._values[arms]
        for of_arm, part in zip(chosen, np.split(values, len(chosen), axis=-1)):
            of_arm.append(part)

    def arm(self, index: int, strength: float | None, touched: set[str], intervals: Intervals, seed: int) -> Arm:
        """The effects in all episodes, and in those of each class."""
        everything = self._all_episodes(index)
        (effects,) = self._effects([everything], [touched], intervals, seed)
        classes = sorted({name for name in self.classes if name is not None})
        of_class = [everything[..., np.array(self.classes, dtype=object) == name] for name in classes]
        by_class = dict(zip(classes, self._effects(of_class, [touched] * len(classes), intervals, seed)))
        return Arm(strength, effects, self._action_shares(index), by_class)

    def all_arms(self, touched: Sequence[set[str]], intervals: Intervals, seed: int) -> list[tuple[Effect, ...]]:
        """The effects of each arm in all episodes, with p-values corrected for all arms and outcomes together (Holm).

        Args:
            touched: of each arm, the agents that it edits.
        """
        return self._effects([*map(self._all_episodes, range(len(self._values)))], touched, intervals, seed)

    def _all_episodes(self, index: int) -> np.ndarray:
        """`[outcome, side, episode]` of one arm; a side is without or with edits."""
        batches = self._values[index]
        return batches[0] if len(batches) == 1 else np.concatenate(batches, axis=-1)

    def _effects(
        self, samples: Sequence[np.ndarray], touched: Sequence[set[str]], intervals: Intervals, seed: int
    ) -> list[tuple[Effect, ...]]:
        """The effects in each sample `[outcome, side, episode]`, with p-values corrected for all of them (Holm)."""
        if not samples:
            return []
        keys = self._keys
        by_length = [np.stack(list(equal)) for _, equal in groupby(samples, key=np.shape)]
        tests = [each for values in by_length for each in _tests(values, intervals, seed)]
        means = [each for values in by_length for each in _means(values)]
        # a group of one agent has the same test as that agent, which must not count twice in Holm's correction
        alone = [group for group in self.spec.groups if group.n_agents == 1 and group.name not in group.agents]
        single = {group.name: group.agents[0] for group in alone}
        is_distance = [key.outcome.endswith(("_direct", "_total")) for key in keys]
        has_p_value = [k for k in range(len(keys)) if not is_distance[k]]
        tested = [k for k in has_p_value if keys[k].who not in single]
        corrected = holm(np.array([of_sample[k].p_value for of_sample in tests for k in tested]))
        columns = dict(zip(tested, corrected.reshape(len(samples), -1).T.tolist()))
        of_agent = {k: keys.index(keys[k]._replace(who=single[keys[k].who])) for k in set(has_p_value) - set(tested)}
        p_holm = [columns.get(of_agent.get(k, k), [None] * len(samples)) for k in range(len(keys))]
        members = {group.name: set(group.agents) for group in self.spec.groups}
        agents = [members.get(key.who, {key.who}) for key in keys]
        return [
            tuple(
                _effect(
                    key, before_and_after, test, p[sample], not touched[sample].isdisjoint(of_key), is_distance=distance
                )
                for key, before_and_after, test, p, of_key, distance in zip(
                    keys, means[sample], tests[sample], p_holm, agents, is_distance
                )
            )
            for sample in range(len(samples))
        ]

    def returns(self) -> dict[str, tuple[tuple[float, ...], ...]]:
        """By agent, the returns of each episode without edits and in each arm."""
        arms = [self._all_episodes(index) for index in range(len(self._values))]
        returns = {}
        for agent in self.spec.agents:
            k = self._keys.index(OutcomeKey("return", agent, "reward"))
            by_arm = (arms[0][k, 0], *(values[k, 1] for values in arms))
            returns[agent] = tuple(tuple(values.tolist()) for values in by_arm)
        return returns

    def return_deviations(self) -> dict[str, float]:
        """By group and agent, the standard deviation of an episode's return without edits."""
        first = self._all_episodes(0)
        return {key.who: float(np.std(values[0])) for key, values in zip(self._keys, first) if key.outcome == "return"}

    def _action_shares(self, index: int) -> ActionShares:
        by_agent: ActionShares = {}
        for name, batches in self._actions[index].items():
            counts, group = np.sum(batches, axis=0), self.spec.group(name)
            names = group.action.names or tuple(str(k) for k in range(group.action.n[0]))
            shares = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
            for k, agent in enumerate(group.agents):
                by_agent[agent] = (names, tuple(shares[0, k].tolist()), tuple(shares[1, k].tolist()))
        return by_agent


def _tests(values: np.ndarray, intervals: Intervals, seed: int) -> list[list[PairedDifference]]:
    """By sample, the test of each outcome in `[sample, outcome, side, episode]`."""
    differences = values[:, :, 1] - values[:, :, 0]
    n = values.shape[1]
    tests = paired_tests(differences.reshape(len(values) * n, values.shape[-1]), intervals, seed=seed)
    return [tests[first : first + n] for first in range(0, len(tests), n)]


def _means(values: np.ndarray) -> list[list[tuple[float, float]]]:
    """By sample, (before, after) of each outcome in `[sample, outcome, side, episode]`, over episodes that have both;
    NaN without one."""
    both = np.isfinite(values).all(2, keepdims=True)
    with np.errstate(invalid="ignore"):
        means = np.where(both, values, 0).sum(-1) / both.sum(-1)
    return [[(before, after) for before, after in of_sample] for of_sample in means.tolist()]


def _effect(
    key: OutcomeKey,
    means: tuple[float, float],
    test: PairedDifference,
    p_holm: float | None,
    edited: bool,
    *,
    is_distance: bool,
) -> Effect:
    """
    Args:
        is_distance: the outcome compares two policies' actions: it is never below zero and has no p-value.
    """
    before, after = means
    return Effect(
        outcome=key.outcome,
        who=key.who,
        units=key.units,
        edited=edited,
        n=test.n,
        before=before,
        after=after,
        difference=test.mean,
        low=max(test.low, 0.0) if is_distance else test.low,
        high=test.high,
        p_value=None if is_distance else test.p_value,
        p_holm=p_holm,
        detectable=test.detectable,
    )


def power_warnings(arms: Sequence[Arm], episodes: int, deviations: Mapping[str, float]) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    effects = list(chain.from_iterable(arm.effects for arm in arms))
    if all(effect.difference == 0 for effect in effects if effect.n):
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
