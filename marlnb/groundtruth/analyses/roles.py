"""roles: who behaves unlike the others for good, and from which step on an agent behaves unlike before.

In these worlds an agent that does not use the concept always does the same, so who stands apart by behaviour uses it,
and a switch of what an agent does is the step from which its memory holds the concept.
"""

from __future__ import annotations

from marlnb.analysis.representations.roles import roles
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, OnsetClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding

N_SHUFFLES = 40


@analysis("roles")
def roles_of(instance: Instance) -> Finding:
    (group, *others) = instance.task.groups
    if others:
        return instance.finding("roles", (), [])  # agents with different actions, whose behaviour cannot be compared
    try:
        whole = roles(instance.recording, n_shuffles=N_SHUFFLES)
    except AnalysisError:  # nothing varies between the agents
        return instance.finding("roles", ("agents", "onset"), [])
    apart = [team[0] for team in whole.teams if len(team) == 1] if whole.has_teams else []
    claims: list[Claim] = [AgentsClaim(agents=tuple(apart))]
    if apart and instance.task.onset:
        claims += _switches(instance, group, apart)
    return instance.finding("roles", ("agents", "onset"), claims)


def _switches(instance: Instance, group: str, apart: list[str]) -> list[Claim]:
    """For each agent the first step of an episode at which its role is another than at the first."""
    result = roles(instance.recording, window=1, n_shuffles=N_SHUFFLES)
    if not result.states_clustering.structured:
        return []
    claims: list[Claim] = []
    for agent in apart:
        mine = result.agent_index == result.agents.index(agent)
        steps = []
        for episode in sorted(set(result.episode[mine].tolist())):
            here = mine & (result.episode == episode)
            t, role = result.t[here], result.role[here]
            changed = t[role != role[t.argmin()]]
            if len(changed):
                steps.append((int(episode), int(changed.min())))
        claims.append(OnsetClaim(agent=agent, site=instance.hidden_sites(group)[-1], steps=tuple(steps)))
    return claims
