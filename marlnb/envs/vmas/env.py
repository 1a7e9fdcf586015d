"""The VectorEnv over VMAS: its own simulator, all envs in one batch, read into buffers without a TensorDict.

VMAS keeps one stream of random numbers for the whole process, and swaps the process's generators at each call, which
takes 0.3 ms. This module calls the functions below that layer, with one stream per VectorEnv.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import re
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.action_validation import ActionValidator
from marlnb.envs.constructor_errors import construct, unknown_arguments
from marlnb.envs.grouping import group_specs
from marlnb.envs.rng_streams import RngStreams
from marlnb.envs.vector import Step, VectorEnv, allocate_step, check_n_envs, episode_seeds
from marlnb.envs.vmas.scenarios import VmasOptions, scenario_files
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN, ActionSpec, EnvSpec, LabelSpec, ObservationSpec

_AXES = ("x", "y")
UNUSED_KWARGS = "Scenario kwargs: .* not used by the scenario"


class VmasVectorEnv(VectorEnv):
    """B envs of a VMAS scenario.

    With `seeds="episode"`, an episode's start is a function of its seed alone: envs that end are reset one by one, each
    with its seed. With `seeds="batch"`, the whole rollout is a function of the seed given to `reset`, but a single
    episode cannot be repeated: its reported seed only counts episodes. What a scenario draws between resets (noise,
    scripted agents) comes from one stream in both cases.

    Raises:
        EnvError: see VmasConfig.build.
    """

    def __init__(self, config: VmasOptions, n_envs: int, device: str = "cpu") -> None:
        check_n_envs(config.name, n_envs)
        self.config, self.n_envs, self.device = config, n_envs, torch.device(device)
        self._streams, self._reset_streams = RngStreams(self.device), RngStreams(self.device)
        with self._streams:
            self.vmas = _make_vmas(config, n_envs, self.device)
        self._advance = inspect.unwrap(type(self.vmas).step)
        names = [agent.name.replace(" ", "_") for agent in self.vmas.agents]
        self.spec = _describe(config, self.vmas, names)
        self._members = {group.name: [names.index(agent) for agent in group.agents] for group in self.spec.groups}
        self._validators = {g.name: ActionValidator(config.name, g, n_envs, self.device) for g in self.spec.groups}
        self._step = allocate_step(self.spec, n_envs, self.device)
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._clock = torch.zeros_like(self._episode)
        self._seed: int | None = None
        self._was_reset = False

    def reset(self, seed: int) -> Step:
        self._seed = int(seed) % SEED_SPAN
        self._episode.zero_()
        if self._was_reset:
            self._rebuild()
        self._was_reset = True
        self._streams.restart(self._seed)
        self._begin(torch.ones_like(self._step.done))
        self._step.clear_transition()
        return self._step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every env; see VectorEnv.

        Raises:
            EnvError: before the first `reset`; missing actions, another shape or dtype, NaN, or a value out of range.
        """
        if self._seed is None:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        commands: list[Any] = [None] * len(self.vmas.agents)
        for name, members in self._members.items():
            valid = self._validators[name].check(actions, self._step.groups[name].acting)
            for member, command in zip(members, valid.unbind(1)):
                commands[member] = command if command.dim() > 1 else command[:, None]
        try:
            with self._streams:
                observations, rewards, terminated, _ = self._advance(self.vmas, commands)
        except Exception as error:
            trace = traceback.format_exc().rstrip()
            raise EnvError(f"{self.spec.name}: VMAS failed in a step of {self.n_envs} envs\n\n{trace}") from error
        self._clock += 1
        self._observe(observations)
        self._write_transition(rewards, terminated.view(self.n_envs))
        return self._step

    def labels(self) -> dict[str, Tensor]:
        labels = {}
        for group, members in self._members.items():
            for what, attribute in (("position", "pos"), ("velocity", "vel")):
                values = torch.stack([getattr(self.vmas.agents[i].state, attribute) for i in members], 1)
                for k, axis in enumerate(_AXES):
                    labels[f"{group}_{what}_{axis}"] = values[..., k].clone()
        return labels

    def render(self, index: int = 0) -> np.ndarray:
        """Env `index` as VMAS draws it, `[height, width, 3]` uint8.

        Raises:
            EnvError: there is no such env, or VMAS finds neither a display nor EGL.
        """
        self._check_index(index)
        try:
            with self._streams, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image = inspect.unwrap(type(self.vmas).render)(self.vmas, mode="rgb_array", env_index=index)
        except Exception as error:
            raise EnvError(
                f"{self.spec.name}: VMAS could not draw ({type(error).__name__}: {error}); it needs EGL or "
                "a display, for instance from `xvfb-run`"
            ) from error
        return np.ascontiguousarray(image, dtype=np.uint8)

    def close(self) -> None:
        viewer = getattr(self.vmas, "viewer", None)
        if viewer is not None:
            viewer.close()
            self.vmas.viewer = None

    def _rebuild(self) -> None:
        """Replaces the simulator: some scenarios keep state from one reset to the next."""
        previous = self.vmas
        with self._streams:
            self.vmas = _make_vmas(self.config, self.n_envs, self.device)
        for name in ("viewer", "headless", "visible_display", "text_lines"):
            setattr(self.vmas, name, getattr(previous, name))

    def _write_transition(self, rewards: list[Tensor], terminated: Tensor) -> None:
        """Writes rewards and ends of the step just made, and starts new episodes in the envs that ended."""
        limit = self.config.max_steps
        truncated = (self._clock >= limit) & ~terminated if limit else torch.zeros_like(terminated)
        torch.logical_or(terminated, truncated, out=self._step.done)
        for name, members in self._members.items():
            rows = self._step.groups[name]
            torch.stack([rewards[i].view(self.n_envs).float() for i in members], 1, out=rows.reward)
            rows.terminated.copy_(terminated[:, None])
            rows.truncated.copy_(truncated[:, None])
        if self._step.done.any():
            for rows in self._step.groups.values():
                rows.final_observation.copy_(rows.observation)
            self._episode += self._step.done
            self._begin(self._step.done)

    def _begin(self, starting: Tensor) -> None:
        """Starts new episodes in the envs flagged in `starting` `[env]`."""
        assert self._seed is not None
        if self._end_pictures is not None:
            self._end_pictures |= {index: self.render(index) for index in starting.nonzero().flatten().tolist()}
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        has_own_seeds, seeds = self.config.seeds == "episode", self._step.episode_seed.tolist()
        with self._reset_streams if has_own_seeds else self._streams:
            if starting.all() and not has_own_seeds:
                self.vmas._reset(return_observations=False)
            else:
                for index in starting.nonzero().flatten().tolist():
                    if has_own_seeds:
                        self._reset_streams.seed(seeds[index])
                    self.vmas._reset_at(index, return_observations=False)
            observations = self._read_observations()
        self._clock.masked_fill_(starting, 0)
        self._observe(observations, starting)

    def _read_observations(self) -> list[Any]:
        return self.vmas._get_from_scenario(  # type: ignore[no-any-return]
            get_observations=True, get_rewards=False, get_infos=False, get_dones=False
        )[0]

    def _observe(self, observations: list[Any], selected: Tensor | None = None) -> None:
        """Writes all agents' observations, in the envs flagged in `selected` `[env]` or in all."""
        for name, members in self._members.items():
            target = self._step.groups[name].observation
            if selected is None:
                torch.stack([_flat(observations[i]) for i in members], 1, out=target)
            else:
                current = torch.stack([_flat(observations[i]) for i in members], 1)
                torch.where(selected[:, None, None], current, target, out=target)


