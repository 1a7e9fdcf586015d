"""Agents with a planted circuit, as entries of a gallery have them."""

from __future__ import annotations

from pathlib import Path

from marlnb.galleries.recipe import Circuit
from marlnb.groundtruth.planting import planted
from marlnb.training.policies.agents import Agents


def planted_agents(circuit: Circuit, folder: Path) -> Agents:
    """The agents of `marlnb.groundtruth.planted`, whose recordings are in a folder's `recordings/`."""
    agents = planted(circuit.circuit, circuit.network, shared=circuit.shared, seed=circuit.seed).agents
    agents.path = folder
    return agents
