"""Concept activation vectors: does an agent's output rise or fall along the direction in which a concept lies?

A decoder says that a concept can be read; this says which way an output goes when the units move towards it, by the
output's derivative. It is a local and linear answer, weaker than an intervention (`mnb.usage`), and TCAV's share of
steps counts signs alone: where an output is linear in the units every direction has one. So the size stands beside it.

captum's own TCAV takes a concept from a DataLoader of inputs and runs a plain module on them; it has no agent axis, no
recurrent state and no split by episode, so the formula is computed here and the tests hold it to captum's on a network
that both can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.stats import mannwhitneyu
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from marlnb.analysis.attribution.outputs import Output, Target, find_site, pick, resolve_output
from marlnb.analysis.attribution.setup import chosen_policy
from marlnb.analysis.concepts.concept_effect import (
    ConceptEffect,
    Followed,
    concept_effect,
    followed,
    held_fixed,
    without,
)
from marlnb.analysis.concepts.result import ConceptScore, Tcav, corrected
from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.labels import Label, Labels, resolve_label
from marlnb.analysis.data.missing_labels import LeftOut
from marlnb.analysis.data.rows import Moments, Rows, RowSource
from marlnb.analysis.decoding.linear_decoder import DirectionKind
from marlnb.analysis.stats.linear_models import balanced_accuracy, fit_logistic, permute_by_episode
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

BATCH_ROWS = 4096
FEWEST_EPISODES = 20
REPETITIONS = 200
LEVEL = 0.05


def concept_activation(
    recording: Recording,
    *,
    site: str,
    concept: Label,
    to: str = "action",
    target: Target = None,
    value: str | int | None = None,
    agent: str | None = None,
    among: Label | None = None,
    given: Sequence[Label] = (),
    kind: DirectionKind = "filter",
    n_runs: int = 20,
    n_shuffles: int = 400,
    policies: Mapping[str, Policy] | None = None,
    checkpoint: int | None = None,
    episodes: list[int] | None = None,
    seed: int = 0,
) -> Tcav:
    """TCAV: the share of steps at which an output would rise if the units of a site moved towards a concept.

    Each run fits a linear classifier of the concept to half of the episodes and tests it on the other half; random runs
    do the same with the concept of other episodes. A score far from 0.5 says nothing unless the random ones are not as
    far: where the output is nearly linear in the units, any direction gives 0 or 1. How much the output grows is told
    by `effect`, the derivative along the way from the units' mean without the concept to that with it, against shuffled
    episodes; and by `follows`, how much it moves through the units that are tuned to the concept, which sees a concept
    that gates what units follow and leaves their means alike.

    Args:
        concept: what `decode` takes as a label: true or false at each row; or, with `value`, true where it has that.
        to, target: the output, as `attribute` takes it: action, logit, log_prob, value or unit.
        among: rows of which the score is the share, as a label that is true there; None: all.
        kind: filter: the classifier's weights, as in the paper; pattern: the difference of means, which does not lean
            on units that only cancel noise (Pahde et al. 2022).
        given: other concepts, as labels, that are held fixed: what units do with those is taken from the activations
            before a direction is looked for. A concept that goes along with one that is used seems used without.
        policies: by group; None: those of the checkpoint that made the recording.
        n_runs: of the concept, and as many random ones. n_shuffles: of episodes, for the effect.
    Raises:
        AnalysisError: a concept that is not true or false, or never varies; too few episodes; an output that does not
            depend on the site.
    Source: Kim et al. 2018, Interpretability Beyond Feature Attribution, section 3 (arXiv:1711.11279). Scores of
        concept and random runs are compared by a rank test, since they are often all 0 or 1; the paper has a t-test.
    """
    source = RowSource(recording, site.split("/")[0])
    spec = source.env.group(source.group)
    rows = source.rows(episodes, source.one_checkpoint(checkpoint))
    output = resolve_output(spec.action, to, target)
    policy = chosen_policy(policies or source.policies(checkpoint), source.group, output, source)
    place = find_site(policy.sites(), site)
    labels = resolve_label(source, rows, concept)
    truth = _is_true(labels, value)
    counted = np.ones_like(truth) if among is None else _holds(resolve_label(source, rows, among))
    acting = source.acting(rows)
    activations = source.activations(site, rows)
    bearers = [name for name in recording[site].labels["agent"] if agent in (None, name)]
    if not bearers:
        raise AnalysisError(unknown(f"agent at {site!r}", str(agent), recording[site].labels["agent"]))
    name = labels.name if value is None else f"{labels.name} = {value}"
    fixed = [resolve_label(source, rows, label) for label in given]
    notes: list[str] = []
    doubts: list[str] = []
    left_out = LeftOut()
    scores = []
    for member in bearers:
        k = spec.agents.index(member)
        keep = acting[:, k].astype(bool)
        for one in (labels, *fixed):
            asked, keep = keep, keep & one.known[:, k]
            left_out.add(member, one.name, asked, keep, one.missing[:, k])
        gradient = np.concatenate([_gradient(policy, place, output, k, m) for m in _moments(source, rows, output)])
        case = _Case(
            member, name, activations[keep, k], truth[keep, k], rows.episode[keep], gradient[keep][counted[keep, k]],
            held_fixed(fixed, keep, k),
        )  # fmt: skip
        _check(case)
        with threadpool_limits(1):
            scores.append(_score(case, kind, n_runs, n_shuffles, seed, notes, doubts))
    told, target = corrected(scores), output.describe(spec.action)
    warnings = tuple(dict.fromkeys([*notes, *repeats(recording, rows.episode), *left_out.doubts]))
    return Tcav(site, name, target, kind, n_runs, told, warnings, tuple(dict.fromkeys(doubts)), tuple(left_out.notes))


def tcav_score(gradient: np.ndarray, direction: np.ndarray) -> float:
    """The share of rows at which an output's derivative along a direction is positive.

    Args:
        gradient: `[row, unit]`, of the output by the units; direction: `[unit]`.
    """
    return float((gradient @ direction > 0).mean())


def concept_vector(x: np.ndarray, truth: np.ndarray, kind: DirectionKind) -> tuple[np.ndarray, float]:
    """The direction `[unit]` from rows without to rows with a concept, and the value on it that parts them."""
    weights, intercept = fit_logistic(x, truth.astype(np.int64))
    vector, threshold = weights[1] - weights[0], intercept[0] - intercept[1]
    if kind == "filter":
        return vector, float(threshold)
    with_it, without = x[truth].mean(axis=0), x[~truth].mean(axis=0)
    pattern = (with_it - without).astype(np.float64)
    return pattern, float(pattern @ (with_it + without) / 2)


@dataclass(frozen=True)
class _Case:
    """One agent's question: activations `[row, unit]`, the concept `[row]`, the output's derivative `[counted, unit]`,
    and what is held fixed `[row, column]`."""

    agent: str
    concept: str
    x: np.ndarray
    truth: np.ndarray
    episode: np.ndarray
    gradient: np.ndarray
    held: np.ndarray


def _check(case: _Case) -> None:
    n_episodes = len(np.unique(case.episode))
    if n_episodes < FEWEST_EPISODES:
        raise AnalysisError(
            f"{case.agent}: a concept needs at least {FEWEST_EPISODES} episodes; there are {n_episodes}"
        )
    if not np.isfinite(case.x).all():
        raise AnalysisError(f"{case.agent}: its activations hold values that are not finite")
    if case.truth.all() or not case.truth.any():
        raise AnalysisError(f"concept {case.concept!r} never varies over {case.agent}'s {len(case.truth)} rows")
    if not len(case.gradient):
        raise AnalysisError(f"{case.agent}: none of its rows is among those that were asked for")


def _score(
    case: _Case, kind: DirectionKind, n_runs: int, n_shuffles: int, seed: int, notes: list[str], doubts: list[str]
) -> ConceptScore:
    """Adds to `notes` what speaks against all of it, to `doubts` what speaks against the share of steps alone."""
    agent, rng = case.agent, np.random.default_rng(seed)
    found = _runs(case, kind, n_runs, rng, notes)
    (score, accuracy), (random, random_accuracy) = (np.array(found[of]).T for of in (False, True))
    if accuracy.mean() <= np.quantile(random_accuracy, 0.95):
        notes.append(f"{agent}: {case.concept!r} cannot be told in episodes not fitted, so its direction means nothing")
    p = float(mannwhitneyu(score, random, alternative="two-sided").pvalue) if np.ptp([*score, *random]) else 1.0
    low, high = np.quantile(score, [0.025, 0.975])
    random_low, random_high = np.quantile(random, [0.025, 0.975])
    slope = case.gradient.mean(axis=0)
    effect = concept_effect(
        case.x @ slope, case.truth, case.held, case.episode, n_shuffles=n_shuffles, repetitions=REPETITIONS, rng=rng
    )
    through = followed(without(case.x, case.held), slope, case.truth, case.episode, rng)
    doubts.extend(_signs_alone(case, p, effect, through))
    return ConceptScore(
        agent, len(case.gradient), len(np.unique(case.episode)), float(score.mean()), float(low), float(high),
        float(random.mean()), float(random_low), float(random_high), float(accuracy.mean()),
        float(random_accuracy.mean()), p, effect=effect.value, effect_low=effect.low, effect_high=effect.high,
        effect_random=effect.random, p_effect=effect.p_value, follows=through.spread, follows_low=through.low,
        p_follows=through.p_value,
    )  # fmt: skip


def _runs(
    case: _Case, kind: DirectionKind, n_runs: int, rng: np.random.Generator, notes: list[str]
) -> dict[bool, list[tuple[float, float]]]:
    """Scores and accuracies of classifiers of halves of the episodes, of the concept and (True) of shuffled ones."""
    numbers, x = np.unique(case.episode), case.x if case.held.shape[1] == 1 else without(case.x, case.held)
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for shuffled in np.repeat([False, True], n_runs):
        label = permute_by_episode(case.truth, case.episode, rng) if shuffled else case.truth
        half = np.isin(case.episode, rng.permutation(numbers)[: len(numbers) // 2])
        if label[half].all() or not label[half].any():
            notes.append(f"{case.agent}: {case.concept!r} is in too few episodes: a half had none or all of it")
            continue
        vector, threshold = concept_vector(x[half], label[half], kind)
        accuracy = balanced_accuracy(label[~half], x[~half] @ vector > threshold)
        found[bool(shuffled)].append((tcav_score(case.gradient, vector), accuracy))
    if min(map(len, found.values())) < 2:
        raise AnalysisError(f"{case.agent}: {case.concept!r} is in too few episodes for two runs")
    return found


def _signs_alone(case: _Case, p: float, effect: ConceptEffect, through: Followed) -> Iterator[str]:
    """Why the share of steps may say nothing."""
    if np.ptp(case.gradient, axis=0).max() <= 1e-6 * np.abs(case.gradient).max():
        yield (
            f"{case.agent}: the output is linear in these units, so that every direction scores 0 or 1, one that it "
            "hardly reads too: go by the effect"
        )
    if p <= LEVEL and effect.p_value > LEVEL and through.p_value > LEVEL:
        yield f"{case.agent}: the score is beyond random concepts', but no effect of {case.concept!r} is beyond chance"


def _is_true(labels: Labels, value: str | int | None) -> np.ndarray:
    """`[row, agent]` bool."""
    if value is not None:
        names = [str(name) for name in labels.class_names]
        wanted = names.index(str(value)) if str(value) in names else value
        if isinstance(wanted, str):
            raise AnalysisError(unknown(f"value of {labels.name!r}", wanted, names))
        return np.asarray(labels.values == wanted)
    if not set(np.unique(labels.values[labels.known])) <= {0, 1}:
        raise AnalysisError(
            f"a concept is true or false at each row; {labels.name!r} has other values: say which with value="
        )
    return labels.values.astype(bool)


def _holds(labels: Labels) -> np.ndarray:
    """`[row, agent]` bool: it is known, and true."""
    return _is_true(labels, None) & labels.known


def _moments(source: RowSource, rows: Rows, output: Output) -> Iterator[Moments]:
    return source.batches(rows, BATCH_ROWS, needs_state=output.of_critic)


@torch_threads(1)
def _gradient(policy: Policy, site: Site, output: Output, agent: int, moments: Moments) -> np.ndarray:
    """The derivative of one agent's output by its own units at the site, `[row, unit]`."""
    held: list[Tensor] = []

    def hold(module: nn.Module, inputs: object, out: Tensor) -> Tensor:
        held.append(out.detach().requires_grad_())
        return held[-1]

    other: list[Tensor] = []
    reader = None
    hook = site.module.register_forward_hook(hold)  # first: a unit of this very site is read from what is held
    if output.to == "unit":
        read = find_site(policy.sites(), output.site)
        reader = read.module.register_forward_hook(lambda m, i, out: other.append(read.own_rows(out)))
    try:
        with torch.enable_grad():
            score = _scalar(policy, output, moments, other)[:, agent]
            if not held or not score.requires_grad:
                raise AnalysisError(f"{output.to} does not depend on {site.name}: the site lies on no way to it")
            (found,) = torch.autograd.grad(score.sum(), held[-1], allow_unused=True)
    finally:
        hook.remove()
        if reader is not None:
            reader.remove()
    if found is None:
        raise AnalysisError(f"{output.to} does not depend on {site.name}: the site lies on no way to it")
    row = site.row_of(agent)
    assert row is not None
    return found[:, min(row, found.shape[1] - 1)].numpy()


def _scalar(policy: Policy, output: Output, moments: Moments, other: list[Tensor]) -> Tensor:
    """The explained number of each agent, `[row, agent]`."""
    if output.of_critic:
        value, _ = policy.value(moments.observations, state=moments.state, recurrent=moments.critic_recurrent)
        return value if output.to == "value" else other[-1][..., output.unit]
    logits, _ = policy.logits(moments.observations[policy.group.name], recurrent=moments.recurrent)
    if output.to == "unit":
        return other[-1][..., output.unit]
    return pick(logits, moments.action, policy.group.action, output)
