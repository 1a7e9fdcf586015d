"""concept_activation: TCAV of the driven logits towards the concept, in each agent's last hidden layer.

It asks how an output would change along the concept's direction. In agents that share weights an agent that never has
the concept has the same readout as the one that uses it: what would happen there never does.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.concepts import concept_activation
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding

LEVEL = 0.05
N_RUNS = 20


@analysis("concept_activation")
def sensitive_agents(case: Case) -> Finding:
    agents: list[str] = []
    for group in case.question.groups:
        label = _binary(case, group)
        for agent in case.members(group):
            if any(_sensitive(case, group, agent, output, label) for output in case.outputs[group]):
                agents.append(agent)
    return case.finding("concept_activation", ("agents",), [Claim("agents", agents=tuple(agents))])


def _binary(case: Case, group: str) -> np.ndarray:
    """The concept above its median, or its last class, `[row]` or `[row, agent]`."""
    values = case.recording.label(case.question.concept).to_numpy()
    if case.question.kind == "classes":
        return np.asarray(values == values.max())
    return np.asarray(values > np.median(values))


def _sensitive(case: Case, group: str, agent: str, output: int, label: np.ndarray) -> bool:
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
        return False
    (score,) = found.scores
    return score.p_holm < LEVEL
