"""The options of an environment whose simulators connect to it, and the groups that the user describes for it."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Literal

from marlnb.codec import from_json
from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.errors import ConfigError
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.values import validate

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

UNIX = "unix:"


@dataclass(frozen=True, kw_only=True)
class ExternalGroup:
    """Agents of a simulator that share spaces, as the user tells them."""

    agents: int | tuple[str, ...] = option(1, help="how many, named <group>_0 and on; or their names")
    observation: tuple[int, ...] = option(help="shape of one agent's observation", ge=1)
    dtype: Literal["float32", "uint8"] = option("float32", help="of observations; uint8 for images")
    features: tuple[str, ...] = option((), help="a name for each feature, where observations are flat")
    actions: int | tuple[int, ...] = option((), help="choices of a discrete action, or of each of its components", ge=1)
    low: tuple[float, ...] = option((), help="of each component of a continuous action")
    high: tuple[float, ...] = option((), help="of each component of a continuous action")
    action_names: tuple[str, ...] = option((), help="a name for each choice or component")
    action_mask: bool = option(False, help="whether each request says which choices are allowed")

    def __post_init__(self) -> None:
        validate(self)

    def spec(self, name: str) -> GroupSpec:
        """What the group `name` is to networks and buffers.

        Raises:
            ConfigError: no actions, or both kinds; no agents; names that are not one for each.
        """
        if bool(self.actions) == bool(self.low or self.high):
            raise ConfigError(f"group {name!r} needs either actions, or low and high; got {self}")
        if isinstance(self.agents, int) and self.agents < 1:
            raise ConfigError(f"group {name!r} needs at least one agent; got {self.agents}")
        agents = (
            tuple(f"{name}_{index}" for index in range(self.agents)) if isinstance(self.agents, int) else self.agents
        )
        if not agents:
            raise ConfigError(f"group {name!r} needs at least one agent; got none")
        if not all(isfinite(bound) for bound in (*self.low, *self.high)):
            raise ConfigError(f"group {name!r} needs finite bounds of actions; got {self.low} to {self.high}")
        if self.action_mask and not self.actions:
            raise ConfigError(f"group {name!r}: an action mask needs discrete actions")
        observation = ObservationSpec(self.observation, self.dtype, self.features)
        return GroupSpec(name, agents, observation, self._action(), self.action_mask)

    def _action(self) -> ActionSpec:
        if not self.actions:
            return ActionSpec("continuous", low=self.low, high=self.high, names=self.action_names)
        if isinstance(self.actions, int):
            return ActionSpec("discrete", n=(self.actions,), names=self.action_names)
        return ActionSpec("multi_discrete", n=self.actions, names=self.action_names)


@ENVIRONMENTS.register("external/server")
@dataclass(frozen=True, kw_only=True)
class ExternalConfig(EnvConfig):
    """Simulators in other processes, which connect and ask for actions: each episode of theirs fills one copy."""

    groups: Mapping[str, ExternalGroup] = option({}, help="the simulator's agents, by group")
    groups_file: str = option("", help="a JSON file that holds the groups instead")
    address: str = option("127.0.0.1:0", help="where to listen: host:port (port 0: a free one) or unix:/path")
    address_file: str = option("", help="also write address and token here; a run's folder holds them anyway")
    allow_remote: bool = option(False, help="listen beyond this machine; nothing that travels is encrypted")
    deadline_s: float = option(5.0, help="how long the others wait for a slow simulator", unit="s", gt=0)
    timeout_s: float = option(600.0, help="how long to wait when no simulator asks; 0: for ever", unit="s", ge=0)
    max_steps: int | None = option(None, help="truncates longer episodes", unit="requests", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.groups) == bool(self.groups_file):
            raise ConfigError(
                f"{self.name} needs groups, as groups.player.observation=[4] groups.player.actions=3, or a groups_file"
            )
        for name, group in self.groups.items():
            group.spec(name)
        self._check_address()

    def spec(self) -> EnvSpec:
        """What the simulator's agents see and do.

        Raises:
            ConfigError: the groups' file cannot be read or used.
        """
        groups = tuple(group.spec(name) for name, group in self._groups().items())
        return EnvSpec(self.name, groups, max_steps=self.max_steps, simultaneous=False)

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` places for simulators' episodes, listening.

        Raises:
            ConfigError: the groups' file cannot be read or used.
            EnvError: the address cannot be listened at.
        """
        from marlnb.envs.external.env import ExternalEnv

        return ExternalEnv(self, n_envs, device)

    def _groups(self) -> Mapping[str, ExternalGroup]:
        if not self.groups_file:
            return self.groups
        try:
            with open(self.groups_file, encoding="utf-8") as file:
                found: Any = json.load(file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the groups in {self.groups_file}: {error}") from error
        if not isinstance(found, dict) or not found:
            raise ConfigError(f"{self.groups_file} must hold groups by name; got {str(found)[:80]}")
        return {name: from_json(group, ExternalGroup, f"{self.groups_file}: {name}") for name, group in found.items()}

    def _check_address(self) -> None:
        if self.address.startswith(UNIX):
            return
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"{self.name}.address must be host:port or unix:/path; got {self.address!r}")
        if not self.allow_remote and not _is_loopback(host.strip("[]")):
            raise ConfigError(
                f"{self.name}.address {self.address!r} can be reached from other machines, and nothing that travels is "
                "encrypted; if that is meant, allow_remote=true"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def request_bytes(spec: EnvSpec) -> int:
    """The most array bytes that a well-formed request can hold: every agent's observation twice, and masks."""
    sizes = {"float32": 4, "int64": 8, "uint8": 1}
    return sum(
        group.n_agents * (2 * prod(group.observation.shape) * sizes[group.observation.dtype] + group.action.n_logits)
        for group in spec.groups
    )
