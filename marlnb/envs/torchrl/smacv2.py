"""SMACv2 through torchrl's wrapper, with errors that say what is missing of StarCraft II, and seeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torchrl.envs import SMACv2Env

from marlnb.errors import EnvBuildError

INSTALL = (
    "install StarCraft II (https://github.com/Blizzard/s2client-proto#downloads; the maps are in SMACv2's repository), "
    "and set SC2PATH to its folder"
)


class Battle(SMACv2Env):  # type: ignore[misc]
    """One map of SMACv2.

    torchrl 0.14's wrapper refuses every seed. Here teams and places, which SMACv2 draws, follow it; what StarCraft
    draws follows the argument `seed`, given when it is launched.
    """

    def __init__(self, map_name: str, capability_config: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        _check(map_name)
        if capability_config is None and map_name.startswith("10gen_"):
            raise EnvBuildError(
                f"{map_name} needs env.kwargs.capability_config: n_units, n_enemies, team_gen and start_positions, as "
                "in smacv2/examples/configs of SMACv2's repository"
            )
        super().__init__(map_name, capability_config=capability_config, **kwargs)

    def _set_seed(self, seed: int | None) -> None:
        """Of SMACv2's distributions, each of which has a generator of its own."""
        for number, distribution in enumerate(getattr(self._env, "env_key_to_distribution_map", {}).values()):
            distribution.rng = np.random.default_rng(None if seed is None else (seed, number))


def _check(map_name: str) -> None:
    """StarCraft and the map are where PySC2 looks for them, which on Linux is known beforehand."""
    if not sys.platform.startswith("linux"):
        return
    folder = Path(os.environ.get("SC2PATH", "~/StarCraftII")).expanduser()
    if not (folder / "Versions").is_dir():
        raise EnvBuildError(f"SMACv2 needs StarCraft II, which is not in {folder}: {INSTALL}")
    if not (map_file := folder / "Maps" / "SMAC_Maps" / f"{map_name}.SC2Map").is_file():
        raise EnvBuildError(f"SMACv2's map {map_file} is not there: {INSTALL}")
