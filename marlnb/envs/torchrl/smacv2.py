"""SMACv2 through torchrl's wrapper, with seeds, and with errors that say what to install of StarCraft II."""

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

    torchrl 0.14's wrapper rejects every seed. Here the seed determines the teams and positions that SMACv2 draws. What
    StarCraft draws depends on the argument `seed` at its launch.
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
        """Seeds SMACv2's distributions, each of which has its own generator."""
        for number, distribution in enumerate(getattr(self._env, "env_key_to_distribution_map", {}).values()):
            distribution.rng = np.random.default_rng(None if seed is None else (seed, number))


def _check(map_name: str) -> None:
    """Raises EnvBuildError unless StarCraft and the map are where PySC2 looks for them; checked on Linux only."""
    if not sys.platform.startswith("linux"):
        return
    folder = Path(os.environ.get("SC2PATH", "~/StarCraftII")).expanduser()
    if not (folder / "Versions").is_dir():
        raise EnvBuildError(f"SMACv2 needs StarCraft II, which is not in {folder}; {INSTALL}")
    if not (map_file := folder / "Maps" / "SMAC_Maps" / f"{map_name}.SC2Map").is_file():
        raise EnvBuildError(f"SMACv2's map {map_file} does not exist; {INSTALL}")
