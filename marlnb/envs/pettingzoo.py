"""PettingZoo's environments: those installed, by name, and the user's own, by where their constructor is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from marlnb.codec import from_json, to_json
from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.cores import usable_cores
from marlnb.errors import ConfigError
from marlnb.imports import load_object

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

_FAMILIES = {"sisl": (), "butterfly": (), "classic": (), "atari": ("multi_agent_ale_py",)}  # and what each must have
_DRAWN = {"render_mode": "rgb_array"}  # without it, what the agents of these two see is never drawn
_DEFAULTS = {"pistonball": _DRAWN, "cooperative_pong": _DRAWN}
_IMPORTED = re.compile(r"^from\s+(\S+)\s+import\s+(\([^)]*\)|.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class PettingZooConfig(EnvConfig):
    """The options of every environment that has one of PettingZoo's two APIs, parallel or turn by turn (AEC)."""

    constructor: ClassVar[str | Callable[..., Any]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    arguments_class: ClassVar[type[Any] | None] = None  # a dataclass that checks kwargs

    kwargs: Mapping[str, Any] = option({}, help="keyword arguments of the environment's constructor")
    groups: Mapping[str, tuple[str, ...]] = option({}, help="agents by group; none: those named <group>_<index>")
    workers: int = option(
        -1, help="processes that step the copies; 0: this process; -1: one for each core it may use", ge=-1
    )
    max_steps: int | None = option(
        None, help="truncates longer episodes, besides the environment's own limit", unit="steps", ge=1
    )
    turn_based: bool = option(False, help="step it turn by turn, where it could be stepped in parallel")
    agents_wait: bool = option(
        False, help="an agent missing from a parallel step waits, unless it ended: agents that act at different rates"
    )
    state: bool = option(False, help="read the environment's global state, for critics")
    render: bool = option(False, help="build it so that pictures can be taken")

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self._arguments_class()
        if kind is not None:
            checked = from_json(self.kwargs, kind, "kwargs")
            object.__setattr__(self, "kwargs", {name: to_json(value) for name, value in _values(checked).items()})

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` copies, not yet reset.

        Raises:
            EnvError: the environment cannot be imported or built, or has spaces or groups that cannot be handled.
            ConfigError: `turn_based` for a constructor of the user's own, which returns what it returns.
        """
        from marlnb.envs.parallel import ParallelVectorEnv
        from marlnb.envs.workers.source import EnvSource

        source = EnvSource(
            name=self.name,
            constructor=self._by_turns() if self.turn_based else self._where(),
            kwargs=self._constructor_kwargs(),
            groups=self.groups,
            max_steps=self.max_steps,
            state=self.state,
            render=self.render,
            agents_wait=self.agents_wait,
        )
        return ParallelVectorEnv(source, n_envs, usable_cores() if self.workers < 0 else self.workers, device)

    def _arguments_class(self) -> type[Any] | None:
        return type(self).arguments_class

    def _constructor_kwargs(self) -> dict[str, Any]:
        kind = self._arguments_class()
        given = self.kwargs if kind is None else _values(from_json(self.kwargs, kind, "kwargs"))
        return {**self.defaults, **given}

    def _where(self) -> str | Callable[..., Any]:
        constructor = type(self).__dict__.get("constructor") or type(self).constructor
        return constructor.__func__ if isinstance(constructor, staticmethod) else constructor

    def _by_turns(self) -> str:
        """Where the constructor is that returns an AECEnv: in PettingZoo's modules it is called `env`."""
        where = self._where()
        if not isinstance(where, str) or not where.endswith((":parallel_env", ":env")):
            raise ConfigError(
                f"{self.name}: turn_based=True chooses between PettingZoo's own `parallel_env` and `env`; the "
                f"constructor here is {where!r}: let it return an AECEnv, and it is stepped turn by turn"
            )
        return where.partition(":")[0] + ":env"


@ENVIRONMENTS.register("pettingzoo/custom")
@dataclass(frozen=True, kw_only=True)
class CustomConfig(PettingZooConfig):
    """Any function that can be imported and returns a ParallelEnv or an AECEnv."""

    entry_point: str = option(help='where the function or class is: "module:function"')
    arguments: str = option("", help='a dataclass that checks kwargs: "module:Class"; none: they are not checked')

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.]+:[\w.]+", self.entry_point):
            raise ConfigError(f'pettingzoo/custom.entry_point must be "module:function"; got {self.entry_point!r}')

    def _where(self) -> str:
        return self.entry_point

    def _arguments_class(self) -> type[Any] | None:
        if not self.arguments:
            return None
        kind = load_object(self.arguments)
        if not isinstance(kind, type) or not is_dataclass(kind):
            raise ConfigError(f"{self.name}.arguments must name a dataclass; {self.arguments} is {kind!r}")
        return kind


def _values(arguments: Any) -> dict[str, Any]:
    """What a dataclass of arguments was made from."""
    return {item.name: getattr(arguments, item.name) for item in fields(arguments) if item.init}


def installed() -> dict[str, str]:
    """Names to "module:parallel_env" of what PettingZoo and mpe2 bring, found without importing any of it.

    "module:env" where agents can only be stepped turn by turn.
    """
    found: dict[str, tuple[int, str]] = {}
    for folder in _folders():
        for file in sorted(folder.glob("*_v*.py")):
            stem, _, version = file.stem.rpartition("_v")
            entry = _defined_in(file)
            if entry and version.isdigit() and int(version) >= found.get(stem, (0, ""))[0]:
                found[stem] = (int(version), entry)
    return {name: entry for name, (_, entry) in sorted(found.items())}


def _folders() -> Iterator[Path]:
    for family, needs in _FAMILIES.items():
        if all(find_spec(module) for module in needs):
            yield from _package("pettingzoo", family)
    yield from _package("mpe2")


def _package(name: str, *below: str) -> Iterator[Path]:
    spec = find_spec(name)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place, *below)


def _defined_in(file: Path) -> str | None:
    """Where `<name>_v<k>.py` takes its parallel_env from, or else its env; None where it has neither."""
    imported = [
        (module, set(re.findall(r"\w+", names)))
        for module, names in _IMPORTED.findall(file.read_text(encoding="utf-8"))
    ]
    for attribute in ("parallel_env", "env"):
        for module, names in imported:
            if attribute in names:
                return f"{module}:{attribute}"
    return None


def register_installed() -> None:
    """Enters a config class for each installed environment, as `pettingzoo/<name>`."""
    for name, entry_point in installed().items():
        kind = make_dataclass(
            f"{name.title().replace('_', '')}Config",
            (),
            bases=(PettingZooConfig,),
            namespace={
                "__doc__": f"PettingZoo's {name}.",
                "__module__": __name__,
                "constructor": entry_point,
                "defaults": _DEFAULTS.get(name, {}),
            },
            frozen=True,
            kw_only=True,
        )
        globals()[kind.__name__] = ENVIRONMENTS.register(f"pettingzoo/{name}")(kind)


ENVIRONMENTS.provided_by("pettingzoo/", "pettingzoo", "mpe2")
register_installed()
