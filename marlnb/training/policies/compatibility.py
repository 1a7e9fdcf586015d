"""Whether policies trained in one environment can act in another."""

from __future__ import annotations

from typing import Any

from marlnb.errors import ConfigError
from marlnb.specs import EnvSpec, GroupSpec


def check_fit(trained: EnvSpec, other: EnvSpec) -> None:
    """Raises ConfigError if policies trained in one environment cannot act in the other."""
    if set(trained.group_names) != set(other.group_names):
        raise ConfigError(
            f"{other.name} has the groups {sorted(other.group_names)}; "
            f"the run was trained on {trained.name} with the groups {sorted(trained.group_names)}"
        )
    for group in trained.groups:
        check_group_fit(group, trained.name, other.group(group.name), other.name)


def check_group_fit(trained: GroupSpec, trained_on: str, other: GroupSpec, where: str) -> None:
    """Raises ConfigError if a policy trained for one group, in `trained_on`, cannot act for the other, in `where`."""
    expected, actual = _interface(trained), _interface(other)
    for what, value in expected.items():
        if actual[what] != value:
            raise ConfigError(
                f"group {other.name!r} of {where} has {what} {actual[what]}; "
                f"the run was trained on {trained_on} with {value}"
            )


def _interface(group: GroupSpec) -> dict[str, Any]:
    action = group.action
    return {
        "agents": group.n_agents,
        "observation shape": tuple(group.observation.shape),
        "action kind": action.kind,
        "action choices": tuple(action.n),
        "action range": (tuple(action.low), tuple(action.high)),
    }
