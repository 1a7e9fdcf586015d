"""MeltingPot's substrates through torchrl's wrapper, with seeds, truncation, rendering and chosen observations."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torchrl.data import Categorical, Composite
from torchrl.envs import MeltingpotEnv

from marlnb.errors import EnvBuildError

IMAGE, WORLD = "RGB", "WORLD.RGB"


class Substrate(MeltingpotEnv):  # type: ignore[misc]
    """A substrate of MeltingPot 2.4.

    torchrl 0.14's wrapper cannot be seeded, observes everything, even all rewards, and reports the time limit as a
    termination. This class corrects all of it.

    Args:
        substrate: its name.
        observations: what each player observes. An image alone stays uint8; numbers become further channels.
        roles: a role per player; default: the substrate's own.
    """

    _env: _Players

    def __init__(
        self,
        substrate: str,
        *,
        observations: Sequence[str] = (IMAGE,),
        roles: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(substrate, observations=tuple(observations), roles=roles, **kwargs)

    def _build_env(self, substrate: str, observations: tuple[str, ...], roles: Sequence[str] | None) -> _Players:
        self._make = partial(_Players, substrate, observations, roles)
        return self._make()

    def _make_specs(self, env: _Players) -> None:
        super()._make_specs(env)
        flags = ("done", "terminated", "truncated")
        self.done_spec = Composite({flag: Categorical(2, shape=(1,), dtype=torch.bool) for flag in flags})

    def _set_seed(self, seed: int | None) -> None:
        """Builds it again: a substrate draws its seed, and some their map, from Python's generator when built."""
        self._env.close()
        self._env = self._make()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        out = super()._step(tensordict)
        timed_out = out["done"] & (self.num_cycles >= self._env.max_steps)
        return out.update({"truncated": timed_out, "terminated": out["terminated"] & ~timed_out})

    def render(self) -> np.ndarray:
        """The whole world, `[height, width, 3]` uint8."""
        return np.asarray(self._env.observation()[0][WORLD])


class _Players:
    """A substrate as torchrl's wrapper steps it; each player gets only the chosen observations."""

    def __init__(self, name: str, observations: tuple[str, ...], roles: Sequence[str] | None) -> None:
        with _library() as substrate:
            config = substrate.get_config(name).unlock()
            roles = tuple(config.default_player_roles if roles is None else roles)
            settings = config.lab2d_settings_builder(roles=roles, config=config)
            self.max_steps = int(settings["maxEpisodeLengthFrames"])
            settings = {**settings, "levelName": _ordered_level(settings), "logLevel": "ERROR"}
            config.lab2d_settings_builder = lambda **_: settings
            self._env = substrate.build_from_config(config, roles=roles)
        self._names = observations
        available = self._env.observation_spec()[0]
        if missing := [n for n in observations if n not in available or n == WORLD]:
            valid = sorted(n for n in available if n != WORLD)
            raise EnvBuildError(f"meltingpot/{name} has no observation {missing}; valid for env.observations: {valid}")
        self.action_spec, self.reward_spec, self.close = self._env.action_spec, self._env.reward_spec, self._env.close

    def observation_spec(self) -> list[dict[str, Any]]:
        import dm_env

        selected = self._select([{n: a.generate_value() for n, a in p.items()} for p in self._env.observation_spec()])
        return [{n: dm_env.specs.Array(a.shape, a.dtype, n) for n, a in player.items()} for player in selected]

    def observation(self) -> list[dict[str, np.ndarray]]:
        return self._select(self._env.observation())

    def reset(self) -> Any:
        timestep = self._env.reset()
        return timestep._replace(observation=self._select(timestep.observation))

    def step(self, actions: Sequence[int]) -> Any:
        timestep = self._env.step(actions)
        return timestep._replace(observation=self._select(timestep.observation))

    def _select(self, players: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        return [{**_as_channels({n: player[n] for n in self._names}), WORLD: player[WORLD]} for player in players]


def _as_channels(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Numbers as channels after those of an image, which is then scaled to 0..1; without an image unchanged."""
    if IMAGE not in parts or len(parts) == 1:
        return parts
    image = parts.pop(IMAGE)
    numbers = np.concatenate([np.ravel(part) for part in parts.values()]).astype(np.float32)
    planes = np.broadcast_to(numbers, (*image.shape[:2], len(numbers)))
    return {IMAGE: np.concatenate([image.astype(np.float32) / 255, planes], -1)}


def _ordered_level(settings: Mapping[str, Any]) -> str:
    """A level equal to that of these settings, but with a fixed order of Lua's `pairs`; as a path for MeltingPot."""
    levels = Path(_package_folders()[0]).parent / settings["levelDirectory"]
    folder = _write_wrapper(levels / settings["levelName"])
    return os.path.relpath(folder, levels)


@cache
def _write_wrapper(level: Path) -> Path:
    """A folder with a level that fixes the order of `pairs` and then runs another level."""
    folder = Path(mkdtemp(prefix="marlnb-meltingpot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lines = (
        f"dofile([[{Path(__file__).with_name('in_order.lua')}]])",
        f"package.path = [[{level}/?.lua;]] .. package.path",
        f"return dofile([[{level}/init.lua]])",
    )
    (folder / "init.lua").write_text("\n".join(lines))
    return folder


def _package_folders() -> list[str]:
    spec = find_spec("meltingpot")
    assert spec is not None
    return list(spec.submodule_search_locations or ())


@contextmanager
def _library() -> Iterator[Any]:
    """`meltingpot.substrate`, without the package's `__init__`, which imports TensorFlow for saved bots."""
    folders = _package_folders()
    spec = ModuleSpec("meltingpot", None, is_package=True)
    spec.submodule_search_locations = folders
    hollow = module_from_spec(spec)
    here = sys.modules.setdefault("meltingpot", hollow)
    try:
        from meltingpot import substrate

        yield substrate
    finally:
        if here is hollow:
            del sys.modules["meltingpot"]
