"""The options of environments stepped through torchrl: a user's own, and those of installed libraries."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, make_dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.envs.constructor_errors import construct, load_constructor, parameters_of
from marlnb.errors import ConfigError, EnvBuildError

if TYPE_CHECKING:
    from torchrl.envs import EnvBase

    from marlnb.envs.vector import VectorEnv


@dataclass(frozen=True, kw_only=True)
class TorchrlConfig(EnvConfig):
    """The options of every environment that is stepped through torchrl."""

    kwargs: Mapping[str, Any] = option({}, help="keyword arguments of the environment's constructor")
    max_steps: int | None = option(
        None,
        help="truncates longer episodes, in addition to the environment's own limit",
        unit="steps",
        ge=1,
        le=1_000_000,
    )

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` envs, not yet reset.

        Raises:
            EnvBuildError: the environment cannot be imported or built, or its specs are not supported.
        """
        return torchrl_vector_env(
            self._constructor(), n_envs, device=device, name=self.name, kwargs=self.kwargs, max_steps=self.max_steps
        )

    def _constructor(self) -> Callable[..., EnvBase]:
        raise ConfigError(f"{type(self).__name__} must override _constructor")


def torchrl_vector_env(
    constructor: Callable[..., EnvBase],
    n_envs: int,
    *,
    device: str = "cpu",
    name: str = "",
    kwargs: Mapping[str, Any] | None = None,
    max_steps: int | None = None,
) -> VectorEnv:
    """B = `n_envs` envs from a function that returns a torchrl EnvBase, without registering it.

    Args:
        constructor: returns an EnvBase of batch size `[]`, and is called once per env; or one of batch size
            `[n_envs]`. If it has parameters `n_envs` and `device`, it gets them.
        n_envs: B.
        device: where the environment must be.
        name: for messages; default: the constructor's name.
        kwargs: keyword arguments of the constructor.
        max_steps: truncates longer episodes.
    Raises:
        EnvBuildError: the constructor raised or returned something else, or its specs are not supported.
    """
    from marlnb.envs.torchrl.env import TorchrlVectorEnv

    parameters = parameters_of(constructor)
    optional = {"n_envs": n_envs, "device": device}
    arguments = {**{key: value for key, value in optional.items() if key in parameters}, **(kwargs or {})}
    name = name or str(getattr(constructor, "__name__", "torchrl"))
    env = TorchrlVectorEnv(lambda: construct(name, constructor, arguments), n_envs, name=name, max_steps=max_steps)
    if env.device.type != device.partition(":")[0]:
        raise EnvBuildError(
            f"{name} is on {env.device}, not on the requested {device}; add a parameter `device` to its constructor, "
            "which then receives the requested one"
        )
    return env


@ENVIRONMENTS.register("torchrl/custom")
@dataclass(frozen=True, kw_only=True)
class CustomConfig(TorchrlConfig):
    """Any function that can be imported and returns a torchrl EnvBase."""

    entry_point: str = option(help='import path of the function: "module:function"', effect="imports and calls")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.]+:[\w.]+", self.entry_point):
            raise ConfigError(f'torchrl/custom.entry_point must be "module:function"; got {self.entry_point!r}')

    def _constructor(self) -> Callable[..., EnvBase]:
        try:
            return load_constructor(self.entry_point)
        except ConfigError as error:
            raise EnvBuildError(f"{self.name}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class LibraryConfig(TorchrlConfig):
    """An environment of a library: `task`, made by `maker`."""

    maker: ClassVar[str]
    task: ClassVar[str]

    def _constructor(self) -> Callable[..., EnvBase]:
        module, _, attribute = self.maker.partition(":")
        make, task = getattr(importlib.import_module(module), attribute), self.task
        return lambda **kwargs: make(task, **kwargs)


@dataclass(frozen=True, kw_only=True)
class SubstrateConfig(LibraryConfig):
    """A substrate of MeltingPot."""

    maker: ClassVar[str] = "marlnb.envs.torchrl.meltingpot:Substrate"

    observations: tuple[str, ...] = option(
        ("RGB",), help="what each player observes: the image, and numbers as further channels"
    )

    def _constructor(self) -> Callable[..., EnvBase]:
        return partial(super()._constructor(), observations=self.observations)


def installed() -> Iterator[tuple[str, str, str]]:
    """(name, maker, task) of the installed OpenSpiel games, MeltingPot substrates and SMACv2 races."""
    if find_spec("pyspiel"):
        for game in _games():
            yield f"openspiel/{game}", "marlnb.envs.torchrl.openspiel:make", game
    for folder in _folders("meltingpot"):
        for substrate in _substrates(Path(folder, "configs", "substrates", "__init__.py")):
            yield f"meltingpot/{substrate}", SubstrateConfig.maker, substrate
    for _ in _folders("smacv2"):
        for race in ("protoss", "terran", "zerg"):
            yield f"smacv2/{race}", "marlnb.envs.torchrl.smacv2:Battle", f"10gen_{race}"


def _folders(package: str) -> list[str]:
    spec = find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else []


def _substrates(file: Path) -> list[str]:
    """The names in MeltingPot's own list, read without importing it."""
    tree = ast.parse(file.read_text() if file.exists() else "")
    lists = [node for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SUBSTRATES"]
    return sorted(str(name.value) for node in lists for name in ast.walk(node) if isinstance(name, ast.Constant))


def _games() -> list[str]:
    """Games that need no parameters and provide observations."""
    import pyspiel

    return [
        game.short_name
        for game in pyspiel.registered_games()
        if game.default_loadable
        and (game.provides_observation_tensor or game.provides_information_state_tensor)
        and game.dynamics != pyspiel.GameType.Dynamics.MEAN_FIELD
    ]


def register_installed() -> None:
    """Registers a config class for each of `installed()`."""
    for name, maker, task in installed():
        title = name.title().replace("_", "").replace("/", "")
        kind = make_dataclass(
            f"{title}Config",
            (),
            bases=(SubstrateConfig if maker == SubstrateConfig.maker else LibraryConfig,),
            namespace={"__doc__": f"{name}, through torchrl.", "__module__": __name__, "maker": maker, "task": task},
            frozen=True,
            kw_only=True,
        )
        globals()[kind.__name__] = ENVIRONMENTS.register(name)(kind)


for _family, _module, _needs in (
    ("vmas", "vmas", "VMAS: pip install 'marlnb[vmas]'"),
    ("openspiel", "pyspiel", "OpenSpiel: pip install 'marlnb[openspiel]'"),
    ("meltingpot", "meltingpot", "MeltingPot 2.4 and Python 3.11 or newer: see docs/environments-torchrl.md"),
    ("smacv2", "smacv2", "SMACv2 and StarCraft II: see docs/environments-torchrl.md"),
):
    ENVIRONMENTS.needs(f"{_family}/", _needs)
    ENVIRONMENTS.provided_by(f"{_family}/", _module)

register_installed()
