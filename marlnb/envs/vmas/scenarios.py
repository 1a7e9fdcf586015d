"""VMAS's scenarios: their names, found without importing VMAS, and the options that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from marlnb.config import EnvConfig, option
from marlnb.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class VmasOptions(EnvConfig):
    """The options of every VMAS scenario."""

    scenario: ClassVar[str]

    kwargs: Mapping[str, Any] = option({}, help="keyword arguments of the scenario, as n_agents")
    groups: Mapping[str, tuple[str, ...]] = option({}, help="agents by group; none: those named <group>_<index>")
    max_steps: int | None = option(
        100, help="truncates longer episodes; VMAS itself has no limit", unit="steps", ge=1, le=1_000_000
    )
    continuous_actions: bool = option(True, help="forces and words as numbers; false: as choices")
    multidiscrete_actions: bool = option(
        False, help="of discrete actions: one choice per component instead of one for all combinations"
    )
    seeds: Literal["episode", "batch"] = option(
        "episode",
        help="episode: each episode starts from its own seed, one env at a time; batch: all envs that end together "
        "start together from one stream of random numbers, which is faster with thousands of envs",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multidiscrete_actions and self.continuous_actions:
            raise ConfigError(
                f"{self.name}: multidiscrete_actions=true is for discrete actions, and got continuous_actions=true; "
                "valid: multidiscrete_actions=true continuous_actions=false"
            )


def scenario_files() -> dict[str, Path]:
    """VMAS's scenarios by name, including those for debugging and MPE's; empty if VMAS is not installed."""
    spec = find_spec("vmas")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    files = [file for folder in folders for file in Path(folder, "scenarios").rglob("*.py")]
    return {file.stem: file for file in sorted(files) if file.stem != "__init__"}
