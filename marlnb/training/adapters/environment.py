"""The environment of agents from elsewhere, however it is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marlnb.config import ENVIRONMENTS, EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError, UnknownNameError
from marlnb.specs import EnvSpec
from marlnb.training.policies.agents import EnvMaker

if TYPE_CHECKING:
    from torchrl.envs import EnvBase

EnvLike = Any


def env_maker(env: EnvLike) -> EnvConfig | EnvMaker:
    """What `Agents` builds copies from.

    Args:
        env: a configuration; the name of a registered environment, as `pettingzoo/simple_spread`, or of PettingZoo's
            without the first part; a torchrl EnvBase without batch axes, which is copied; or a function that returns a
            torchrl EnvBase (told `n_envs` and `device` where it has such arguments), a PettingZoo environment, or, told
            with `(n_envs, device)`, a marlnb VectorEnv.
    Raises:
        ConfigError: none of these.
    """
    if isinstance(env, EnvConfig):
        return env
    if isinstance(env, str):
        return _named(env)
    if _is_env_base(env):
        return _copies(env)
    if callable(env):
        return _made_by(env)
    raise ConfigError(
        f"env must be an EnvConfig, a name such as 'pettingzoo/simple_spread', a torchrl EnvBase, or a function that "
        f"makes an environment; got {type(env).__name__}"
    )


def spec_of(maker: EnvConfig | EnvMaker) -> EnvSpec:
    """What one copy tells about itself."""
    with maker.build(1) if isinstance(maker, EnvConfig) else maker(1, "cpu") as one:
        return one.spec


def _named(name: str) -> EnvConfig:
    for asked in (name, f"pettingzoo/{name}"):
        try:
            return ENVIRONMENTS.get(asked)()
        except UnknownNameError:
            continue
    return ENVIRONMENTS.get(name)()


def _is_env_base(env: object) -> bool:
    from torchrl.envs import EnvBase

    return isinstance(env, EnvBase)


def _copies(env: EnvBase) -> EnvMaker:
    """Copies of an environment that is there already."""
    if env.batch_size:
        raise ConfigError(
            f"{type(env).__name__} holds {list(env.batch_size)} copies, so it cannot be built with another number; "
            "pass a function (n_envs, device) that makes it"
        )

    def make(n_envs: int, device: str) -> VectorEnv:
        from marlnb.envs.torchrl.config import vector_env

        try:
            return vector_env(lambda: copy.deepcopy(env), n_envs, device=device, name=type(env).__name__)
        except (TypeError, AttributeError, NotImplementedError) as error:
            raise ConfigError(
                f"{type(env).__name__} cannot be copied ({error}); pass a function that makes it instead"
            ) from error

    return make


def _made_by(function: Callable[..., Any]) -> EnvMaker:
    """Copies of what a function returns; it is tried once to see what that is."""
    from marlnb.envs.torchrl.config import vector_env

    name = str(getattr(function, "__name__", "environment"))

    def make(n_envs: int, device: str) -> VectorEnv:
        try:
            first = function(n_envs, device)
        except TypeError:
            first = function()
        if isinstance(first, VectorEnv):
            return first
        if _is_env_base(first):
            first.close()
            return vector_env(function, n_envs, device=device, name=name)
        return _pettingzoo(function, name, n_envs, device)

    return make


def _pettingzoo(function: Callable[..., Any], name: str, n_envs: int, device: str) -> VectorEnv:
    from marlnb.envs.parallel import ParallelVectorEnv
    from marlnb.envs.workers.source import Source

    source = Source(name=name, constructor=function, kwargs={}, groups={}, max_steps=None)
    return ParallelVectorEnv(source, n_envs, 0, device)
