"""roles: which agent behaves differently from the others, and at which step an agent's behavior changes.

In these environments an agent that does not use the concept never changes its behavior. So an agent with a role of its
own uses the concept. Its memory holds the concept from the step at which its role switches.
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
    (group, *other_groups) = instance.task.groups
    if other_groups:
        return instance.finding("roles", (), [])  # agents with different actions cannot be compared
    try:
        whole = roles(instance.recording, n_shuffles=N_SHUFFLES)
    except AnalysisError:  # the agents do not differ
        return instance.finding("roles", ("agents", "onset"), [])
    singled_out = [team[0] for team in whole.teams if len(team) == 1] if whole.has_teams else []
    claims: list[Claim] = [AgentsClaim(agents=tuple(singled_out))]
    if singled_out and instance.task.onset:
        claims += _switches(instance, group, singled_out)
    return instance.finding("roles", ("agents", "onset"), claims)


def _switches(instance: Instance, group: str, singled_out: list[str]) -> list[Claim]:
    """By agent and episode: the first step whose role differs from the initial role."""
    result = roles(instance.recording, window=1, n_shuffles=N_SHUFFLES)
    if not result.states_clustering.structured:
        return []
    claims: list[Claim] = []
    for agent in singled_out:
        of_agent = result.agent_index == result.agents.index(agent)
        steps = []
        for episode in sorted(set(result.episode[of_agent].tolist())):
            in_episode = of_agent & (result.episode == episode)
            t, role = result.t[in_episode], result.role[in_episode]
            changed = t[role != role[t.argmin()]]
            if len(changed):
                steps.append((int(episode), int(changed.min())))
        claims.append(OnsetClaim(agent=agent, site=instance.hidden_sites(group)[-1], steps=tuple(steps)))
    return claims
