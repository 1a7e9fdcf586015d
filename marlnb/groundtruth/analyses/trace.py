"""trace: observations exchanged between episodes, and every site of every agent restored in its turn; where that
brings the actions back, the circuit runs through."""

from __future__ import annotations

from marlnb.analysis.interventions.tracing import trace
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding
from marlnb.models.hooks.edits_channel import PermuteChannel

EPISODES = 24
SPAN = 4
SMALLEST = 0.1
"""Share of the corruption's effect, summed over the restored windows, from which on a line is named."""


@analysis("trace")
def carriers(case: Case) -> Finding:
    found = trace(
        case.agents,
        PermuteChannel(case.question.groups[0], units=("*",)),
        outcome="actions",
        sites=[site for group in case.question.groups for site in case.hidden_sites(group)],
        span=SPAN,
        episodes=EPISODES,
    )
    shares = found.recovered.sum(1)
    named = tuple((a, s) for a, s, share in zip(found.agents, found.sites, shares) if share > SMALLEST)
    agents = tuple(dict.fromkeys(agent for agent, _ in named))
    return case.finding("trace", ("agents", "sites"), [Claim("sites", sites=named), Claim("agents", agents=agents)])
