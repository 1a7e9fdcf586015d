"""concept_activation: agents whose driven logits the concept moves, by the derivative in the last hidden layer.

concept_score takes the share of steps at which a logit would rise, TCAV itself, as evidence of use. It shows what signs
alone are worth: with shared weights, an agent that never has the concept has the readout of the one that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        least = max(instance.min_effect(group), instance.task.min_effect_share * largest)
        level = ALPHA / len(instance.outputs[group])
        agents += [score.agent for score in results if score.moves(least, level)]
    return instance.finding("concept_activation", ("agents",), [AgentsClaim(agents=tuple(dict.fromkeys(agents)))])


@analysis("concept_score")
def sensitive_agents(instance: Instance) -> Finding:
    every = [score for group in instance.task.groups for score in scores(instance, group)]
    agents = tuple(dict.fromkeys(score.agent for score in every if score.p_holm < ALPHA))
    return instance.finding("concept_score", ("agents",), [AgentsClaim(agents=agents)])


@lru_cache(maxsize=4)
def scores(instance: Instance, group: str) -> tuple[ConceptScore, ...]:
    """Scores of every agent and driven output; cached, since two analyses need them."""
    return tuple(_scores(instance, group))


def _scores(instance: Instance, group: str) -> Iterator[ConceptScore]:
    label = _binary(instance)
    for agent in instance.members(group):
        for output in instance.outputs[group]:
            try:
                results = concept_activation(
                    instance.recording,
                    site=instance.hidden_sites(group)[-1],
                    concept=label,
                    to="logit",
                    target=output,
                    agent=agent,
                    n_runs=N_RUNS,
                    policies=instance.policies,
                )
            except AnalysisError:  # the layer does not vary, or the logit does not depend on it
                continue
            yield from results.scores


def _binary(instance: Instance) -> np.ndarray:
    """Whether the concept is above its median, or its last class, `[row]` or `[row, agent]`."""
    values = instance.recording.label(instance.task.concept).to_numpy()
    if instance.task.kind == "classes":
        return np.asarray(values == values.max())
    return np.asarray(values > np.median(values))
