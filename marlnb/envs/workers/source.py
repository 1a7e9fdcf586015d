"""Builds PettingZoo environments, and reads their agents, groups and spaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marlnb.envs.constructor_errors import construct, load_constructor
from marlnb.envs.grouping import group_specs
from marlnb.envs.workers.api import RESET, check_reset
from marlnb.envs.workers.labels import label_specs
from marlnb.envs.workers.spaces import MASK, ActionCodec, ObservationCodec, action_codec, observation_codec
from marlnb.envs.workers.turn_based import AECAsParallel, AsynchronousParallel, TurnBasedEnv
from marlnb.errors import ConfigError, EnvBuildError
from marlnb.plugins.import_paths import hidden_by
from marlnb.specs import EnvSpec

_PACKAGES = {"shimmy": "shimmy open_spiel", "pyspiel": "open_spiel"}  # PyPI packages by module, if the names differ


@dataclass(frozen=True)
class EnvSource:
    """Everything that a process needs to build its envs.

    Attributes:
        name: the environment's name, for messages.
        constructor: "module:function", or a function that returns a ParallelEnv or an AECEnv.
        kwargs: keyword arguments of the constructor.
        groups: agents by group; empty: by the id convention `<group>_<index>`.
        max_steps: truncates longer episodes.
        state: read the global state.
        render: build the environment so that it can be rendered.
        agents_wait: an agent that is missing from a step of a ParallelEnv, or whose mask allows nothing, waits, unless
            it was reported as ended.
        pixel_stride: every n-th pixel of images is observed, in both directions.
        stock: always use the environment's own `step`, never a faster equivalent.
    """

    name: str
    constructor: str | Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_steps: int | None = None
    state: bool = False
    render: bool = False
    agents_wait: bool = False
    pixel_stride: int = 1
    stock: bool = False

    def make(self) -> Any:
        """A new ParallelEnv; a turn-based environment is adapted to that interface.

        Raises:
            EnvBuildError: the environment cannot be imported or built, or has neither of PettingZoo's APIs.
        """
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "hide")
        kwargs = dict(self.kwargs)
        if self.render:
            kwargs.setdefault("render_mode", "rgb_array")
        env = self._construct(self._load_constructor(), kwargs)
        missing = [name for name in ("possible_agents", "reset", "step") if not hasattr(env, name)]
        if missing:
            raise EnvBuildError(
                f"{self.name}: the constructor must return a ParallelEnv or AECEnv with possible_agents; "
                f"it returned {type(env).__name__} without {missing}"
            )
        if hasattr(env, "agent_iter"):
            return AECAsParallel(env, self.stock)
        return AsynchronousParallel(env) if self.agents_wait else env

    def _construct(self, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return construct(self.name, constructor, kwargs)
        except EnvBuildError as error:
            if self.render and "render_mode" not in self.kwargs and "keyword argument 'render_mode'" in str(error):
                raise EnvBuildError(
                    f"{self.name}: render=True (env.render=true) passes render_mode='rgb_array', which its "
                    "constructor does not accept; add an argument render_mode to it, or set render=False"
                ) from error
            if (module := _missing_module(error.__cause__)) is not None:
                remedy = f"pip install {_PACKAGES.get(module, module)}"
                raise EnvBuildError(f"{self.name} needs {module!r}, which is not installed: {remedy}") from error
            raise

    def _load_constructor(self) -> Callable[..., Any]:
        if callable(self.constructor):
            return self.constructor
        try:
            constructor = load_constructor(self.constructor)
        except ConfigError as error:
            is_hidden = hidden_by(self.constructor.partition(".")[0]) is not None
            hint = "" if is_hidden else _install_hint(self.constructor)
            raise EnvBuildError(f"{self.name}: {error}{hint}") from error
        return constructor


def _missing_module(error: BaseException | None) -> str | None:
    """The module whose import failed, if that is why a constructor raised."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__ if isinstance(error, ImportError) else None
    return error.name.partition(".")[0] if error is not None and error.name else None


def _install_hint(path: str) -> str:
    parts = path.partition(":")[0].split(".")
    if parts[0] == "pettingzoo" and len(parts) > 1:
        return f"; pip install 'pettingzoo[{parts[1]}]'"
    return f"; pip install {parts[0]}" if parts[0] == "mpe2" else ""


@dataclass(frozen=True)
class Codecs:
    """How each agent's observations and actions are read and written."""

    observation: Mapping[str, ObservationCodec]
    action: Mapping[str, ActionCodec]


def codecs_of(source: EnvSource, env: Any) -> Codecs:
    """Codecs by agent.

    Raises:
        EnvBuildError: a space that is not supported; pixels are to be left out, but no agent observes an image.
    """
    agents, stride = list(env.possible_agents), source.pixel_stride
    observations = {agent: observation_codec(agent, env.observation_space(agent), stride) for agent in agents}
    if stride > 1 and agents and all(codec.image_shape is None for codec in observations.values()):
        raise EnvBuildError(
            f"{source.name}: pixel_stride={stride} needs images, uint8 [height, width, ...]; {agents[0]!r} observes "
            f"{env.observation_space(agents[0])}. Valid here: pixel_stride=1"
        )
    return Codecs(observations, {agent: action_codec(agent, env.action_space(agent)) for agent in agents})


def describe(source: EnvSource, env: Any) -> EnvSpec:
    """The spec of an environment. Resets it once, to see whether infos contain action masks, and its labels.

    Raises:
        EnvBuildError: agents of one group have different spaces, or a space, group or label is not supported.
    """
    codecs, agents = codecs_of(source, env), tuple(env.possible_agents)
    if not agents:
        raise EnvBuildError(
            f"{source.name}: possible_agents is empty; PettingZoo's API requires it to list all agents that can appear"
        )
    if any(not isinstance(agent, str) for agent in agents):
        raise EnvBuildError(f"{source.name}: agents must be strings; got {list(agents)}")
    observations = {agent: codecs.observation[agent].spec for agent in agents}
    actions = {agent: codecs.action[agent].spec for agent in agents}
    infos = _first_infos(source.name, env)
    masked = {agent for agent in agents if codecs.observation[agent].mask_inside or MASK in infos.get(agent, {})}
    is_turn_based = isinstance(env, TurnBasedEnv)
    if masked:  # infos may contain only the masks of agents that act, and agents that come later have none yet
        may_have = agents if is_turn_based else set(agents) - set(infos)
        masked |= {agent for agent in may_have if actions[agent].kind != "continuous"}
    groups = group_specs(source.name, observations, actions, source.groups, masked)
    state_shape, labels = _state_shape(source, env), label_specs(env, groups)
    return EnvSpec(source.name, groups, state_shape, source.max_steps, labels, simultaneous=not is_turn_based)


def _first_infos(name: str, env: Any) -> dict[str, Any]:
    try:
        return check_reset(env.reset(seed=0))[1]
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise EnvBuildError(f"{name}: {error}; {RESET}") from error


def _state_shape(source: EnvSource, env: Any) -> tuple[int, ...] | None:
    if not source.state:
        return None
    try:
        shape = env.state().shape
    except Exception as error:
        raise EnvBuildError(f"{source.name} has no global state, which state=True requests: {error!r}") from error
    return tuple(shape) or (1,)
