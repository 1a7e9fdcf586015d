"""Test whether an agent uses a decoded direction: erase it, steer along it, and measure the change in its actions.

A decoder shows that a concept can be read from activations, not that the agent reads it. Amnesic probing removes the
direction and compares the behaviour (Elazar et al. 2021, arXiv:2006.00995); the random directions are its control. A
direction may also carry other quantities than its concept, so the effect is measured again without these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from marlnb.analysis.data.given import Given
from marlnb.analysis.data.played_episodes import PlayedEpisodes
from marlnb.analysis.data.row_condition import Condition, rows_name, rows_note, rows_where
from marlnb.analysis.interventions.action_sensitivity import (
    NEGLIGIBLE,
    ActionSensitivity,
    LabelFunctions,
    acting_group,
    baseline_warnings,
    origin_to_play,
    other_weights_warning,
    play_episodes,
)
from marlnb.analysis.interventions.confounds import with_own_action
from marlnb.analysis.interventions.direction_tests import DirectionTests
from marlnb.analysis.interventions.intervene import MAX_INTERVENTION_ENVS
from marlnb.analysis.interventions.usage_conclusion import conclude, usage_notes, usage_warnings
from marlnb.analysis.interventions.usage_evidence import CountedRows, UsageEvidence
from marlnb.analysis.interventions.usage_result import Usage
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.random_directions import MIN_FREE_DIMENSIONS, free_dimensions
from marlnb.config import EnvConfig
from marlnb.display.formatting import count
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AnalysisError, ConfigError, shown
from marlnb.models.hooks.directions import Direction
from marlnb.specs import GroupSpec
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import choose_n_envs
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

MIN_RANDOM_DIRECTIONS = 39
"""Fewer cannot give a p-value of 0.025, which Holm's correction over the two edits needs."""


class DirectionSource(Protocol):
    """A decoding: the directions of a label, how well it was read, and the iteration whose rows were read."""

    @property
    def checkpoint(self) -> int | None: ...
    def directions(self, agent: str | None = None) -> tuple[Direction, ...]: ...
    def of(self, agent: str | None = None) -> Any: ...


@closing_pools()
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
    checkpoint: Which | None = None,
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    explore: bool = False,
    progress: bool = True,
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
            output. Where the concept is what another agent does at the same step, the own action is always given: both
            follow from what both agents observe.
        labels: functions of the time step, by name, as `record` takes them, for `rows`, `given` and the concept.
        episodes: how many to play.
        strength: of the steering, in standard deviations along the direction, forwards and backwards.
        n_random_directions: the smallest possible p-value is 1 / (1 + n_random_directions).
        negligible: an effect that does not count as use.
        checkpoint: whose weights are tested; None: those of the decoding, for directions alone the last ones.
        n_envs: environments stepped at once.
        explore: sample actions; False takes the most likely ones.
        progress: show how many edits were measured, if it takes more than two seconds.
    Raises:
        AnalysisError: directions of several sites or agents, or of a critic, which chooses no actions; directions that
            leave fewer than two dimensions of the site to random ones; an unknown name in `rows` or `given`, or no step
            that meets the condition.
    """
    if n_random_directions < 1 or episodes < 2:
        raise ConfigError(
            f"n_random_directions must be 1 or more and episodes 2 or more; got {n_random_directions} and {episodes}"
        )
    _check_directions(directions)
    fitted = None if isinstance(directions, Direction | Sequence) else directions.checkpoint
    directions, decodable = _resolve_directions(directions, agent)
    site, agent, name = directions[0].site, directions[0].agent, _concept(directions)
    _check_free_dimensions(directions)
    policy_source = as_policy_source(policy_source)
    group = acting_group(policy_source, agent, site)
    origin = origin_to_play(policy_source, checkpoint, fitted)
    policies = policy_source.policies(origin.iteration)
    n_envs = choose_n_envs(policy_source, episodes, n_envs, MAX_INTERVENTION_ENVS)
    with (
        policy_source.build_env(n_envs, env=env) as built,
        AnalysisProgress(f"usage of {name} by {agent}", "edits", shown=progress) as shown,
    ):
        check_fit(policy_source.spec, built.spec)
        play = partial(play_episodes, built, policies, episodes=episodes, n_envs=n_envs, seed=seed, explore=explore)
        baseline = play((), sites=[site], labels=labels or {})
        counted, steps = _counted(PlayedEpisodes(baseline), group, agent, rows)
        sensitivity = ActionSensitivity(policies, group.name, counted.index, baseline, steps, shown)
        tests = DirectionTests(
            directions, sensitivity, sensitivity.activations(site), n_random_directions, strength, seed, play
        )
        concept = directions[0].concept
        all_given = with_own_action(given, concept, agent, counted.source.recording.agents)
        evidence = UsageEvidence(tests, counted, counted.concept(concept), counted.given(all_given), negligible)
        conclusion, others = conclude(evidence, decodable)
    return Usage(
        concept=name,
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
        tests=evidence.tests,
        settings={
            "seed": seed,
            "checkpoint": origin.iteration,
            "sha256": origin.sha256,
            "n_envs": n_envs,
            "rows": rows_name(rows) or None,
            "given": list(evidence.given_names),
        },
        not_separable_from=others,
        confounds=evidence.confounds,
        carried_by=evidence.correlates.carried_by,
        notes=(*rows_note(rows_name(rows)), *usage_notes(name, evidence)),
        warnings=(
            *other_weights_warning("the decoder", fitted, origin),
            *baseline_warnings(baseline, greedy=not explore),
            *usage_warnings(evidence, episodes, MIN_RANDOM_DIRECTIONS),
        ),
    )


def _concept(directions: Sequence[Direction]) -> str:
    """The directions' concept; for several classes of a label ("goal = red", ...) the label's name."""
    names = {
        direction.concept if len(directions) == 1 else direction.concept.split(" = ")[0] for direction in directions
    }
    return ", ".join(sorted(names)) or "a direction"


def _check_directions(source: object) -> None:
    parts = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if all(isinstance(part, Direction) for part in parts) or hasattr(source, "directions"):
        return
    raise ConfigError(
        "usage needs directions= to be a Direction, as decoding.direction() returns, several of them, or a decoding; "
        f"got {shown(source)}"
    )


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


def _check_free_dimensions(directions: Sequence[Direction]) -> None:
    """Raises AnalysisError: the directions leave too few dimensions of their site to random ones."""
    n_units, n_free = len(directions[0].vector), free_dimensions(np.array([d.vector for d in directions]))
    if n_free < MIN_FREE_DIMENSIONS:
        raise AnalysisError(
            f"no random directions are left to compare with: the {count(len(directions), 'tested direction')} span "
            f"{n_units - n_free} of the {n_units} dimensions of {directions[0].site}, and {MIN_FREE_DIMENSIONS} must "
            "be left; test fewer, such as decoding.directions()[:1], or a site with more units"
        )


def _counted(
    played: PlayedEpisodes, group: GroupSpec, agent: str, condition: Condition | None
) -> tuple[CountedRows, list[Tensor]]:
    """The rows that meet the condition and at which the agent acts; and by trajectory, `[time, env]` bool, the steps
    that meet the condition."""
    source, all_rows = played.source(group.name)
    index = group.agents.index(agent)
    selected = rows_where(source, all_rows, condition)[:, index]
    counted = CountedRows(source, all_rows, selected & source.acting(all_rows)[:, index], index)
    return counted, played.by_step(selected)
