"""roles: who behaves unlike the others for good, and from which step on an agent behaves unlike before.

In these worlds an agent that does not use the concept always does the same, so who stands apart by behaviour uses it,
and a switch of what an agent does is the step from which its memory holds the concept.
"""

from __future__ import annotations

from marlnb.analysis.representations.roles import roles
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding

N_SHUFFLES = 40


@analysis("roles")
def roles_of(case: Case) -> Finding:
    (group, *others) = case.question.groups
    if others:
        return case.finding("roles", (), [])  # agents with different actions, whose behaviour cannot be compared
    try:
        whole = roles(case.recording, n_shuffles=N_SHUFFLES)
    except AnalysisError:  # nothing varies between the agents
        return case.finding("roles", ("agents", "onset"), [])
    apart = [team[0] for team in whole.teams if len(team) == 1] if whole.teams_found else []
    claims = [Claim("agents", agents=tuple(apart))]
    if apart and case.question.onset:
        claims += _switches(case, group, apart)
    return case.finding("roles", ("agents", "onset"), claims)


def _switches(case: Case, group: str, apart: list[str]) -> list[Claim]:
    """For each agent the first step of an episode at which its role is another than at the first."""
    found = roles(case.recording, window=1, n_shuffles=N_SHUFFLES)
    if not found.states_clustering.structured:
        return []
    claims = []
    for agent in apart:
        mine = found.agent_index == found.agents.index(agent)
        steps = []
        for episode in sorted(set(found.episode[mine].tolist())):
            here = mine & (found.episode == episode)
            t, role = found.t[here], found.role[here]
            changed = t[role != role[t.argmin()]]
            if len(changed):
                steps.append((int(episode), int(changed.min())))
        claims.append(Claim("onset", agent=agent, site=case.hidden_sites(group)[-1], steps=tuple(steps)))
    return claims
