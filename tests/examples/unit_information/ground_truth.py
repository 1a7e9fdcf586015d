"""Scores `unit_information` on planted circuits: registration adds it to the ground-truth benchmark."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.results import ALPHA
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import RepresentsClaim
from marlnb.groundtruth.scoring.finding import Finding
from tests.examples.unit_information.analysis import unit_information


@analysis("unit_information")
def informative_units(instance: Instance) -> Finding:
    """The units that carry the concept, over all agents and hidden sites, corrected for their number (Bonferroni)."""
    places = [
        (site, agent)
        for group in instance.task.groups
        for site in instance.hidden_sites(group)
        for agent in instance.members(group)
    ]
    claims = []
    for site, agent in places:
        result = unit_information(
            instance.recording, site=site, label=instance.task.concept, agent=agent, n_shuffles=199
        )
        units = tuple(map(int, np.flatnonzero(result.p_value * len(places) <= ALPHA)))
        if units:
            claims.append(RepresentsClaim(agent=agent, site=site, units=units))
    return instance.finding("unit_information", ("represents",), claims)
