"""Test whether an agent uses a decoded direction: erase it, steer along it, and measure the change in its actions.

A decoder shows that a concept can be read from activations, not that the agent reads it. Amnesic probing removes the
direction and compares the behaviour (Elazar et al. 2021, arXiv:2006.00995); the random directions are its control. A
direction may also carry other quantities than its concept, so the effect is measured again without these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from marlnb.analysis.data.given import Given, GivenColumns, given_columns
from marlnb.analysis.data.played_episodes import PlayedEpisodes
from marlnb.analysis.data.row_condition import Condition, rows_where
from marlnb.analysis.interventions.action_sensitivity import (
    NEGLIGIBLE,
    ActionSensitivity,
    LabelFunctions,
    acting_group,
    baseline_warnings,
    play_episodes,
)
from marlnb.analysis.interventions.confounds import Correlates, concept_label, confound_tests, correlates
from marlnb.analysis.interventions.direction_tests import DirectionTests
from marlnb.analysis.interventions.intervene import MAX_ENVS
from marlnb.analysis.interventions.usage_result import (
    EQUAL_VARIANCE,
    Conclusion,
    Confound,
    Usage,
    UsageTest,
    beyond_matched,
    beyond_random,
    of_given,
)
from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.given_patterns import DETERMINED, explained_share, half_agreement, patterns
from marlnb.config import EnvConfig
from marlnb.errors import AnalysisError, ConfigError
from marlnb.models.hooks.directions import Direction
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

MIN_RANDOM_DIRECTIONS = 39
"""Fewer cannot give a p-value of 0.025, which Holm's correction over the two edits needs."""
MIN_AGREEMENT = 0.9


class DirectionSource(Protocol):
    """A decoding: the directions of a label, and how well it was read."""

    def directions(self, agent: str | None = None) -> tuple[Direction, ...]: ...
    def of(self, agent: str | None = None) -> Any: ...


