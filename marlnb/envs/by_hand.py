"""`vector_env`: environments to step by hand, from whatever describes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marlnb.codec import from_json, to_json
from marlnb.config import ENVIRONMENTS, EnvConfig, resolve_config
from marlnb.envs.constructor_errors import construct, parameters_of
from marlnb.envs.external.options import ExternalGroup, ExternalOptions
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.envs.workers.env_batch import close_env
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.experiment import Experiment

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

Groups = Mapping[str, tuple[str, ...]]


def vector_env(
    env: str | EnvConfig | Experiment | Callable[..., Any],
    n_envs: int | None = None,
    *,
    device: str = "cpu",
    groups: Groups | Mapping[str, Any] | None = None,
    **options: Any,
) -> VectorEnv:
    """B = `n_envs` environments that step together. They are not reset yet: `step = envs.reset(seed=0)`.

        envs = marlnb.vector_env("mpe/simple_spread", 32, N=5)
        envs = marlnb.vector_env(experiment)
        envs = marlnb.vector_env(MyParallelEnv, 8, kwargs={"size": 7}, workers=0)

    Args:
        env: a registered name (`pettingzoo/` may be omitted) or `module:Class`; a configuration; an Experiment; or a
            function or class that returns a PettingZoo environment, parallel or turn-based, or a torchrl EnvBase. It is
            called with `n_envs` and `device` if it has these arguments.
        n_envs: B; None: the Experiment's `n_envs`, or 1.
        device: where the step's tensors are.
        groups: agents by group; None: the Experiment's groups, or the environment's own. With the name
            "external/server" a description of the simulator's agents, as `env.groups` in an Experiment.
        options: as `env.<option>=` in an Experiment: of a name or a configuration its own options; of a function those
            of PettingZoo environments (`kwargs`, `workers`, `max_steps`, `state`, `render`, ...) or of torchrl ones
            (`kwargs`, `max_steps`).
    Raises:
        ConfigError: an unknown name or option, `env` is none of these, or its agents cannot form these groups.
        EnvBuildError: the environment cannot be imported or built, or its spaces are not supported.
    """
    from marlnb.envs.regroup import build_grouped

    if isinstance(env, Experiment):
        n_envs, groups = env.n_envs if n_envs is None else n_envs, groups or env.groups
        env = env.env
    n_envs = 1 if n_envs is None else n_envs
    if isinstance(env, str):
        kind = env_class(env)
        if groups and issubclass(kind, ExternalOptions) and "groups_file" not in options:
            path = f"{env}.groups."
            options["groups"] = {
                name: from_json(to_json(group), ExternalGroup, path + name) for name, group in groups.items()
            }
            groups = None
        env = resolve_config(kind, None, options)
    elif isinstance(env, EnvConfig):
        env = resolve_config(type(env), env, options)
    if isinstance(env, PettingZooConfig) and groups:
        env, groups = replace(env, groups=groups), None
    if isinstance(env, EnvConfig):
        return build_grouped(env, groups, n_envs, device=device)
    if not callable(env) or is_env_base(env):
        raise ConfigError(
            "vector_env takes a name such as 'mpe/simple_spread', an EnvConfig, an Experiment, or a function or class "
            f"that returns an environment; got a {type(env).__name__}"
        )
    parameters, values = parameters_of(env), {"n_envs": n_envs, "device": device}
    kwargs = {name: value for name, value in values.items() if name in parameters} | dict(options.pop("kwargs", {}))
    return env_of_function(env, n_envs, device, kwargs, options, groups)


def env_class(name: str) -> type[EnvConfig]:
    """The configuration class of a registered environment, whose prefix `pettingzoo/` may be omitted.

    Raises:
        UnknownNameError: not registered; the message gives similar names.
    """
    with suppress(UnknownNameError):
        return ENVIRONMENTS.get(name)
    with suppress(UnknownNameError):
        return ENVIRONMENTS.get(f"pettingzoo/{name}")
    return ENVIRONMENTS.get(name)  # names the valid ones


def is_env_base(env: object) -> bool:
    """Whether `env` is an environment of torchrl."""
    envs = sys.modules.get("torchrl.envs")  # an object of a class that was never imported does not exist
    return envs is not None and isinstance(env, envs.EnvBase)


def env_of_function(
    function: Callable[..., Any],
    n_envs: int,
    device: str,
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    groups: Groups | None = None,
) -> VectorEnv:
    """B = `n_envs` envs of a function; what it returns decides how they are stepped.

    Args:
        function: returns a VectorEnv, a torchrl EnvBase, or a PettingZoo environment.
        n_envs: B.
        device: where the step's tensors are.
        kwargs: the keyword arguments of each call.
        options: of the kind of environment, except `kwargs`; None: a PettingZoo environment is stepped in this process.
        groups: agents by group; None: the environment's own.
    Raises:
        ConfigError, EnvBuildError: as vector_env.
    """
    from marlnb.envs.custom import pettingzoo_vector_env
    from marlnb.envs.regroup import Regrouped
    from marlnb.envs.torchrl.config import torchrl_vector_env
    from marlnb.envs.vector import VectorEnv

    name = str(getattr(function, "__name__", "custom"))
    env = construct(name, function, kwargs)
    if isinstance(env, VectorEnv):
        _check_options(name, options or {}, ("kwargs",))
        built = env
    elif is_env_base(env):
        if not env.is_closed:  # batched envs are closed until their first reset
            env.close()
        _check_options(name, options or {}, ("kwargs", "max_steps"))
        built = torchrl_vector_env(function, n_envs, device=device, name=name, kwargs=kwargs, **(options or {}))
    else:
        close_env(env)
        options = {"workers": 0} if options is None else options
        grouped: dict[str, Any] = {"groups": groups} if groups else {}
        return pettingzoo_vector_env(function, n_envs, device=device, kwargs=kwargs, **options, **grouped)
    return Regrouped(built, groups) if groups else built


def _check_options(name: str, options: Collection[str], valid: Collection[str]) -> None:
    for option in options:
        if option not in valid:
            raise ConfigError(unknown(f"option of {name}", option, valid))
