"""Small parameters of notebooks, by name: what is trained with them is not good, and nothing is promised of it."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "quickstart": {  # with a seed other than 0 it prints that a result is not reproduced, and continues
        "seed": 1,
        "frames": 3200,
        "record_episodes": 24,
        "stopping_episodes": 12,
        "evaluation_episodes": 12,
        "n_shuffles": 1,
    },
    "own_environments": {},
    "choose_and_compare": {"algorithms": ["vdn", "qmix"], "seeds": [0]},  # IQL finds what VDN does
    "look_inside": {"episodes": 60},
    "does_the_listener_listen": {
        "episodes": 50,
        "traced_episodes": 16,
        "traced_every": 12,
        "n_random_directions": 9,
        "n_shuffles": 1,
    },
}
