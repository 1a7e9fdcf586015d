"""Concept activation vectors (TCAV): does an agent's output rise or fall along the direction of a concept?

A decoder shows that a concept can be read. TCAV shows which way an output goes when the units move towards the concept,
by the output's derivative. The answer is local and linear, and weaker than an intervention (`mnb.usage`). TCAV's share
of steps counts signs alone: where an output is linear in the units, every direction has one sign. The effect's size is
therefore reported as well.

captum's TCAV takes a concept from a DataLoader of inputs and runs a plain module on them. It has no agent axis, no
recurrent state and no split by episode, so the formula is computed here. The tests compare it with captum's on a
network that both can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from marlnb.analysis.attribution.forward import actor_scalar
from marlnb.analysis.attribution.outputs import Output, Target, find_site, resolve_output
from marlnb.analysis.attribution.task import choose_policy
from marlnb.analysis.concepts.concept_effect import (
    ConceptEffect,
    TunedUnitsEffect,
    concept_effect,
    control_columns,
    residuals,
    tuned_units_effect,
)
from marlnb.analysis.concepts.result import ConceptScore, Tcav, corrected_for_agents
from marlnb.analysis.concepts.tcav_score import concept_vector, score_p_value, tcav_score
from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.labels import Label, Labels, SeveralLabels, label_list, resolve_label
from marlnb.analysis.data.missing_labels import MissingLabels
from marlnb.analysis.data.rows import RowBatch, RowSource
from marlnb.analysis.decoding.linear_decoder import DirectionKind
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.bootstrap import MIN_RESAMPLES
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.linear_models import balanced_accuracy
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site, group_of
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.collect.threads import torch_threads
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

BATCH_ROWS = 4096
MIN_EPISODES = 20
N_BOOTSTRAP = 200


def concept_activation(
    recording: RecordingLike,
    *,
    site: str,
    concept: Label,
    to: str = "action",
    target: Target = None,
    value: str | int | None = None,
    agent: str | None = None,
    where: Label | None = None,
    controlling_for: SeveralLabels = (),
    kind: DirectionKind = "filter",
    n_runs: int = 20,
    n_shuffles: int = 400,
    policies: Mapping[str, Policy] | None = None,
    checkpoint: int | None = None,
    episodes: Sequence[int] | None = None,
    seed: int = 0,
) -> Tcav:
    """TCAV: the share of steps at which an output rises if a site's units move towards a concept.

    `score = |{x: grad f(x) · v > 0}| / |{x}|`, with v the weights of a linear classifier of the concept.

    Each run fits the classifier to half of the episodes and tests it on the other half. Random runs do the same with
    the concept of other episodes. A score far from 0.5 means something only if the random scores are closer to it:
    where the output is nearly linear in the units, every direction scores 0 or 1. The p-value compares the score of a
    classifier of all episodes with those of `n_shuffles` random concepts. How much the output grows is
    measured by `effect`, the derivative along the way from the units' mean without the concept to that with it, against
    shuffled episodes; and by `follows`, how much the output moves through the units that are tuned to the concept,
    which detects a concept that gates what units follow and leaves their means alike.

    Args:
        concept: a label as in `decode` that is true or false at each row; or, with `value`, one that is true where it
            has that value.
        to: output, as in `attribute`: action, logit, log_prob, value or unit.
        target: as in `attribute`.
        agent: the agent's name; None for all agents of the site.
        where: a label that is true at the rows of which the score is the share; None for all.
        controlling_for: one or several labels of other concepts that are held fixed: their linear effect on the units
            is removed first. Otherwise a concept that correlates with one that is used appears to be used.
        kind: filter: the classifier's weights, as in the paper; pattern: the difference of means, which does not depend
            on units that only cancel noise (Pahde et al. 2022).
        n_runs: classifiers of the concept, and as many of random concepts; 2 or more.
        n_shuffles: permutations of the episodes, for the p-values of score and effect; 20 or more.
        policies: by group; None: those of the checkpoint that made the recording.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        episodes: numbers of the episodes to use, or a mask of all episodes; None for all.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: a concept that is not true or false, or never varies; an unknown kind; too few episodes; an
            output that does not depend on the site.
    Source: Kim et al. 2018, Interpretability Beyond Feature Attribution, section 3 (arXiv:1711.11279). The paper
        compares the runs by a t-test; `score_p_value` says why that is not done here.
    """
    if kind not in get_args(DirectionKind):
        raise AnalysisError(unknown("kind of direction", kind, get_args(DirectionKind)))
    n_runs, seed = checked_number(n_runs, int, "n_runs", ge=2), checked_number(seed, int, "seed", ge=0)
    n_shuffles = checked_number(n_shuffles, int, "n_shuffles", ge=MIN_RESAMPLES)
    recording = opened_recording(recording)
    source = RowSource(recording, group_of(site))
    spec = source.env.group(source.group)
    rows = source.rows(episodes, source.resolve_checkpoint(checkpoint))
    output = resolve_output(spec.action, to, target)
    policy = choose_policy(source, policies, checkpoint, output)
    source.check_recorded(policy.reads(critic=output.of_critic))
    concept_site = find_site(policy.sites(), site)
    labels = resolve_label(source, rows, concept)
    truth = _is_true(labels, value)
    counted = np.ones_like(truth) if where is None else _rows_where(resolve_label(source, rows, where))
    acting = source.acting(rows)
    activations = source.activations(site, rows)
    agents = _agents_at(recording, site, agent)
    concept_name = labels.name if value is None else f"{labels.name} = {value}"
    controls = [resolve_label(source, rows, label) for label in label_list(controlling_for)]
    warnings: list[str] = []
    score_warnings: list[str] = []
    scores, missing = [], MissingLabels()
    for name in agents:
        k = spec.agents.index(name)
        usable = _usable_rows(name, k, acting, [labels, *controls], missing)
        batches = source.batches(rows, BATCH_ROWS, needs_state=output.of_critic)
        gradient = np.concatenate([_gradient(policy, concept_site, output, k, batch) for batch in batches])
        problem = ConceptProblem(
            agent=name,
            concept=concept_name,
            x=activations[usable, k],
            truth=truth[usable, k],
            episode=rows.episode[usable],
            t=rows.t[usable],
            gradient=gradient[usable][counted[usable, k]],
            controls=control_columns(controls, usable, k),
        )
        _check(problem)
        with threadpool_limits(1):
            scores.append(_score(problem, kind, n_runs, n_shuffles, seed, warnings, score_warnings))
    duplicates = duplicate_episode_warnings(recording, rows.episode)
    return Tcav(
        site=site,
        concept=concept_name,
        target=output.describe(spec.action),
        kind=kind,
        n_runs=n_runs,
        scores=corrected_for_agents(scores),
        warnings=tuple(dict.fromkeys([*warnings, *duplicates, *missing.warnings])),
        score_warnings=tuple(dict.fromkeys(score_warnings)),
        notes=tuple(missing.notes),
    )


def _rows_where(labels: Labels) -> np.ndarray:
    """`[row, agent]` bool, where a label is known and true."""
    return _is_true(labels, None) & labels.known


def _usable_rows(
    agent: str, index: int, acting: np.ndarray, labels: Sequence[Labels], missing: MissingLabels
) -> np.ndarray:
    """`[row]` bool, where an agent acts and every label is known; counts the rows that each label lacks.

    Args:
        index: the agent's, in its group.
        acting: `[row, agent]`.
    """
    usable = acting[:, index].astype(bool)
    for label in labels:
        considered, usable = usable, usable & label.known[:, index]
        missing.add(agent, label.name, considered, usable, label.not_numbers[:, index])
    return usable


def _agents_at(recording: Recording, site: str, agent: str | None) -> list[str]:
    """The agent, or all agents of the site."""
    recorded = recording[site].labels["agent"]
    agents = [name for name in recorded if agent in (None, name)]
    if not agents:
        raise AnalysisError(unknown(f"agent at {site!r}", str(agent), recorded))
    return agents


@dataclass(frozen=True)
class ConceptProblem:
    """One agent's rows.

    Attributes:
        agent: the agent's name.
        concept: the concept, in words.
        x: `[row, unit]`, activations.
        truth: `[row]` bool, the concept.
        episode: `[row]`.
        t: `[row]`, the time step.
        gradient: `[counted row, unit]`, the output's derivative with respect to the units.
        controls: `[row, column]`, as `control_columns` gives it.
    """

    agent: str
    concept: str
    x: np.ndarray
    truth: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    gradient: np.ndarray
    controls: np.ndarray


def _check(problem: ConceptProblem) -> None:
    agent, n_episodes = problem.agent, len(np.unique(problem.episode))
    if n_episodes < MIN_EPISODES:
        raise AnalysisError(f"{agent}: a concept needs {MIN_EPISODES} or more episodes; there are {n_episodes}")
    if not np.isfinite(problem.x).all():
        raise AnalysisError(f"{agent}: the activations have values that are not finite")
    if problem.truth.all() or not problem.truth.any():
        raise AnalysisError(f"concept {problem.concept!r} never varies over {agent}'s {len(problem.truth)} rows")
    if not len(problem.gradient):
        raise AnalysisError(f"{agent}: where= is true at none of its rows")


def _score(
    problem: ConceptProblem,
    kind: DirectionKind,
    n_runs: int,
    n_shuffles: int,
    seed: int,
    warnings: list[str],
    score_warnings: list[str],
) -> ConceptScore:
    """Appends reasons not to trust the result to `warnings`, and those that concern the score alone to the other."""
    agent, rng = problem.agent, np.random.default_rng(seed)
    runs, random_runs = _runs(problem, kind, n_runs, rng, warnings)
    (score, accuracy), (random, random_accuracy) = np.array(runs).T, np.array(random_runs).T
    if accuracy.mean() <= np.quantile(random_accuracy, 0.95):
        warnings.append(
            f"{agent}: {problem.concept!r} cannot be decoded in held-out episodes, so its direction means nothing"
        )
    low, high = np.quantile(score, [0.025, 0.975]).tolist()
    random_low, random_high = np.quantile(random, [0.025, 0.975]).tolist()
    mean_gradient = problem.gradient.mean(axis=0)
    effect = concept_effect(
        problem.x @ mean_gradient, problem.truth, problem.controls, problem.episode, problem.t,
        n_shuffles=n_shuffles, n_bootstrap=N_BOOTSTRAP, rng=rng,
    )  # fmt: skip
    x_rest = residuals(problem.x, problem.controls)
    tuned = tuned_units_effect(x_rest, mean_gradient, problem.truth, problem.episode, problem.t, rng)
    shuffle = EpisodeShuffle(problem.episode, problem.t, problem.truth)
    warnings.extend(f"{agent}: {each}" for each in shuffle.warnings(problem.concept, problem.truth, ("false", "true")))
    p = score_p_value(_without_controls(problem), problem.truth, problem.gradient, shuffle, kind, n_shuffles, rng)
    score_warnings.extend(_score_warnings(problem, p, effect, tuned))
    return ConceptScore(
        agent=agent,
        n_rows=len(problem.gradient),
        n_episodes=len(np.unique(problem.episode)),
        score=float(score.mean()),
        low=low,
        high=high,
        random=float(random.mean()),
        random_low=random_low,
        random_high=random_high,
        accuracy=float(accuracy.mean()),
        random_accuracy=float(random_accuracy.mean()),
        p_value=p,
        effect=effect.value,
        effect_low=effect.low,
        effect_high=effect.high,
        effect_random=effect.random,
        p_effect=effect.p_value,
        follows=tuned.deviation,
        follows_low=tuned.low,
        p_follows=tuned.p_value,
    )


def _runs(
    problem: ConceptProblem, kind: DirectionKind, n_runs: int, rng: np.random.Generator, warnings: list[str]
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(score, accuracy) of each run with the concept, and of each run with the concept of shuffled episodes."""
    numbers, shuffle = np.unique(problem.episode), EpisodeShuffle(problem.episode, problem.t, problem.truth)
    x = _without_controls(problem)
    runs: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for shuffled in np.repeat([False, True], n_runs):
        truth = shuffle.permute(problem.truth, rng) if shuffled else problem.truth
        train = np.isin(problem.episode, rng.permutation(numbers)[: len(numbers) // 2])
        if truth[train].all() or not truth[train].any():
            warnings.append(
                f"{problem.agent}: {problem.concept!r} varies in too few episodes: it is constant in some halves"
            )
            continue
        vector, threshold = concept_vector(x[train], truth[train], kind)
        accuracy = balanced_accuracy(truth[~train], x[~train] @ vector > threshold)
        runs[int(shuffled)].append((tcav_score(problem.gradient, vector), accuracy))
    if min(map(len, runs)) < 2:
        raise AnalysisError(f"{problem.agent}: {problem.concept!r} varies in too few episodes for two runs")
    return runs


def _without_controls(problem: ConceptProblem) -> np.ndarray:
    """Activations `[row, unit]` without the linear effect of the controls."""
    return problem.x if problem.controls.shape[1] == 1 else residuals(problem.x, problem.controls)


def _score_warnings(problem: ConceptProblem, p: float, effect: ConceptEffect, tuned: TunedUnitsEffect) -> Iterator[str]:
    """Reasons why the share of steps may mean nothing."""
    if np.ptp(problem.gradient, axis=0).max() <= 1e-6 * np.abs(problem.gradient).max():
        yield (
            f"{problem.agent}: the output is linear in these units, so every direction scores 0 or 1, even one that "
            "hardly matters to it: use the effect"
        )
    if p <= ALPHA and effect.p_value > ALPHA and tuned.p_value > ALPHA:
        yield (
            f"{problem.agent}: the score differs from those of random concepts, but no effect of {problem.concept!r} "
            "is beyond chance"
        )


def _is_true(labels: Labels, value: str | int | None) -> np.ndarray:
    """`[row, agent]` bool."""
    if value is not None:
        names = [str(name) for name in labels.class_names]
        code = names.index(str(value)) if str(value) in names else value
        if isinstance(code, str):
            raise AnalysisError(unknown(f"value of {labels.name!r}", code, names))
        return np.asarray(labels.values == code)
    if not set(np.unique(labels.values[labels.known])) <= {0, 1}:
        name = labels.name
        raise AnalysisError(f"a concept must be true or false in each row; {name!r} has other values: set value=")
    return labels.values.astype(bool)


@torch_threads(1)
def _gradient(policy: Policy, site: Site, output: Output, agent_index: int, batch: RowBatch) -> np.ndarray:
    """The derivative of one agent's output with respect to its own units at the site, `[row, unit]`."""
    at_site: list[Tensor] = []
    at_output_site: list[Tensor] = []

    def detach(module: nn.Module, inputs: object, activation: Tensor) -> Tensor:
        at_site.append(activation.detach().requires_grad_())
        return at_site[-1]

    gradient = None
    with ExitStack() as hooks, torch.enable_grad():
        hooks.enter_context(site.module.register_forward_hook(detach))  # first: a unit of this site is read after it
        if output.to == "unit":
            output_site = find_site(policy.sites(), output.site)
            hook = output_site.module.register_forward_hook(
                lambda module, inputs, activation: at_output_site.append(output_site.select_agents(activation))
            )
            hooks.enter_context(hook)
        score = _scalar_output(policy, output, batch, at_output_site)[:, agent_index]
        if at_site and score.requires_grad:
            (gradient,) = torch.autograd.grad(score.sum(), at_site[-1], allow_unused=True)
    if gradient is None:
        raise AnalysisError(f"{output.to} does not depend on {site.name}: choose a site that it is computed from")
    row = site.row_of(agent_index)
    assert row is not None
    return gradient[:, min(row, gradient.shape[1] - 1)].numpy()


def _scalar_output(policy: Policy, output: Output, batch: RowBatch, at_output_site: list[Tensor]) -> Tensor:
    """The explained number of each agent, `[row, agent]`."""
    if output.of_critic:
        value, _ = policy.value(batch.observations, state=batch.state, recurrent=batch.critic_recurrent)
        return value if output.to == "value" else at_output_site[-1][..., output.unit]
    observation = batch.observations[policy.group.name]
    if output.to == "unit":
        policy.logits(observation, recurrent=batch.recurrent)
        return at_output_site[-1][..., output.unit]
    return actor_scalar(policy, output, observation, batch.action, batch.recurrent, batch.action_mask)
