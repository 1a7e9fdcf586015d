"""EnvSpec as JSON, so that a run folder opens without building its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from marlnb.errors import RunError
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, LabelSpec, ObservationSpec


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """JSON that `spec_from_json` turns into an equal EnvSpec."""
    return asdict(spec)


def spec_from_json(data: Mapping[str, Any]) -> EnvSpec:
    """The EnvSpec that `spec_to_json` wrote.

    Raises:
        RunError: `data` is malformed.
    """
    try:
        state_shape = data["state_shape"]
        return EnvSpec(
            name=data["name"],
            groups=tuple(_group(group) for group in data["groups"]),
            state_shape=None if state_shape is None else tuple(state_shape),
            max_steps=data["max_steps"],
            labels=tuple(LabelSpec(label["name"], label["group"], tuple(label["classes"])) for label in data["labels"]),
            simultaneous=data.get("simultaneous", True),
        )
    except (KeyError, TypeError) as error:
        raise RunError(f"the description of the environment is malformed: {error!r}") from error


def _group(data: Mapping[str, Any]) -> GroupSpec:
    observation, action = data["observation"], data["action"]
    return GroupSpec(
        name=data["name"],
        agents=tuple(data["agents"]),
        observation=ObservationSpec(tuple(observation["shape"]), observation["dtype"], tuple(observation["names"])),
        action=ActionSpec(
            kind=action["kind"],
            n=tuple(action["n"]),
            low=tuple(action["low"]),
            high=tuple(action["high"]),
            names=tuple(action["names"]),
        ),
        has_action_mask=data["has_action_mask"],
    )
