"""PettingZoo environments: the installed ones by name, and the user's own by the import path of their constructor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from marlnb.allocations import usable_cores
from marlnb.codec import from_json, to_json
from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.errors import ConfigError
from marlnb.plugins.import_paths import load_object
from marlnb.specs import EnvFacts

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

_FAMILIES = {"sisl": (), "butterfly": (), "classic": (), "atari": ("multi_agent_ale_py",)}  # needed modules
# the agents of these two observe the screen, which is drawn only in a render mode
_DEFAULTS = {name: {"render_mode": "rgb_array"} for name in ("pistonball", "cooperative_pong")}
_IMPORTED = re.compile(r"^from\s+(\S+)\s+import\s+(\([^)]*\)|.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class PettingZooConfig(EnvConfig):
    """The options of every environment with one of PettingZoo's two APIs, parallel or turn-based (AEC)."""

    constructor: ClassVar[str | Callable[..., Any]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    arguments_class: ClassVar[type[Any] | None] = None  # a dataclass that checks kwargs
    tuned = Path(__file__).parent / "workers" / "tuned.yaml"
    tunable = ("pixel_stride",)

    kwargs: Mapping[str, Any] = option({}, help="keyword arguments of the environment's constructor")
    groups: Mapping[str, tuple[str, ...]] = option({}, help="agents by group; none: those named <group>_<index>")
    workers: int = option(
        -1, help="processes that step the envs; 0: this process; -1: one for each usable core", ge=-1, le=4096
    )
    max_steps: int | None = option(
        None,
        help="truncates longer episodes, in addition to the environment's own limit",
        unit="steps",
        ge=1,
        le=1_000_000,
    )
    pixel_stride: int = option(
        1,
        help="of observations that are images, every n-th pixel is kept in both directions",
        unit="pixels",
        ge=1,
        le=64,
    )
    turn_based: bool = option(False, help="step a parallel environment turn by turn")
    agents_wait: bool = option(
        False,
        help="agents missing from a parallel step, or whose mask allows nothing, wait, unless they ended: for agents "
        "with different rates",
    )
    state: bool = option(False, help="read the environment's global state, for critics")
    render: bool = option(False, help="build it so that it can be rendered")

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self._arguments_class()
        if kind is not None:
            checked = from_json(self.kwargs, kind, "kwargs")
            object.__setattr__(self, "kwargs", {name: to_json(value) for name, value in _values(checked).items()})

    @property
    def facts(self) -> EnvFacts:
        limits = [limit for limit in (self.max_steps, self.kwargs.get("max_cycles")) if isinstance(limit, int)]
        return EnvFacts(batched=False, max_steps=min(limits, default=None), groups=tuple(self.groups))

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` envs, not yet reset.

        Raises:
            EnvError: the environment cannot be imported or built, or its spaces or groups are not supported.
            ConfigError: `turn_based` with a constructor that is not PettingZoo's own.
        """
        from marlnb.envs.parallel import ParallelVectorEnv
        from marlnb.envs.workers.source import EnvSource

        source = EnvSource(
            name=self.name,
            constructor=self._turn_based_constructor() if self.turn_based else self._constructor(),
            kwargs=self._constructor_kwargs(),
            groups=self.groups,
            max_steps=self.max_steps,
            state=self.state,
            render=self.render,
            agents_wait=self.agents_wait,
            pixel_stride=self.pixel_stride,
        )
        return ParallelVectorEnv(source, n_envs, usable_cores() if self.workers < 0 else self.workers, device)

    def _arguments_class(self) -> type[Any] | None:
        return type(self).arguments_class

    def _constructor_kwargs(self) -> dict[str, Any]:
        kind = self._arguments_class()
        kwargs = self.kwargs if kind is None else _values(from_json(self.kwargs, kind, "kwargs"))
        return {**self.defaults, **kwargs}

    def _constructor(self) -> str | Callable[..., Any]:
        constructor = type(self).__dict__.get("constructor") or type(self).constructor
        return constructor.__func__ if isinstance(constructor, staticmethod) else constructor

    def _turn_based_constructor(self) -> str:
        """The import path of the constructor that returns an AECEnv: in PettingZoo's modules it is called `env`."""
        path = self._constructor()
        if not isinstance(path, str) or not path.endswith((":parallel_env", ":env")):
            raise ConfigError(
                f"{self.name}: turn_based=True needs a constructor of PettingZoo's own, `parallel_env` or `env`; got "
                f"{path!r}. Let it return an AECEnv instead, which is always stepped turn by turn"
            )
        return path.partition(":")[0] + ":env"


@ENVIRONMENTS.register("pettingzoo/custom")
@dataclass(frozen=True, kw_only=True)
class CustomConfig(PettingZooConfig):
    """Any function that can be imported and returns a ParallelEnv or an AECEnv."""

    entry_point: str = option(
        help='import path of the function or class: "module:function"', effect="imports and calls"
    )
    arguments: str = option(
        "",
        help='import path of a dataclass that checks kwargs: "module:Class"; none: no check',
        effect="imports and calls",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.]+:[\w.]+", self.entry_point):
            raise ConfigError(f'pettingzoo/custom.entry_point must be "module:function"; got {self.entry_point!r}')

    def _constructor(self) -> str:
        return self.entry_point

    def _arguments_class(self) -> type[Any] | None:
        if not self.arguments:
            return None
        kind = load_object(self.arguments)
        if not isinstance(kind, type) or not is_dataclass(kind):
            raise ConfigError(f"{self.name}.arguments must name a dataclass; {self.arguments} is {kind!r}")
        return kind


def _values(arguments: Any) -> dict[str, Any]:
    """The arguments that a dataclass was made with."""
    return {item.name: getattr(arguments, item.name) for item in fields(arguments) if item.init}


def installed() -> dict[str, str]:
    """Name -> "module:parallel_env" of the environments of PettingZoo and mpe2, found without importing them.

    "module:env" for environments that can only be stepped turn by turn.
    """
    latest: dict[str, tuple[int, str]] = {}
    for folder in _folders():
        for file in sorted(folder.glob("*_v*.py")):
            stem, _, version = file.stem.rpartition("_v")
            entry = _defined_in(file)
            if entry and version.isdigit() and int(version) >= latest.get(stem, (0, ""))[0]:
                latest[stem] = (int(version), entry)
    return {name: entry for name, (_, entry) in sorted(latest.items())}


def _folders() -> Iterator[Path]:
    for family, needs in _FAMILIES.items():
        if all(find_spec(module) for module in needs):
            yield from _package("pettingzoo", family)
    yield from _package("mpe2")


def _package(name: str, *below: str) -> Iterator[Path]:
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder, *below)


def _defined_in(file: Path) -> str | None:
    """Import path of the parallel_env that `<name>_v<k>.py` imports, or else of its env; None if it imports neither."""
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
    """Registers a config class for each installed environment, as `pettingzoo/<name>`."""
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
