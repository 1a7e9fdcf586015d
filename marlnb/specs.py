"""Specs of an environment: its groups of agents, their observations and actions, the global state and labels.

Plain frozen data without torch, shared by worker processes, the command's help and the header of recordings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal

from marlnb.display.spec_text import group_html, group_text, spec_html, spec_text
from marlnb.errors import ConfigError, EnvError, unknown

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

ActionKind = Literal["discrete", "multi_discrete", "continuous"]
SEED_SPAN = 2**31  # every seed is in [0, SEED_SPAN)
RESERVED_NAMES = ("next", "done", "is_init", "paused", "state", "t", "env_id", "episode")
"""Fields of rollouts and recordings, which no group of agents can be named."""


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed in `[0, 2**31)` for one purpose, for example `derive_seed(0, "learner", "agent")`."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") % SEED_SPAN


@dataclass(frozen=True)
class ObservationSpec:
    """One agent's observation.

    Attributes:
        shape: `[*shape]`.
        dtype: numpy's name.
        names: one per feature of a flat observation; may be empty.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.names and len(self.names) != self.size:
            raise ConfigError(f"got {len(self.names)} feature names for {self.size} features; give one for each")

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class ActionSpec:
    """One agent's action.

    Attributes:
        kind: discrete: int64 `[env, agent]` in `[0, n[0])`. multi_discrete: int64 `[env, agent, component]`, component
            k in `[0, n[k])`. continuous: float32 `[env, agent, component]` in `[low, high]`, in the env's own units.
        n: number of choices of each discrete component.
        low: lower bound of each continuous component.
        high: upper bound of each continuous component.
        names: one per choice or component, of several discrete components one per component or one per choice of all;
            may be empty.
    """

    kind: ActionKind
    n: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "continuous":
            if not self.low or len(self.low) != len(self.high) or any(a >= b for a, b in zip(self.low, self.high)):
                raise ConfigError(f"continuous actions need low < high for each component; got {self.low}, {self.high}")
        elif not self.n or min(self.n) < 1 or (self.kind == "discrete" and len(self.n) != 1):
            raise ConfigError(f"{self.kind} actions need a positive number of choices; got n={self.n}")
        valid = [self.n_components] if self.kind == "continuous" else [self.n_logits]
        if self.kind == "multi_discrete":
            valid.append(self.n_components)
        if self.names and len(self.names) not in valid:
            what = "components" if self.kind == "continuous" else "choices"
            expected = f"{valid[0]} {what}" + "".join(f" or {n} components" for n in valid[1:])
            raise ConfigError(f"got {len(self.names)} action names for {expected}; give one for each")

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes that one agent's action adds to `[env, agent]`."""
        return () if self.kind == "discrete" else (self.n_components,)

    @property
    def n_components(self) -> int:
        return len(self.low) if self.kind == "continuous" else len(self.n)

    @property
    def component_names(self) -> tuple[str, ...]:
        """One per component of a continuous or multi-discrete action: its name, or its number."""
        if len(self.names) == self.n_components and self.kind != "discrete":
            return self.names
        return tuple(map(str, range(self.n_components)))

    @property
    def n_logits(self) -> int:
        """Distribution parameters that a discrete policy outputs: choices summed over components."""
        return sum(self.n)

    @property
    def dtype(self) -> str:
        return "float32" if self.kind == "continuous" else "int64"


@dataclass(frozen=True, repr=False)
class GroupSpec:
    """Agents that share spaces, policy and algorithm.

    Attributes:
        name: of the group.
        agents: in the order of every agent axis.
        observation: of each agent.
        action: of each agent.
        has_action_mask: whether steps contain an action mask for this group.
    """

    name: str
    agents: tuple[str, ...]
    observation: ObservationSpec
    action: ActionSpec
    has_action_mask: bool = False

    def __repr__(self) -> str:
        return group_text(self)

    def _repr_html_(self) -> str:
        return group_html(self)

    @property
    def n_agents(self) -> int:
        return len(self.agents)


InputRole = Literal["observation", "state", "action"]


