"""Offline: variables that keep a batch job from reaching for the internet, which compute nodes rarely have.

Without them a logger or a hub of weights waits minutes for a server that never answers, job after job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marlnb.batch.profile import Profile

WHY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "WANDB_MODE": ("offline", "Weights & Biases writes to the run's folder; `marlnb sync` uploads it later"),
        "HF_HUB_OFFLINE": ("1", "huggingface_hub uses what is cached and fails at once for what is not"),
        "TRANSFORMERS_OFFLINE": ("1", "transformers older than the variable above heed this one"),
        "HF_DATASETS_OFFLINE": ("1", "datasets older than the variable above heed this one"),
        "HF_HUB_DISABLE_TELEMETRY": ("1", "huggingface_hub and gradio send no counts of use"),
        "NEPTUNE_MODE": ("offline", "Neptune writes to a folder; `neptune sync` uploads it later"),
        "MLFLOW_DISABLE_TELEMETRY": ("true", "MLflow sends no counts of use"),
        "PIP_NO_INDEX": ("1", "`%pip install` fails at once instead of trying for minutes; folders of wheels work"),
        "PIP_DISABLE_PIP_VERSION_CHECK": ("1", "pip does not look for a newer pip"),
        "UV_OFFLINE": ("1", "uv uses its cache and fails at once for what is not in it"),
        "CONDA_OFFLINE": ("true", "conda uses its cache and fails at once for what is not in it"),
        "GIT_TERMINAL_PROMPT": ("0", "git fails at once instead of asking for a password that nobody can type"),
    }
)
OFFLINE_VARIABLES: Mapping[str, str] = MappingProxyType({name: value for name, (value, _) in WHY.items()})


def job_environment(profile: Profile) -> dict[str, str]:
    """The variables of a profile's jobs: its own, and before them the offline ones unless it says `offline: false`.

    What the user has set, in the profile or in the shell that submits, is never replaced.
    """
    if not profile.offline:
        return dict(profile.environment)
    ours = {name: value for name, value in OFFLINE_VARIABLES.items() if name not in os.environ}
    return {**ours, **profile.environment}
