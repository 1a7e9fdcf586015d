"""trace: exchanges observations between episodes, then restores each site of each agent.

Sites that restore the actions belong to the circuit.
"""

from __future__ import annotations

from marlnb.analysis.interventions.tracing import trace
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, SitesClaim
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.edits_channel import PermuteChannel

EPISODES = 24
SPAN = 4
MIN_SHARE = 0.1
"""Minimal share of the corruption's effect that a site recovers, summed over the restored windows."""


@analysis("trace")
def carriers(instance: Instance) -> Finding:
    result = trace(
        instance.agents,
        PermuteChannel(instance.task.groups[0], units=("*",)),
        outcome="actions",
        sites=[site for group in instance.task.groups for site in instance.hidden_sites(group)],
        span=SPAN,
        progress=False,
        episodes=EPISODES,
    )
    shares = result.recovered.sum(1)
    selected = tuple((a, s) for a, s, share in zip(result.agents, result.sites, shares) if share > MIN_SHARE)
    agents = tuple(dict.fromkeys(agent for agent, _ in selected))
    return instance.finding("trace", ("agents", "sites"), [SitesClaim(sites=selected), AgentsClaim(agents=agents)])
