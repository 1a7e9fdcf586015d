"""Agents with a planted circuit, as entries of a gallery have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marlnb.galleries.recipe import Circuit
from marlnb.groundtruth.benchmark import run_and_score
from marlnb.groundtruth.instance import analyses
from marlnb.groundtruth.planting import Planted, planted
from marlnb.groundtruth.scoring.score import Score
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents


def planted_agents(circuit: Circuit, folder: Path) -> Agents:
    """The agents of `marlnb.groundtruth.planted`, whose recordings are in a folder's `recordings/`."""
    agents = _planted(circuit).agents
    agents.path = folder
    return agents


def planted_labels(circuit: Circuit) -> dict[str, Any]:
    """The labels that its recordings need besides the environment's."""
    return _planted(circuit).labels


def scored(circuit: Circuit, recording: Recording, analysis: str) -> Score:
    """One of the benchmark's analyses of a recording, compared with the answer key, which it does not see.

    Raises:
        UnknownNameError: there is no such analysis.
    """
    return run_and_score(_planted(circuit), recording, analyses([analysis])[analysis])


def _planted(circuit: Circuit) -> Planted:
    return planted(circuit.circuit, circuit.network, shared=circuit.shared, seed=circuit.seed)
