"""intervene: mean-ablates each agent's last hidden layer. An agent whose actions change uses the layer."""

from __future__ import annotations

from marlnb.analysis.interventions.intervene import intervene
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.edits import Ablate

EPISODES = 32
NEGLIGIBLE = 0.02
"""Total variation distance between action distributions at the same steps; smaller effects do not count as use."""


@analysis("intervene")
def agents_that_change(instance: Instance) -> Finding:
    agents = tuple(agent for agent, site in instance.last_pairs() if _moves(instance, site, agent))
    return instance.finding("intervene", ("agents",), [AgentsClaim(agents=agents)])


def _moves(instance: Instance, site: str, agent: str) -> bool:
    edit = Ablate(site, agents=(agent,), value="mean", source=str(instance.recording.path))
    (arm,) = intervene(instance.agents, edit, episodes=EPISODES, progress=False).arms
    (effect,) = [effect for effect in arm.effects if effect.outcome == "tv_direct" and effect.who == agent]
    return effect.low > NEGLIGIBLE
