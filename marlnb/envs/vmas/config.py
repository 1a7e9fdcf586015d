"""The options of VMAS's scenarios, and their names, found without importing VMAS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from marlnb.config import ENVIRONMENTS, EnvConfig, option

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv


@dataclass(frozen=True, kw_only=True)
class VmasConfig(EnvConfig):
    """The options of every VMAS scenario."""

    scenario: ClassVar[str]

    kwargs: Mapping[str, Any] = option({}, help="keyword arguments of the scenario, as n_agents")
    groups: Mapping[str, tuple[str, ...]] = option({}, help="agents by group; none: those named <group>_<index>")
    max_steps: int | None = option(100, help="truncates longer episodes; VMAS itself has no limit", unit="steps", ge=1)
    continuous_actions: bool = option(True, help="forces and words as numbers; false: as choices")
    multidiscrete_actions: bool = option(
        False, help="of discrete actions: one choice for each component, not one for all combinations"
    )
    seeds: Literal["episode", "batch"] = option(
        "episode",
        help="episode: each starts from its own seed, copy by copy; batch: all copies that end together start together "
        "from one stream of random numbers, which is faster with thousands of copies",
    )

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` copies on `device`, not yet reset.

        Raises:
            EnvError: VMAS is missing, refuses the arguments, or has agents in one group with different spaces.
        """
        from marlnb.envs.vmas.env import VmasVectorEnv

        return VmasVectorEnv(self, n_envs, device)


def scenario_files() -> dict[str, Path]:
    """VMAS's scenarios by name, those for debugging and MPE's included; empty where it is not installed."""
    spec = find_spec("vmas")
    places = (spec.submodule_search_locations or ()) if spec else ()
    files = [file for place in places for file in Path(place, "scenarios").rglob("*.py")]
    return {file.stem: file for file in sorted(files) if file.stem != "__init__"}


def register_installed() -> None:
    """Enters a config class for each scenario, as `vmas/<name>`."""
    for name in scenario_files():
        kind = make_dataclass(
            f"{name.title().replace('_', '')}Config",
            (),
            bases=(VmasConfig,),
            namespace={"__doc__": f"VMAS's {name}.", "__module__": __name__, "scenario": name},
            frozen=True,
            kw_only=True,
        )
        globals()[kind.__name__] = ENVIRONMENTS.register(f"vmas/{name}")(kind)


register_installed()
