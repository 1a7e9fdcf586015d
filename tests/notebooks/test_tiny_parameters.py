"""Notebooks run to their ends with other parameters, far too small for what they claim: they say so and continue.

`make notebook-test` runs all of them, about two minutes on two idle cores: each notebook starts a kernel and imports
torch. `make test` executes each with other small parameters in its own test; that of the quickstart also sees what the
notebook does not claim with them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.job.execute import execute

FOLDER = Path(__file__).parents[2] / "notebooks"
TINY: dict[str, dict[str, Any]] = {
    "quickstart": {
        "frames": 800,
        "record_episodes": 16,
        "stopping_episodes": 8,
        "evaluation_episodes": 8,
        "n_shuffles": 1,
    },
    "own_environments": {"corridor_frames": 512, "corridor_length": 6, "walker_frames": 128, "episodes": 2},
    "choose_and_compare": {"algorithms": ["qmix"], "seeds": [3], "frames": 768},
    "look_inside": {"episodes": 8, "early": 50},
    "does_the_listener_listen": {
        "episodes": 12,
        "traced_episodes": 4,
        "traced_every": 12,
        "n_random_directions": 2,
        "n_shuffles": 1,
    },
    "dictionary": {"episodes": 12, "n_features": 16, "active": 2, "epochs": 1, "seed": 1},
    "who_knows_what_when": {"checkpoints": [70, 130], "episodes": 20, "n_shuffles": 1, "n_runs": 2},
    "pursuit_roles": {"episodes": 6, "evaluation_episodes": 4, "n_shuffles": 20, "window": 8, "n_units": 3},
    "agents_from_elsewhere": {"episodes": 2, "intervention_episodes": 2, "n_units": 4, "seed": 3},
    "batched_environments": {"n_envs": 4, "frames": 400, "episodes": 10},
    "league": {"frames": 3072, "episodes": 4},
    "evolution": {"frames": 2600, "generation_frames": 400, "episodes": 16, "n_seeds": 1},  # a founder is the fittest
}
REPORTS = ("benchmark", "compare")  # of what other tests make
ALWAYS_TRUE = ("agents_from_elsewhere",)  # what it claims holds even so


def test_every_notebook_has_tiny_parameters() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {*TINY, *REPORTS}


@pytest.mark.skipif(os.environ.get("MARLNB_NOTEBOOK_TESTS") != "1", reason="make notebook-test runs it")
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_modules_forgotten")
@pytest.mark.parametrize("name", TINY)
def test_a_notebook_runs_and_says_what_it_does_not_claim(name: str, tmp_path: Path) -> None:
    executed = execute(FOLDER / f"{name}.ipynb", tmp_path / "run", TINY[name], progress=False)
    cells = nbformat.read(executed, 4).cells
    printed = "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))
    assert name in ALWAYS_TRUE or "not claimed with " in printed