def _make_vmas(config: VmasOptions, n_envs: int, device: torch.device) -> Any:
    try:
        # VMAS imports gym, which writes a deprecation note to stderr
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            from vmas import make_env
    except ImportError as error:
        raise EnvBuildError(f"{config.name} needs VMAS, which cannot be imported: {error}; pip install vmas") from error
    fixed = {
        "num_envs": n_envs,
        "device": device,
        "continuous_actions": config.continuous_actions,
        "multidiscrete_actions": config.multidiscrete_actions,
        "seed": 0,
    }
    if taken := [name for name in config.kwargs if name in fixed]:
        raise EnvBuildError(f"{config.name}: {unknown_arguments(taken, _arguments(config.scenario))}")

    def make(**kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", UNUSED_KWARGS)  # VMAS only warns about unknown arguments
            return make_env(config.scenario, **fixed, **kwargs)

    try:
        return construct(config.name, make, config.kwargs)
    except EnvBuildError as error:
        if not isinstance(error.__cause__, UserWarning):
            raise
        unused = [name for name in config.kwargs if repr(name) in str(error.__cause__)]
        raise EnvBuildError(f"{config.name}: {unknown_arguments(unused, _arguments(config.scenario))}") from error


def _arguments(scenario: str) -> list[str]:
    """The keyword arguments of a scenario, read from its source, because no signature states them."""
    source = scenario_files()[scenario].read_text(encoding="utf-8")
    return sorted(set(re.findall(r"kwargs\.(?:pop|get)\(\s*[\"'](\w+)", source)))


def _describe(config: VmasOptions, env: Any, names: list[str]) -> EnvSpec:
    observations = {name: _observation(space) for name, space in zip(names, env.observation_space)}
    actions = {name: _action(config.name, space) for name, space in zip(names, env.action_space)}
    groups = group_specs(config.name, observations, actions, config.groups)
    names_of_labels = itertools.product(groups, ("position", "velocity"), _AXES)
    labels = tuple(LabelSpec(f"{group.name}_{what}_{axis}", group.name) for group, what, axis in names_of_labels)
    return EnvSpec(config.name, groups, max_steps=config.max_steps, labels=labels)


def _observation(space: Any) -> ObservationSpec:
    """The spec of a Box, or of a Dict of Boxes: the parts are concatenated, and features are named after their part."""
    if not hasattr(space, "spaces"):
        return ObservationSpec((int(np.prod(space.shape)),))
    sizes = {name: _observation(part).size for name, part in space.spaces.items()}
    return ObservationSpec(
        (sum(sizes.values()),), names=tuple(f"{n}_{i}" for n, size in sizes.items() for i in range(size))
    )


def _action(name: str, space: Any) -> ActionSpec:
    kind = type(space).__name__
    if kind == "Box":
        return ActionSpec("continuous", low=tuple(space.low.tolist()), high=tuple(space.high.tolist()))
    if kind == "Discrete":
        return ActionSpec("discrete", n=(int(space.n),))
    if kind == "MultiDiscrete":
        return ActionSpec("multi_discrete", n=tuple(int(n) for n in space.nvec))
    raise EnvBuildError(f"{name}: {kind} actions are not supported; valid: Box, Discrete and MultiDiscrete")


def _flat(observation: Any) -> Tensor:
    """`[env, feature]`; the parts of a dict in the order of its space, which is sorted by name."""
    if isinstance(observation, Tensor):
        return observation.flatten(1).float()
    return torch.cat([_flat(observation[name]) for name in sorted(observation)], 1)
