"""intervene: episodes with each agent's last hidden layer held at its mean; whose actions change uses what is in it."""

from __future__ import annotations

from marlnb.analysis.interventions.intervene import intervene
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding
from marlnb.models.hooks.edits import Ablate

EPISODES = 32
NEGLIGIBLE = 0.02
"""Total variation between action distributions at the same moments that one would not call use."""


@analysis("intervene")
def agents_that_change(case: Case) -> Finding:
    agents = tuple(
        agent
        for group in case.question.groups
        for agent in case.members(group)
        if _moves(case, case.hidden_sites(group)[-1], agent)
    )
    return case.finding("intervene", ("agents",), [Claim("agents", agents=agents)])


def _moves(case: Case, site: str, agent: str) -> bool:
    edit = Ablate(site, agents=(agent,), value="mean", source=str(case.recording.path))
    found = intervene(case.agents, edit, episodes=EPISODES)
    (arm,) = found.arms
    (effect,) = [effect for effect in arm.effects if effect.outcome == "tv_direct" and effect.who == agent]
    return effect.low > NEGLIGIBLE
