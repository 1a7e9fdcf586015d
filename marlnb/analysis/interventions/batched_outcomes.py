"""Outcomes of many batches of episodes, and the effects that are tested once all of them are played."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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
        self._pairs: list[dict[OutcomeKey, list[PairedOutcome]]] = [{} for _ in range(n_arms)]
        self._actions: list[dict[str, list[np.ndarray]]] = [{} for _ in range(n_arms)]

    def add(
        self, index: int, pairs: Mapping[OutcomeKey, PairedOutcome], baseline: Trajectories, edited: Trajectories
    ) -> None:
        self.add_pairs(index, pairs)
        for group in self.spec.group_names:
            before, after = action_counts(baseline, group), action_counts(edited, group)
            if before is not None and after is not None:
                self._actions[index].setdefault(group, []).append(np.stack([before, after]))

    def add_pairs(self, index: int, pairs: Mapping[OutcomeKey, PairedOutcome]) -> None:
        """As `add`, without counting actions."""
        for key, pair in pairs.items():
            self._pairs[index].setdefault(key, []).append(pair)

    def pair(self, index: int, key: OutcomeKey) -> PairedOutcome:
        batches = self._pairs[index][key]
        return batches[0] if len(batches) == 1 else PairedOutcome(*map(np.concatenate, zip(*batches)))

    def arm(self, index: int, strength: float | None, touched: set[str], intervals: Intervals, seed: int) -> Arm:
        """The effects in all episodes, and in those of each class."""
        everything = {key: self.pair(index, key) for key in self._pairs[index]}
        (effects,) = self._effects([everything], [touched], intervals, seed)
        classes = sorted({name for name in self.classes if name is not None})
        members = [np.flatnonzero(np.array(self.classes, dtype=object) == name) for name in classes]
        of_classes = [
            {key: PairedOutcome(pair.before[chosen], pair.after[chosen]) for key, pair in everything.items()}
            for chosen in members
        ]
        by_class = dict(zip(classes, self._effects(of_classes, [touched] * len(classes), intervals, seed)))
        return Arm(strength, effects, self._action_shares(index), by_class)

    def all_arms(self, touched: Sequence[set[str]], intervals: Intervals, seed: int) -> list[tuple[Effect, ...]]:
        """The effects of each arm in all episodes, with p-values corrected for all arms and outcomes together (Holm).

        Args:
            touched: of each arm, the agents that it edits.
        """
        samples = [{key: self.pair(index, key) for key in pairs} for index, pairs in enumerate(self._pairs)]
        return self._effects(samples, touched, intervals, seed)

    def _effects(
        self,
        samples: Sequence[Mapping[OutcomeKey, PairedOutcome]],
        touched: Sequence[set[str]],
        intervals: Intervals,
        seed: int,
    ) -> list[tuple[Effect, ...]]:
        """The effects in each sample of episodes, with p-values corrected for all of them (Holm)."""
        members = {group.name: set(group.agents) for group in self.spec.groups}
        # a group of one agent has the same test as that agent, which must not count twice in Holm's correction
        single = {group.name: group.agents[0] for group in self.spec.groups if group.n_agents == 1}
        values = [np.array(list(pairs.values()), dtype=np.float64) for pairs in samples]  # [outcome, side, episode]
        tests: dict[tuple[int, OutcomeKey], PairedDifference] = {}
        for sample, pairs in enumerate(samples):
            results = paired_tests(values[sample][:, 1] - values[sample][:, 0], intervals, seed=seed)
            tests.update(((sample, key), test) for key, test in zip(pairs, results))
        tested = [at for at in tests if not _is_distance(at[1]) and at[1].who not in single]
        p_holm = dict(zip(tested, map(float, holm(np.array([tests[at].p_value for at in tested])))))
        for sample, key in tests:
            if key.who in single and not _is_distance(key):
                p_holm[sample, key] = p_holm[sample, key._replace(who=single[key.who])]
        return [
            tuple(
                _effect(
                    key, means, tests[sample, key], p_holm.get((sample, key)),
                    bool(members.get(key.who, {key.who}) & touched[sample]),
                )
                for key, means in zip(pairs, _means(values[sample]))
            )
            for sample, pairs in enumerate(samples)
        ]  # fmt: skip

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


def _means(values: np.ndarray) -> list[tuple[float, float]]:
    """Of each outcome in `[outcome, side, episode]`, (before, after), over episodes that have both; NaN without one."""
    both = np.isfinite(values).all(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        means = np.where(both, values, 0).sum(-1) / both.sum(-1)
    return [(before, after) for before, after in means.tolist()]


def _effect(
    key: OutcomeKey, means: tuple[float, float], test: PairedDifference, p_holm: float | None, edited: bool
) -> Effect:
    distance = _is_distance(key)
    before, after = means
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


def power_warnings(arms: Sequence[Arm], episodes: int, deviations: Mapping[str, float]) -> Iterator[str]:
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
