"""trace: observations exchanged between episodes, and every site of every agent restored in its turn; where that
brings the actions back, the circuit runs through."""

from __future__ import annotations

from marlnb.analysis.interventions.tracing import trace
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, SitesClaim
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.edits_channel import PermuteChannel

EPISODES = 24
SPAN = 4
SMALLEST = 0.1
"""Share of the corruption's effect, summed over the restored windows, from which on a line is named."""


@analysis("trace")
def carriers(instance: Instance) -> Finding:
    found = trace(
        instance.agents,
        PermuteChannel(instance.task.groups[0], units=("*",)),
        outcome="actions",
        sites=[site for group in instance.task.groups for site in instance.hidden_sites(group)],
        span=SPAN,
        episodes=EPISODES,
    )
    shares = found.recovered.sum(1)
    named = tuple((a, s) for a, s, share in zip(found.agents, found.sites, shares) if share > SMALLEST)
    agents = tuple(dict.fromkeys(agent for agent, _ in named))
    return instance.finding("trace", ("agents", "sites"), [SitesClaim(sites=named), AgentsClaim(agents=agents)])
