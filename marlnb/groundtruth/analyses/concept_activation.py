"""concept_activation: whose driven logits the concept moves, by the derivative in each agent's last hidden layer.

concept_score reads the share of steps at which a logit would rise, TCAV itself, as if it were use. It is here to show
what signs alone are worth: in agents that share weights an agent that never has the concept has the readout of the one
that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from marlnb.analysis.concepts.result import ConceptScore
from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding

LEVEL = 0.05
N_RUNS = 20


@analysis("concept_activation")
def moved_agents(case: Case) -> Finding:
    agents: list[str] = []
    for group in case.question.groups:
        found = list(scores(case, group))
        largest = max((max(abs(each.effect), each.follows) for each in found), default=0.0)
        least = max(case.floor(group), case.question.smallest * largest)
        level = LEVEL / len(case.outputs[group])
        agents += [score.agent for score in found if score.moves(least, level)]
    return case.finding("concept_activation", ("agents",), [Claim("agents", agents=tuple(dict.fromkeys(agents)))])


@analysis("concept_score")
def sensitive_agents(case: Case) -> Finding:
    every = [score for group in case.question.groups for score in scores(case, group)]
    agents = tuple(dict.fromkeys(score.agent for score in every if score.p_holm < LEVEL))
    return case.finding("concept_score", ("agents",), [Claim("agents", agents=agents)])


@lru_cache(maxsize=4)
def scores(case: Case, group: str) -> tuple[ConceptScore, ...]:
    """Of every agent and driven output; kept, since two analyses read them."""
    return tuple(_scores(case, group))


def _scores(case: Case, group: str) -> Iterator[ConceptScore]:
    label = _binary(case)
    for agent in case.members(group):
        for output in case.outputs[group]:
            try:
                found = concept_activation(
                    case.recording,
                    site=case.hidden_sites(group)[-1],
                    concept=label,
                    to="logit",
                    target=output,
                    agent=agent,
                    n_runs=N_RUNS,
                    policies=case.policies,
                )
            except AnalysisError:  # the layer does not vary, or the logit does not depend on it
                continue
            yield from found.scores


def _binary(case: Case) -> np.ndarray:
    """The concept above its median, or its last class, `[row]` or `[row, agent]`."""
    values = case.recording.label(case.question.concept).to_numpy()
    if case.question.kind == "classes":
        return np.asarray(values == values.max())
    return np.asarray(values > np.median(values))
