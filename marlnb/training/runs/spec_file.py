"""EnvSpec as JSON, so that a run folder opens without building its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from marlnb.codec import from_json
from marlnb.errors import ConfigError, RunError
from marlnb.specs import EnvSpec


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """JSON that `spec_from_json` turns into an equal EnvSpec."""
    return asdict(spec)


def spec_from_json(data: Mapping[str, Any]) -> EnvSpec:
    """The EnvSpec that `spec_to_json` wrote.

    Raises:
        RunError: `data` is malformed.
    """
    try:
        return from_json(data, EnvSpec)
    except ConfigError as error:
        raise RunError(f"the description of the environment is malformed: {error}") from error
