"""Environment variables that keep a batch job offline, since compute nodes rarely have internet.

Without them a logger or a model hub waits minutes for a server that never answers, in every job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from marlnb.batch.profile import Profile

WHY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "WANDB_MODE": ("offline", "Weights & Biases writes to the run's folder; `marlnb sync` uploads it later"),
        "HF_HUB_OFFLINE": ("1", "huggingface_hub uses its cache and fails at once for anything else"),
        "TRANSFORMERS_OFFLINE": ("1", "transformers before HF_HUB_OFFLINE read this variable"),
        "HF_DATASETS_OFFLINE": ("1", "datasets before HF_HUB_OFFLINE read this variable"),
        "HF_HUB_DISABLE_TELEMETRY": ("1", "huggingface_hub and gradio send no usage statistics"),
        "NEPTUNE_MODE": ("offline", "Neptune writes to a folder; `neptune sync` uploads it later"),
        "MLFLOW_DISABLE_TELEMETRY": ("true", "MLflow sends no usage statistics"),
        "PIP_NO_INDEX": ("1", "`%pip install` fails at once instead of retrying for minutes; local wheels work"),
        "PIP_DISABLE_PIP_VERSION_CHECK": ("1", "pip does not look for a newer pip"),
        "UV_OFFLINE": ("1", "uv uses its cache and fails at once for anything else"),
        "CONDA_OFFLINE": ("true", "conda uses its cache and fails at once for anything else"),
        "GIT_TERMINAL_PROMPT": ("0", "git fails at once instead of asking for a password"),
    }
)
OFFLINE_VARIABLES: Mapping[str, str] = MappingProxyType({name: value for name, (value, _) in WHY.items()})


def job_environment(profile: Profile) -> dict[str, str]:
    """The variables of a profile's jobs: the offline variables, unless `offline: false`, and the profile's own.

    Variables that the user has set, in the profile or in the shell that submits, are never replaced.
    """
    if not profile.offline:
        return dict(profile.environment)
    offline = {name: value for name, value in OFFLINE_VARIABLES.items() if name not in os.environ}
    return {**offline, **profile.environment}
