"""Builds the environment of agents trained with other libraries, from a config, name, object or function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from marlnb.config import EnvConfig
from marlnb.envs.by_hand import env_class, env_of_function, is_env_base
from marlnb.envs.constructor_errors import parameters_of
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError
from marlnb.specs import EnvSpec
from marlnb.training.policies.agents import EnvMaker

if TYPE_CHECKING:
    from torchrl.envs import EnvBase

EnvLike = Any


def env_maker(env: EnvLike) -> EnvConfig | EnvMaker:
    """The config or function with which `Agents` builds environments.

    Args:
        env: a configuration; the name of a registered environment, for example `pettingzoo/simple_spread`, where
            `pettingzoo/` may be omitted; a torchrl EnvBase without batch axes, which is deep-copied; or a function that
            returns a torchrl EnvBase, a PettingZoo environment or a marlnb VectorEnv. It is called with `n_envs` and
            `device` if it has these arguments, or if it has two required arguments, for example `(n, where)`.
    Raises:
        ConfigError: `env` is none of these. What it returns raises EnvBuildError if the function raised.
    """
    if isinstance(env, EnvConfig):
        return env
    if isinstance(env, str):
        return env_class(env)()
    if is_env_base(env):
        return _deep_copies(env)
    if callable(env):
        return lambda n_envs, device: env_of_function(env, n_envs, device, _arguments(env, n_envs, device))
    raise ConfigError(
        "env must be an EnvConfig, a name such as 'pettingzoo/simple_spread', a torchrl EnvBase, or a function that "
        f"returns an environment; got {type(env).__name__}"
    )


def env_and_spec(env: EnvLike) -> tuple[EnvConfig | EnvMaker, EnvSpec]:
    """`env_maker`, and the spec of what it builds."""
    maker = env_maker(env)
    return maker, spec_of(maker)


def indices_by_object(objects: Sequence[object]) -> list[list[int]]:
    """The indices at which each distinct object stands, in the order of its first."""
    indices: dict[int, list[int]] = {}
    for index, item in enumerate(objects):
        indices.setdefault(id(item), []).append(index)
    return list(indices.values())


def spec_of(maker: EnvConfig | EnvMaker) -> EnvSpec:
    """The spec of the environment that `maker` builds."""
    with maker.build(1) if isinstance(maker, EnvConfig) else maker(1, "cpu") as env:
        return env.spec


def _deep_copies(env: EnvBase) -> EnvMaker:
    """A function that builds deep copies of an environment object."""
    if env.batch_size:
        raise ConfigError(
            f"{type(env).__name__} has the batch size {list(env.batch_size)}, which cannot be changed; pass a function "
            "(n_envs, device) that returns it"
        )

    def make(n_envs: int, device: str) -> VectorEnv:
        from marlnb.envs.torchrl.config import torchrl_vector_env

        try:
            return torchrl_vector_env(lambda: copy.deepcopy(env), n_envs, device=device, name=type(env).__name__)
        except (TypeError, AttributeError, NotImplementedError) as error:
            raise ConfigError(
                f"{type(env).__name__} cannot be copied ({error}); pass a function that returns it instead"
            ) from error

    return make


def _arguments(function: Callable[..., Any], n_envs: int, device: str) -> dict[str, Any]:
    """`n_envs` and `device` under these names, as far as `function` has them; or its only two required arguments."""
    parameters, values = parameters_of(function), {"n_envs": n_envs, "device": device}
    required = [
        name
        for name, item in parameters.items()
        if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    if len(required) == 2:
        return {name: values.get(name, value) for name, value in zip(required, values.values())}
    return {name: value for name, value in values.items() if name in parameters}