def usage(
    policy_source: PolicySourceLike,
    directions: Direction | Sequence[Direction] | DirectionSource,
    *,
    agent: str | None = None,
    rows: Condition | None = None,
    given: Given | None = None,
    labels: LabelFunctions | None = None,
    episodes: int = 100,
    seed: int = 1000,
    strength: float = 2.0,
    n_random_directions: int = MIN_RANDOM_DIRECTIONS,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    explore: bool = False,
) -> Usage:
    """Tests whether an agent uses what a direction stands for, by erasing it and by steering along it.

    The effect is how far the agent's action distributions move on the same states, those of episodes played without
    edits: total variation, `TV(p, q) = 1/2 sum_a |p(a) - q(a)|`, or for continuous actions KL in nats. It is compared
    with the effects of random directions of the same length, orthogonal to the tested ones, and of random directions
    along which the activations vary as much.

    A direction v may carry other quantities z than its concept k. With the activations `h = m + A k + B z + e` of the
    episodes and W an orthonormal basis of the columns of B, the effect is measured again for `v - W W' v`, along which
    the activations do not change with z (see `patterns`). This is done for what is `given`. Where there is an effect,
    it is also done for the observed features and the labels that correlate with the projection onto v while the
    concept stays the same; this needs a concept that is a label of these episodes.

    Args:
        policy_source: a run, its folder, or other agents.
        directions: one Direction, several of one concept, or a decoding, of which all directions are taken.
        agent: whose, if a decoding has several; None: the directions' own agent.
        rows: the steps over which effects are averaged, as a condition on labels, features and time; None: all. Edits
            act at every step.
        given: what the effect must not be explained by: labels, observed features, or "action", the agent's own.
            An agent's action follows from what it uses, so given the action little is left of a direction near the
            output.
        labels: functions of the time step, by name, as `record` takes them, for `rows`, `given` and the concept.
        episodes: how many to play.
        strength: of the steering, in standard deviations along the direction, forwards and backwards.
        n_random_directions: the smallest possible p-value is 1 / (1 + n_random_directions).
        negligible: an effect that does not count as use.
        n_envs: environments stepped at once.
        explore: sample actions; False takes the most likely ones.
    Raises:
        AnalysisError: directions of several sites or agents, or of a critic, which chooses no actions; an unknown name
            in `rows` or `given`, or no step that meets the condition.
    """
    directions, decodable = _resolve_directions(directions, agent)
    site, agent = directions[0].site, directions[0].agent
    if n_random_directions < 1 or episodes < 2:
        raise ConfigError(
            f"n_random_directions must be 1 or more and episodes 2 or more; got {n_random_directions} and {episodes}"
        )
    policy_source = as_policy_source(policy_source)
    group = acting_group(policy_source, agent, site)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration)
    n_envs = min(episodes, n_envs or min(policy_source.n_envs, MAX_ENVS))
    with policy_source.build_env(n_envs, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        play = partial(play_episodes, built, policies, episodes=episodes, n_envs=n_envs, seed=seed, explore=explore)
        baseline = play((), sites=[site], labels=labels or {})
        played = PlayedEpisodes(baseline)
        source, all_rows = played.source(group.name)
        index = group.agents.index(agent)
        selected = rows_where(source, all_rows, rows)[:, index]
        sensitivity = ActionSensitivity(policies, group.name, index, baseline, played.by_step(selected))
        tests_of = DirectionTests(
            directions, sensitivity, sensitivity.activations(site), n_random_directions, strength, seed, play
        )
        tests = tests_of.run()
        counted = selected & source.acting(all_rows)[:, index]
        concept = concept_label(source, all_rows, directions[0].concept)
        if concept is not None and not concept.known[counted, index].all():
            concept = None
        held = None if concept is None else concept.values[counted, index]
        given_values, agreement = np.empty((int(counted.sum()), 0)), 1.0
        given_names: tuple[str, ...] = ()
        columns = given_columns(source, all_rows, given)
        if columns is not None:
            given_values, given_names = _known_values(columns, counted, index, agent), columns.names
            if held is None or explained_share(held, given_values) < DETERMINED:
                tests += tests_of.run(patterns(tests_of.activations, given_values, held), given=str(columns))
                agreement = half_agreement(tests_of.vectors, tests_of.activations, given_values, held)
        correlated = Correlates((), 0, ())
        confounds: tuple[Confound, ...] = ()
        if concept is not None and held is not None:
            projection = tests_of.activations @ tests_of.vectors.T
            correlated = correlates(source, all_rows, counted, index, projection, concept, excluded=given_names)
            if beyond_random(of_given(tests, False), negligible):
                confounds = confound_tests(tests_of, correlated.candidates, held, given_values, negligible)
    conclusion, others = _conclude(tests, confounds, given_names, decodable, negligible)
    return Usage(
        concept=_concept(directions),
        site=site,
        agent=agent,
        n_directions=len(directions),
        n_random_directions=n_random_directions,
        episodes=episodes,
        strength=strength,
        units=sensitivity.units,
        negligible=negligible,
        decodable=decodable,
        conclusion=conclusion,
        tests=tests,
        settings={
            "seed": seed,
            "checkpoint": origin.iteration,
            "sha256": origin.sha256,
            "n_envs": n_envs,
            "rows": rows if rows is None or isinstance(rows, str) else "a bool array",
            "given": list(given_names),
        },
        not_separable_from=others,
        confounds=confounds,
        carried_by=correlated.carried_by,
        notes=tuple(_notes(_concept(directions), concept, correlated, tests, given_names)),
        warnings=(
            *baseline_warnings(baseline, greedy=not explore),
            *_warnings(tests, episodes, n_random_directions, tests_of.activations, directions),
            *_imprecise(agreement, given_names),
        ),
    )


def _concept(directions: Sequence[Direction]) -> str:
    """The directions' concept; for several classes of a label ("goal = red", ...) the label's name."""
    names = {
        direction.concept if len(directions) == 1 else direction.concept.split(" = ")[0] for direction in directions
    }
    return ", ".join(sorted(names)) or "a direction"


def _resolve_directions(
    source: Direction | Sequence[Direction] | DirectionSource, agent: str | None
) -> tuple[tuple[Direction, ...], bool | None]:
    """The directions, and whether the decoding that they come from read the label better than chance."""
    decodable: bool | None = None
    if isinstance(source, Direction | Sequence):
        directions = (source,) if isinstance(source, Direction) else tuple(source)
    else:
        score = source.of(agent)
        directions, decodable = source.directions(agent), bool(score.p_value <= ALPHA and score.low > score.chance)
    sites = {(direction.site, direction.agent) for direction in directions}
    if len(sites) != 1:
        raise AnalysisError(f"directions must be of one agent at one site; got {sorted(sites)}")
    if agent is not None and directions[0].agent != agent:
        directions = tuple(replace(direction, agent=agent) for direction in directions)
    return directions, decodable


def _imprecise(agreement: float, given: Sequence[str]) -> Iterator[str]:
    if agreement < MIN_AGREEMENT:
        yield (
            f"what is left of the directions without {', '.join(given)} is estimated imprecisely: halves of the "
            f"episodes agree by {agreement:.2f} (cosine; {MIN_AGREEMENT} is enough); raise episodes"
        )


def _known_values(columns: GivenColumns, counted: np.ndarray, index: int, agent: str) -> np.ndarray:
    """`[counted step, column]` of what is given.

    Raises:
        AnalysisError: it is unknown at some of these steps.
    """
    unknown_steps = int((~columns.known[counted, index]).sum())
    if unknown_steps:
        raise AnalysisError(
            f"given={columns} is unknown at {unknown_steps} of {int(counted.sum())} steps of {agent}: choose others "
            "with rows="
        )
    return columns.values[counted, index]


def _conclude(
    tests: Sequence[UsageTest],
    confounds: Sequence[Confound],
    given: Sequence[str],
    decodable: bool | None,
    negligible: float,
) -> tuple[Conclusion, tuple[str, ...]]:
    """The conclusion, and what the effect is not separable from."""
    alone, without_given = of_given(tests, False), of_given(tests, True)
    if not beyond_random(alone, negligible):
        small = all(test.high <= negligible for test in alone)
        return ("decodable but not used" if small and decodable else "not shown to be used"), ()
    others = [] if beyond_matched(alone, negligible) else [EQUAL_VARIANCE]
    if given and not (without_given and beyond_random(without_given, negligible)):
        others += given
    others += [name for confound in confounds if confound.explains for name in confound.names]
    return ("not separable" if others else "used"), tuple(dict.fromkeys(others))


def _notes(
    name: str,
    concept: GivenColumns | None,
    correlated: Correlates,
    tests: Sequence[UsageTest],
    given: Sequence[str],
) -> Iterator[str]:
    if given and not of_given(tests, True):
        yield f"given {', '.join(given)}, nothing of the direction of {name} is left to test"
    if concept is None:
        yield (
            f"{name!r} is no label of these episodes (labels= adds one), so other quantities that its direction may "
            "carry were not tested; given= tests those that you name"
        )
    elif correlated.n_candidates > len(correlated.candidates):
        n_tested = len(correlated.candidates)
        yield f"{correlated.n_candidates} quantities correlate with the direction; the {n_tested} strongest were tested"


def _warnings(
    tests: Sequence[UsageTest],
    episodes: int,
    n_random_directions: int,
    activations: np.ndarray,
    directions: Sequence[Direction],
) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    if n_random_directions < MIN_RANDOM_DIRECTIONS:
        smallest = 1 / (1 + n_random_directions)
        yield f"{n_random_directions} random directions cannot give a p-value below {smallest:.2g}"
    deviation = min(float((activations @ np.array(direction.vector)).std()) for direction in directions)
    if deviation < 1e-6:
        yield "the activations do not vary along the direction in these episodes"
    if all(test.effect == 0 for test in tests):
        yield "no edit changed any action distribution: check that the site leads to the agent's actions"
