"""Where environments come from, what they tell about their agents, and how each agent's spaces are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marlnb.envs.constructor_errors import construct
from marlnb.envs.workers.api import RESET, check_reset
from marlnb.envs.workers.spaces import MASK, ActionCodec, ObservationCodec, action_codec, observation_codec
from marlnb.envs.workers.turn_based import AsynchronousParallel, AECAsParallel, TurnBasedEnv
from marlnb.errors import ConfigError, EnvBuildError
from marlnb.imports import load_object, hidden_by
from marlnb.specs import EnvSpec, GroupSpec, group_agents

_PACKAGES = {"shimmy": "shimmy open_spiel", "pyspiel": "open_spiel"}  # by module, where they have other names


@dataclass(frozen=True)
class EnvSource:
    """All that a process needs in order to build its copies.

    Attributes:
        constructor: "module:function", or a function that returns a ParallelEnv or an AECEnv.
        agents_wait: an agent of a ParallelEnv that is missing from a step waits, unless it was said to have ended.
        stock: step the environment through its own `step`, never by a shorter way.
    """

    name: str
    constructor: str | Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_steps: int | None = None
    state: bool = False
    render: bool = False
    agents_wait: bool = False
    stock: bool = False

    def make(self) -> Any:
        """A new ParallelEnv, or one whose agents wait for one another made to look like it.

        Raises:
            EnvBuildError: it cannot be imported or built, or is no environment of PettingZoo's.
        """
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "hide")
        kwargs = dict(self.kwargs)
        if self.render:
            kwargs.setdefault("render_mode", "rgb_array")
        constructor = self._found()
        env = self._constructed(constructor, kwargs)
        missing = [name for name in ("possible_agents", "reset", "step") if not hasattr(env, name)]
        if missing:
            raise EnvBuildError(
                f"{self.name}: a ParallelEnv or an AECEnv with possible_agents is needed; its constructor returned "
                f"{type(env).__name__} without {missing}"
            )
        if hasattr(env, "agent_iter"):
            return AECAsParallel(env, self.stock)
        return AsynchronousParallel(env) if self.agents_wait else env

    def _constructed(self, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return construct(self.name, constructor, kwargs)
        except EnvBuildError as error:
            if self.render and "render_mode" not in self.kwargs and "keyword argument 'render_mode'" in str(error):
                raise EnvBuildError(
                    f"{self.name}: render=True (env.render=true) builds it with render_mode='rgb_array', which its "
                    "constructor does not take; give it an argument render_mode, or leave render out"
                ) from error
            if (lacking := _lacking(error.__cause__)) is not None:
                remedy = f"pip install {_PACKAGES.get(lacking, lacking)}"
                raise EnvBuildError(f"{self.name} needs {lacking!r}, which is not installed: {remedy}") from error
            raise

    def _found(self) -> Callable[..., Any]:
        if callable(self.constructor):
            return self.constructor
        try:
            found = load_object(self.constructor)
        except ConfigError as error:
            hidden = hidden_by(self.constructor.partition(".")[0]) is not None
            remedy = "" if hidden else _remedy(self.constructor)
            raise EnvBuildError(f"{self.name}: {error}{remedy}") from error
        if not callable(found):
            raise EnvBuildError(
                f"{self.name}: a function or class that makes an environment is needed; {self.constructor} is {found!r}"
            )
        return found  # type: ignore[no-any-return]


def _lacking(error: BaseException | None) -> str | None:
    """The module that could not be imported, where that is why a constructor raised."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__ if isinstance(error, ImportError) else None
    return error.name.partition(".")[0] if error is not None and error.name else None


def _remedy(path: str) -> str:
    parts = path.partition(":")[0].split(".")
    if parts[0] == "pettingzoo" and len(parts) > 1:
        return f"; pip install 'pettingzoo[{parts[1]}]'"
    return f"; pip install {parts[0]}" if parts[0] == "mpe2" else ""


@dataclass(frozen=True)
class Codecs:
    """How each agent's observations and actions are read and written."""

    observation: Mapping[str, ObservationCodec]
    action: Mapping[str, ActionCodec]


def codecs_of(env: Any) -> Codecs:
    """Codecs by agent.

    Raises:
        EnvBuildError: a space that cannot be handled.
    """
    agents = list(env.possible_agents)
    return Codecs(
        {agent: observation_codec(agent, env.observation_space(agent)) for agent in agents},
        {agent: action_codec(agent, env.action_space(agent)) for agent in agents},
    )


def describe(source: EnvSource, env: Any) -> EnvSpec:
    """Groups, spaces, masks and state of an environment; resets it once, to see whether infos hold action masks.

    Raises:
        EnvBuildError: agents of one group whose spaces differ, or a space or group that cannot be handled.
    """
    codecs, agents = codecs_of(env), tuple(env.possible_agents)
    if not agents:
        raise EnvBuildError(
            f"{source.name}: possible_agents is empty; PettingZoo's API asks it for all agents there can be"
        )
    if any(not isinstance(agent, str) for agent in agents):
        raise EnvBuildError(f"{source.name}: agents must be texts; got {list(agents)}")
    try:
        grouped = group_agents(agents, source.groups)
    except ConfigError as error:
        raise EnvBuildError(f"{source.name}: {error}") from error
    infos = _first_infos(source.name, env)
    masked = {agent for agent in agents if codecs.observation[agent].mask_inside or MASK in infos.get(agent, {})}
    waits = isinstance(env, TurnBasedEnv)
    if waits and masked:  # infos may hold the mask of those alone who act
        masked = {agent for agent in agents if codecs.action[agent].spec.kind != "continuous"}
    groups = tuple(_group(source.name, name, members, codecs, masked) for name, members in grouped.items())
    return EnvSpec(source.name, groups, _state_shape(source, env), source.max_steps, simultaneous=not waits)


def _first_infos(name: str, env: Any) -> dict[str, Any]:
    try:
        return check_reset(env.reset(seed=0))[1]
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise EnvBuildError(f"{name}: {error}; {RESET}") from error


def _group(name: str, group: str, members: tuple[str, ...], codecs: Codecs, masked: set[str]) -> GroupSpec:
    first = members[0]
    for what, by_agent in (("observation", codecs.observation), ("action", codecs.action)):
        specs = {agent: by_agent[agent].spec for agent in members}  # type: ignore[attr-defined]
        other = next((agent for agent in members if specs[agent] != specs[first]), None)
        if other is not None:
            raise EnvBuildError(
                f"{name}: agents {first!r} and {other!r} of group {group!r} have different {what} spaces: "
                f"{specs[first]} and {specs[other]}; put them in groups of their own with "
                f"groups={{...}}, as groups={{{first!r}: [{first!r}], {other!r}: [{other!r}], ...}}"
            )
    action = codecs.action[first].spec
    has_mask = bool(masked & set(members))
    if has_mask and action.kind == "continuous":
        raise EnvBuildError(f"{name}: group {group!r} has an action mask but continuous actions")
    return GroupSpec(group, members, codecs.observation[first].spec, action, has_mask)


def _state_shape(source: EnvSource, env: Any) -> tuple[int, ...] | None:
    if not source.state:
        return None
    try:
        shape = env.state().shape
    except Exception as error:
        raise EnvBuildError(f"{source.name} has no global state (state=True asked for it): {error!r}") from error
    return tuple(shape) or (1,)
