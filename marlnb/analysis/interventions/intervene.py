"""Play the same episodes with and without edits, and measure what changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.given import Given
from marlnb.analysis.data.row_condition import Condition
from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.batched_outcomes import BatchedOutcomes, power_warnings
from marlnb.analysis.interventions.episode_selection import CountedSteps, episode_classes
from marlnb.analysis.interventions.outcomes import paired_outcomes
from marlnb.analysis.interventions.result import Intervention
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.stats.paired_test import Intervals
from marlnb.config import EnvConfig
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AnalysisError, ConfigError, shown, unknown
from marlnb.models.hooks.apply_edits import edit_targets
from marlnb.models.hooks.edit import Edit, plain
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec
from marlnb.training.policies.compatibility import check_fit, check_group_fit
from marlnb.training.policies.evaluation import check_episodes, choose_n_envs
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.saved_edits import resolve_edits, save_edits, write_result
from marlnb.values import checked_number

MAX_INTERVENTION_ENVS = 256


@closing_pools()
def intervene(
    policy_source: PolicySourceLike,
    edits: Edit | Sequence[Edit] | str = (),
    *,
    rows: Condition | None = None,
    given: Given | None = None,
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
    progress: bool = True,
) -> Intervention:
    """Plays each episode twice, without and with the edits, and compares the two.

    Episode k has the seed `seed + k` in both rollouts: they start alike, and sampled actions get the same noise at the
    same step. Each episode is its own control:

        effect = mean over episodes k of (outcome of k with the edits - outcome of k without)

    Outcomes of whole episodes show the total effect, through the environment and the other agents; actions on the same
    states show the direct effect.

    Args:
        policy_source: a run, its folder, or other agents.
        edits: one, several, or the name under which some were saved with the run.
        rows: the steps of the episodes without edits over which effects on actions are averaged, as a condition on
            labels, features and time; None: all. Returns, lengths, values and labels are those of whole episodes.
        given: labels of classes that stay the same during an episode, such as "goal": the effects are also measured
            in the episodes of each class. Nothing has to be adjusted for them, since each episode is its own control.
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
        progress: show how many edited episodes were played, if it takes more than two seconds.
    Raises:
        ConfigError: an option out of range, strengths without an edit that has one, or a partner that does not fit.
        SiteError, ShapeError: an edit of a site or unit that the policies do not have.
        AnalysisError: an unknown name in `rows` or `given`, no step that meets the condition, or a `given` label that
            changes during an episode.
    Source: Pearl 2001, Direct and Indirect Effects (arXiv:1301.2300).
    """
    policy_source = as_policy_source(policy_source)
    edits = resolve_edits(policy_source, edits)
    _check(edits, partners, episodes, seed, n_envs, intervals)
    strengths = None if strengths is None else _checked_strengths(strengths)
    edits_by_arm = _at_strengths(edits, strengths)
    stated_edits = tuple(json.loads(json.dumps(edit.pinned().to_json())) for edit in edits)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration, device=device)
    edited_policies, partner_names = _with_partners(policy_source, policies, partners or {}, device)
    comparison = _Comparison(policies, edited_policies, edits_by_arm, CountedSteps(rows), given)
    n_envs = choose_n_envs(policy_source, episodes, n_envs, MAX_INTERVENTION_ENVS)
    with (
        policy_source.build_env(n_envs, device=device, env=env) as built,
        AnalysisProgress("intervention", "edited episodes", episodes * len(edits_by_arm), shown=progress) as shown,
    ):
        check_fit(policy_source.spec, built.spec)
        publish_evaluation(built, policy_source.path / EVALUATION)
        outcomes = BatchedOutcomes(built.spec, len(edits_by_arm))
        for first in range(0, episodes, n_envs):
            n = min(n_envs, episodes - first)
            play = partial(roll_out, built, seed=seed, first=first, explore=explore, episodes=n)
            comparison.play_batch(play, outcomes, shown)
    notes = comparison.steps.notes(built.spec.group_names)
    touched = _touched_agents(built.spec, edited_policies, edits, partner_names)
    arms = tuple(
        outcomes.arm(index, strength, touched, intervals, seed)
        for index, strength in enumerate(strengths if strengths is not None else [None])
    )
    result = Intervention(
        edits=stated_edits,
        partners=partner_names,
        groups={group.name: group.agents for group in built.spec.groups},
        arms=arms,
        settings={
            "env": built.spec.name,
            "episodes": episodes,
            "seed": seed,
            "explore": explore,
            "intervals": intervals,
            "n_envs": n_envs,
            "checkpoint": origin.iteration,
            "sha256": origin.sha256,
            "strengths": strengths,
            "rows": rows if rows is None or isinstance(rows, str) else "a bool array",
            "given": None if given is None else sorted(set(filter(None, outcomes.classes))),
        },
        returns=outcomes.returns(),
        notes=notes,
        warnings=(
            *duplicate_warnings(outcomes.hashes, greedy=not explore),
            *power_warnings(arms, episodes, outcomes.return_deviations()),
        ),
    )
    if save is not None:
        save_edits(policy_source, save, edits, note=note, replace=True)
        write_result(policy_source, save, "intervention", result.to_json())
    return result


def _check(
    edits: Sequence[Edit],
    partners: Mapping[str, object] | None,
    episodes: int,
    seed: int,
    n_envs: int | None,
    intervals: Intervals,
) -> None:
    check_episodes(episodes, seed, n_envs)
    if intervals not in get_args(Intervals):
        raise ConfigError(unknown("kind of intervals", intervals, get_args(Intervals)))
    if not edits and not partners:
        raise ConfigError("an intervention needs edits= or partners=; got neither")


@dataclass(frozen=True)
class _Comparison:
    """The policies that play the same episodes without and with edits, and what of the episodes counts.

    Attributes:
        policies: by group, of the episodes without edits.
        edited_policies: by group, of the edited episodes: the partners' where there are any.
        edits_by_arm: the edits of each arm.
        steps: the steps over which effects on actions are averaged.
        given: labels of classes of episodes; None: nothing is given.
    """

    policies: Mapping[str, Policy]
    edited_policies: Mapping[str, Policy]
    edits_by_arm: Sequence[Sequence[Edit]]
    steps: CountedSteps
    given: Given | None

    def play_batch(
        self,
        play: Callable[[Mapping[str, Policy], Sequence[Edit]], Trajectories],
        outcomes: BatchedOutcomes,
        progress: AnalysisProgress,
    ) -> None:
        """Plays a batch of episodes without edits, then once for each arm, and adds their outcomes."""
        baseline = play(self.policies, ())
        outcomes.hashes += episode_hashes(baseline)
        counted = self.steps.of(baseline)
        if self.given is not None:
            outcomes.classes += episode_classes(baseline, self.given)
        baseline_outputs = evaluate_on(self.policies, baseline)
        for index, edits in enumerate(self.edits_by_arm):
            edited = play(self.edited_policies, edits)
            on_baseline = evaluate_on(self.edited_policies, baseline, edits, values=False)
            edited_outputs = evaluate_on(self.edited_policies, edited, edits)
            pairs = paired_outcomes(
                self.policies, baseline, edited, baseline_outputs, on_baseline, edited_outputs, counted
            )
            outcomes.add(index, pairs, baseline, edited)
            progress.add(edited.in_episode.shape[1])


def _touched_agents(
    spec: EnvSpec, policies: Mapping[str, Policy], edits: Sequence[Edit], partner_groups: Iterable[str]
) -> set[str]:
    """The agents whose policies are edited or replaced by a partner's."""
    of_edits = {agent for edit in edits for target in edit_targets(policies, edit) for agent in target.all_agents}
    return of_edits | {agent for group in partner_groups for agent in spec.group(group).agents}


def _checked_strengths(strengths: object) -> list[float]:
    if isinstance(strengths, str) or not isinstance(strengths, Iterable):
        raise ConfigError(f"strengths must be a list of numbers; got {shown(strengths)}")
    numbers = [plain(value) for value in strengths]
    if not numbers:
        raise ConfigError("strengths must be at least one number; got none")
    for k, number in enumerate(numbers):
        checked_number(number, float, f"strengths[{k}]")
    return numbers


def _at_strengths(edits: Sequence[Edit], strengths: Sequence[float] | None) -> list[list[Edit]]:
    if strengths is None:
        return [list(edits)]
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
