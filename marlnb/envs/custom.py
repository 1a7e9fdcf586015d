"""A user's environment: one function that returns a PettingZoo ParallelEnv, and one decorator.

    @marlnb.environment("my/env")
    def my_env(size: int = 5) -> ParallelEnv:
        ...

Then it is composed (`env=my/env env.kwargs.size=7`), listed, trained and recorded like any other environment. The
function may be defined in a notebook: it is sent to the workers when they start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from marlnb.config import ENVIRONMENTS, EnvConfig, resolve_config
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

T = TypeVar("T")


def environment(
    name: str, *, arguments: type[Any] | None = None, tuned: Path | Sequence[Mapping[str, Any]] | None = None
) -> Callable[[T], T]:
    """Registers a function that returns a ParallelEnv, or a subclass of EnvConfig, as the environment `name`.

    A class without `@dataclass(frozen=True)` becomes one, so a `TensorEnv` needs no other decorator.

    Args:
        name: "<family>/<name>", for `env=`.
        arguments: a dataclass of the function's keyword arguments. It checks `env.kwargs` when composed: names,
            types and, for fields made by `marlnb.option`, ranges. The function gets all of its fields.
        tuned: settings tuned for the environment, for `EnvConfig.tuned`: a YAML file, or the list of its entries.
    Raises:
        ConfigError: another environment has this name, the decorated object is neither a function nor an EnvConfig, or
            `arguments` is not a dataclass.
    """

    if arguments is not None and not is_dataclass(arguments):
        raise ConfigError(f"environment {name!r}: arguments must be a dataclass; got {arguments!r}")

    def enter(member: T) -> T:
        if isinstance(member, type) and issubclass(member, EnvConfig):
            if "__dataclass_fields__" not in vars(member):
                member = cast(T, dataclass(frozen=True)(member))
            kind: type[EnvConfig] = cast(type[EnvConfig], member)
        elif callable(member):
            kind = _config_class(member, arguments)
        else:
            raise ConfigError(
                f"environment {name!r} must be a function that returns a ParallelEnv, or an EnvConfig; got {member!r}"
            )
        if tuned is not None:
            kind.tuned = tuned
        ENVIRONMENTS.register(name)(kind)
        return member

    return enter


def pettingzoo_vector_env(
    constructor: Callable[..., Any], n_envs: int, *, device: str = "cpu", name: str = "", **options: Any
) -> VectorEnv:
    """B = `n_envs` envs from a function that returns a ParallelEnv, without registering it.

    Args:
        constructor: returns a ParallelEnv; may be defined in a notebook or a script.
        n_envs: B.
        device: where the step's tensors are.
        name: for messages; default: the constructor's name.
        options: of every PettingZoo environment: kwargs, groups, workers, max_steps, state, render.
    Raises:
        ConfigError, EnvError: as `PettingZooConfig` and its `build`.
    """
    kind = _config_class(constructor)
    kind.name = name or str(getattr(constructor, "__name__", "custom"))
    return resolve_config(kind, None, options).build(n_envs, device)


def _config_class(constructor: Callable[..., Any], arguments: type[Any] | None = None) -> type[PettingZooConfig]:
    title = str(getattr(constructor, "__name__", "custom"))
    kind: type[PettingZooConfig] = make_dataclass(
        f"{title.title().replace('_', '')}Config",
        (),
        bases=(PettingZooConfig,),
        namespace={
            "__doc__": getattr(constructor, "__doc__", None) or f"{title}, defined by the user.",
            "__module__": getattr(constructor, "__module__", __name__),
            "__qualname__": getattr(constructor, "__qualname__", title),
            "constructor": staticmethod(constructor),
            "arguments_class": arguments,
        },
        frozen=True,
        kw_only=True,
    )
    return kind