@dataclass(frozen=True)
class InputSpec:
    """A network's input for each agent: parts of these shapes, flattened and concatenated.

    An actor reads one part, its observation. A centralised critic reads one part per agent's observation, in the order
    of `EnvSpec.agents`, then the state if there is one, then the actions if it evaluates them.

    Attributes:
        parts: their shapes.
        context: number of features after the parts that identify the agent; they belong to no entity or image.
        roles: what each part is; empty: all are observations.
    """

    parts: tuple[tuple[int, ...], ...]
    context: int = 0
    roles: tuple[InputRole, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each part."""
        return tuple(prod(part) for part in self.parts)

    @property
    def features(self) -> int:
        """Number of all features, including the context."""
        return sum(self.sizes) + self.context


@dataclass(frozen=True)
class LabelSpec:
    """A concept that an environment can compute at each step.

    Attributes:
        name: of the label.
        group: the values are `[env, agent]` of this group; None: `[env]`.
        classes: names of an int64 label's values 0, 1, ...; empty for a float32 quantity.
    """

    name: str
    group: str | None = None
    classes: tuple[str, ...] = ()

    def check_classes(self, values: np.ndarray | Tensor) -> None:
        """Raises EnvError if a value of a label with classes, `[...]`, is not the index of a class."""
        n = len(self.classes)
        if not n or not len(values):
            return
        for value in (values.min(), values.max()):
            if not 0 <= value < n:
                raise EnvError(
                    f"the environment's label {self.name!r} is {value.item()}; valid: 0 to {n - 1}, the index of one "
                    f"of {list(self.classes)}"
                )


@dataclass(frozen=True, repr=False)
class EnvSpec:
    """Everything that networks, buffers and files need to know about an environment.

    Attributes:
        name: as registered.
        groups: of agents.
        state_shape: the global state is `[env, *state_shape]`; None if the environment has none.
        max_steps: steps after which an episode is truncated; None: no limit.
        labels: that the environment can compute.
        simultaneous: whether every living agent acts at every step; False if agents take turns.
        pauses: whether an env is paused in steps in which none of its agents acts, as without a player. False if such
            steps are part of the game.
    """

    name: str
    groups: tuple[GroupSpec, ...]
    state_shape: tuple[int, ...] | None = None
    max_steps: int | None = None
    labels: tuple[LabelSpec, ...] = field(default=())
    simultaneous: bool = True
    pauses: bool = False

    def __post_init__(self) -> None:
        names = [agent for group in self.groups for agent in group.agents]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"{self.name}: each agent must be in one group; got {names}")

    def __repr__(self) -> str:
        return spec_text(self)

    def _repr_html_(self) -> str:
        return spec_html(self)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(agent for group in self.groups for agent in group.agents)

    def group(self, name: str) -> GroupSpec:
        for group in self.groups:
            if group.name == name:
                return group
        raise ConfigError(unknown(f"group of {self.name}", name, self.group_names))

    def group_of(self, agent: str) -> GroupSpec:
        for group in self.groups:
            if agent in group.agents:
                return group
        raise ConfigError(unknown(f"agent in {self.name}", agent, self.agents))


@dataclass(frozen=True)
class EnvFacts:
    """What is known about an environment from its options alone, before it is built; None: not known.

    Attributes:
        batched: True: all envs step at once, as tensors in this process, so that many cost little more than one. False:
            each env steps by itself, in worker processes.
        max_steps: steps after which an episode ends.
        n_agents: number of agents.
        groups: names of the groups of agents; empty: not known.
        rewards_groups_differently: whether groups earn different rewards.
    """

    batched: bool | None = None
    max_steps: int | None = None
    n_agents: int | None = None
    groups: tuple[str, ...] = ()
    rewards_groups_differently: bool | None = None


def group_agents(
    agents: tuple[str, ...], groups: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Agents by group: as the user defines, or by the id convention `<group>_<index>`.

    A "/" in an agent's name becomes a "_" in its group's by convention, since sites are named `<group>/<part>/<layer>`.

    Raises:
        ConfigError: the user's groups miss an agent, name one twice or name an unknown one.
    """
    if groups:
        named = Counter(agent for members in groups.values() for agent in members)
        wrong = sorted(set(named) ^ set(agents)) + sorted(agent for agent, n in named.items() if n > 1)
        if wrong:
            raise ConfigError(f"groups must contain each of {list(agents)} exactly once; wrong: {wrong}")
        return {name: tuple(members) for name, members in groups.items()}
    by_stem: dict[str, list[str]] = {}
    for agent in agents:
        stem, _, index = agent.rpartition("_")
        group = stem if stem and index.isdigit() else agent
        by_stem.setdefault(group.replace("/", "_"), []).append(agent)
    return {name: tuple(members) for name, members in by_stem.items()}


def check_group_names(env: str, names: tuple[str, ...]) -> None:
    """Checks that rollouts, sites and recordings can have groups of agents with these names.

    Args:
        env: the environment's name, for messages.
        names: of its groups.
    Raises:
        ConfigError: a name is reserved, empty or ".", or contains "/", NUL or half of a surrogate pair.
    """
    for name in names:
        is_writable = not any(letter in "/\0" or "\ud800" <= letter <= "\udfff" for letter in name)
        if name in RESERVED_NAMES or name in ("", ".") or not is_writable:
            raise ConfigError(
                f"{env}: a group of agents cannot be named {name!r}: names are not empty, are valid Unicode without "
                f"'/' and NUL, and are none of {', '.join(RESERVED_NAMES)}. Name the groups: "
                "groups.<name>=[<agent>, ...]"
            )
