"""concept_activation: agents whose driven logits depend on the concept, by the derivative in the last hidden layer.

concept_score is the control: it takes TCAV's score (the share of steps with a positive derivative) as evidence of use.
Signs alone tell nothing here. With a linear readout every direction has a sign, and with shared weights an agent that
never represents the concept has the same readout as one that uses it.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from marlnb.analysis.concepts.result import ConceptScore
from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.results import ALPHA
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim
from marlnb.groundtruth.scoring.finding import Finding

N_RUNS = 20


@analysis("concept_activation")
def moved_agents(instance: Instance) -> Finding:
    agents: list[str] = []
    for group in instance.task.groups:
        results = list(scores(instance, group))
        largest = max((max(abs(score.effect), score.follows) for score in results), default=0.0)
        min_effect = max(instance.min_effect(group), instance.task.min_effect_share * largest)
        level = ALPHA / len(instance.outputs[group])
        agents += [score.agent for score in results if score.moves(min_effect, level)]
    return instance.finding("concept_activation", ("agents",), [AgentsClaim(agents=tuple(dict.fromkeys(agents)))])


@analysis("concept_score")
def sensitive_agents(instance: Instance) -> Finding:
    all_scores = [score for group in instance.task.groups for score in scores(instance, group)]
    agents = tuple(dict.fromkeys(score.agent for score in all_scores if score.p_holm < ALPHA))
    return instance.finding("concept_score", ("agents",), [AgentsClaim(agents=agents)])


@lru_cache(maxsize=4)
def scores(instance: Instance, group: str) -> tuple[ConceptScore, ...]:
    """Scores of every agent and driven output. Cached: two analyses use them."""
    label, site = _binary(instance), instance.hidden_sites(group)[-1]
    results: list[ConceptScore] = []
    for agent, output in itertools.product(instance.members(group), instance.outputs[group]):
        try:
            results += concept_activation(
                instance.recording, site=site, concept=label, to="logit", target=output, agent=agent, n_runs=N_RUNS,
                policies=instance.policies,
            ).scores  # fmt: skip
        except AnalysisError:  # the layer is constant, or the logit does not depend on it
            continue
    return tuple(results)


def _binary(instance: Instance) -> np.ndarray:
    """Binary concept, `[row]` or `[row, agent]`: above the median (quantity), or the last class (classes)."""
    values = instance.recording.label(instance.task.concept).to_numpy()
    if instance.task.kind == "classes":
        return np.asarray(values == values.max())
    return np.asarray(values > np.median(values))
