"""The options of an environment that simulators connect to, and the groups of agents that the user describes for it."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal

from marlnb.codec import from_json
from marlnb.config import EnvConfig, option
from marlnb.envs.external.address_file import is_published
from marlnb.envs.external.addresses import UNIX, endings, is_listening
from marlnb.errors import ConfigError
from marlnb.paths import expanded
from marlnb.specs import ActionSpec, EnvFacts, EnvSpec, GroupSpec, ObservationSpec
from marlnb.values import validate

MAX_UNIX_BYTES = 103 - len(".evaluation-99")  # systems take 103 (macOS) or 107 (Linux)


@dataclass(frozen=True, kw_only=True)
class ExternalGroup:
    """Agents of a simulator that share spaces, as the user describes them."""

    agents: int | tuple[str, ...] = option(
        1, help="number of agents, named <group>_0, <group>_1, ...; or a list of their names"
    )
    observation: tuple[int, ...] = option(help="shape of one agent's observation", ge=1)
    dtype: Literal["float32", "uint8"] = option("float32", help="of observations; uint8 for images")
    features: tuple[str, ...] = option((), help="a name for each feature, if observations are flat")
    actions: int | tuple[int, ...] = option((), help="choices of a discrete action, or of each of its components", ge=1)
    low: tuple[float, ...] = option((), help="of each component of a continuous action")
    high: tuple[float, ...] = option((), help="of each component of a continuous action")
    action_names: tuple[str, ...] = option((), help="a name for each choice or component")
    action_mask: bool = option(False, help="whether each request says which choices are allowed")

    def __post_init__(self) -> None:
        validate(self)

    def spec(self, name: str) -> GroupSpec:
        """The spec of group `name` for networks and buffers.

        Raises:
            ConfigError: no actions, or both kinds; no agents; a wrong number of names.
        """
        if bool(self.actions) == bool(self.low or self.high):
            raise ConfigError(f"group {name!r} needs either actions, or low and high; got {self}")
        agents = tuple(f"{name}_{i}" for i in range(self.agents)) if isinstance(self.agents, int) else self.agents
        if not agents:
            raise ConfigError(f"group {name!r} needs at least one agent; got {self.agents!r}")
        if not all(isfinite(bound) for bound in (*self.low, *self.high)):
            raise ConfigError(f"group {name!r} needs finite bounds of actions; got {self.low} to {self.high}")
        if self.action_mask and not self.actions:
            raise ConfigError(f"group {name!r}: an action mask needs discrete actions")
        if not self.actions:
            action = ActionSpec("continuous", low=self.low, high=self.high, names=self.action_names)
        elif isinstance(self.actions, int):
            action = ActionSpec("discrete", n=(self.actions,), names=self.action_names)
        else:
            action = ActionSpec("multi_discrete", n=self.actions, names=self.action_names)
        observation = ObservationSpec(self.observation, self.dtype, self.features)
        return GroupSpec(name, agents, observation, action, self.action_mask)


@dataclass(frozen=True, kw_only=True)
class ExternalOptions(EnvConfig):
    """The options of `external/server`."""

    groups: Mapping[str, ExternalGroup] = option({}, help="the simulator's agents, by group")
    groups_file: str = option("", help="a JSON file that holds the groups instead", effect="reads")
    address: str = option(
        "127.0.0.1:0",
        help="where a run listens: host:port (port 0: a free one) or unix:/path; evaluations listen at another "
        "free port, or at unix:/path.evaluation (several at once: .evaluation-2, ...)",
    )
    address_file: str = option(
        "",
        help="also write address and token to this file (NAME.json; evaluations: NAME.evaluation.json, ...); the run's "
        "folder always has them",
        effect="writes",
    )
    allow_remote: bool = option(
        False, help="listen beyond this machine; the traffic is not encrypted", effect="listens beyond this machine:"
    )
    deadline_s: float = option(5.0, help="how long the others wait for a slow simulator", unit="s", gt=0)
    timeout_s: float = option(600.0, help="how long to wait when no simulator asks; 0: without limit", unit="s", ge=0)
    max_steps: int | None = option(None, help="truncates longer episodes", unit="requests", ge=1, le=1_000_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.groups) == bool(self.groups_file):
            raise ConfigError(
                f"{self.name} needs groups, for example groups.player.observation=[4] "
                "groups.player.actions=3, or a groups_file"
            )
        for name, group in self.groups.items():
            group.spec(name)
        if self.address.startswith(UNIX):
            self._check_unix_path()
            return
        host, _, port = self.address.rpartition(":")
        if not host or not (port.isdecimal() and len(port) <= 5 and int(port) < 2**16):
            raise ConfigError(f"{self.name}.address must be host:port or unix:/path; got {self.address!r}")
        if not self.allow_remote and not _is_loopback(host.strip("[]")):
            raise ConfigError(
                f"{self.name}.address {self.address!r} can be reached from other machines, and the traffic is not "
                "encrypted; if this is intended, set allow_remote=true"
            )

    def _check_unix_path(self) -> None:
        path = re.sub(r"\.evaluation(-\d+)?$", "", self.address[len(UNIX) :])
        if (size := len(os.fsencode(path))) > MAX_UNIX_BYTES:
            raise ConfigError(
                f"{self.name}.address has a path of {size} bytes; at most {MAX_UNIX_BYTES}, so that the system also "
                "takes the addresses of evaluations, such as .evaluation-2 after it"
            )

    @property
    def facts(self) -> EnvFacts:
        return EnvFacts(max_steps=self.max_steps, groups=tuple(self.groups))

    def spec(self) -> EnvSpec:
        """What the simulator's agents observe and do.

        Raises:
            ConfigError: the groups' file cannot be read or used.
        """
        groups = self.groups or self._groups_in_file()
        specs = tuple(group.spec(name) for name, group in groups.items())
        return EnvSpec(self.name, specs, max_steps=self.max_steps, simultaneous=False, pauses=True)

    def standalone(self) -> ExternalOptions:
        """The options with the groups instead of their file, and with the address file's path in full.

        Raises:
            ConfigError: the groups' file cannot be read or used.
        """
        file = "" if self.address_path is None else str(self.address_path)
        return replace(self, groups=self.groups or self._groups_in_file(), groups_file="", address_file=file)

    @property
    def address_path(self) -> Path | None:
        """Of the address file, in full; None if there is none."""
        return expanded(self.address_file).absolute() if self.address_file else None

    def for_evaluation(self) -> ExternalOptions:
        """The options of another environment than the training's, with an address and an address file that are free."""
        candidates = (self._ending_in(f".evaluation{ending}") for ending in endings())
        return next(options for options in candidates if not options._is_in_use())

    def _ending_in(self, ending: str) -> ExternalOptions:
        at_path, file = self.address.startswith(UNIX), Path(self.address_file)
        return replace(
            self,
            address=f"{self.address}{ending}" if at_path else f"{self.address.rpartition(':')[0]}:0",
            address_file=str(file.with_stem(f"{file.stem}{ending}")) if self.address_file else "",
        )

    def _is_in_use(self) -> bool:
        at_path = self.address.startswith(UNIX) and is_listening(self.address)
        return at_path or (self.address_path is not None and is_published(self.address_path))

    def _groups_in_file(self) -> dict[str, ExternalGroup]:
        try:
            content: Any = json.loads(expanded(self.groups_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the groups in {self.groups_file}: {error}") from error
        if not isinstance(content, dict) or not content:
            raise ConfigError(f"{self.groups_file} must hold groups by name; got {str(content)[:80]}")
        path = self.groups_file
        return {name: from_json(group, ExternalGroup, f"{path}: {name}") for name, group in content.items()}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def max_request_bytes(spec: EnvSpec) -> int:
    """The largest number of array bytes in a valid request: every agent's observation and mask twice."""
    sizes = {"float32": 4, "int64": 8, "uint8": 1}
    return sum(
        2 * group.n_agents * (prod(group.observation.shape) * sizes[group.observation.dtype] + group.action.n_logits)
        for group in spec.groups
    )
