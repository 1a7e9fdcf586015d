"""usage: which agents use what decoding finds in their last hidden layer."""

from __future__ import annotations

from marlnb.analysis.decoding import decode
from marlnb.analysis.usage import usage
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding

EPISODES = 40
N_SHUFFLES = 19


@analysis("usage")
def used(case: Case) -> Finding:
    agents = tuple(
        agent
        for group in case.question.groups
        for agent in case.members(group)
        if _uses(case, case.hidden_sites(group)[-1], agent)
    )
    return case.finding("usage", ("agents",), [Claim("agents", agents=agents)])


def _uses(case: Case, site: str, agent: str) -> bool:
    kind = "classification" if case.question.kind == "classes" else "regression"
    try:
        found = decode(
            case.recording,
            site=site,
            label=case.question.concept,
            agent=agent,
            kind="classification" if kind == "classification" else "regression",
            n_shuffles=N_SHUFFLES,
            folds=3,
            progress=False,
        )
    except AnalysisError:  # the layer or the label never varies: there is nothing to use
        return False
    return usage(case.agents, found, agent=agent, episodes=EPISODES).verdict == "used"
