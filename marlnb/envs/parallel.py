"""The VectorEnv over PettingZoo's parallel environments: buffers that worker processes, or this one, write into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step, step_of
from marlnb.envs.workers.env_batch import EnvBatch
from marlnb.envs.workers.memory import Arrays, GroupArrays, allocate_arrays
from marlnb.envs.workers.pool import Pool
from marlnb.envs.workers.randomness import PreservedGenerators
from marlnb.envs.workers.source import EnvSource
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN, EnvSpec, GroupSpec

TOLERANCE = 1e-5  # of an action's range: what rounding in a policy may overshoot


class Stepper(Protocol):
    """Whoever steps the copies: this process, or a pool of others."""

    spec: EnvSpec
    arrays: Arrays

    def reset(self) -> None: ...
    def step(self) -> None: ...
    def render(self, index: int) -> np.ndarray: ...
    def close(self) -> None: ...


class InProcess:
    """Steps all copies in this process."""

    def __init__(self, source: EnvSource, n_envs: int) -> None:
        with PreservedGenerators(python=True):
            self._copies = EnvBatch(source, range(n_envs))
            self.spec = self._copies.describe()
            self.arrays = allocate_arrays(self.spec, n_envs)
            self._copies.attach(self.spec, self.arrays, n_envs)
        self.envs = self._copies.envs
        self._closed = False

    def reset(self) -> None:
        self._check_open()
        with PreservedGenerators(python=True):
            self._copies.reset()

    def step(self) -> None:
        self._check_open()
        with PreservedGenerators(python=self._copies.draw_python):
            self._copies.step()

    def render(self, index: int) -> np.ndarray:
        self._check_open()
        return self._copies.render(index)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._copies.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EnvError(f"{self._copies.source.name} is closed")


class ParallelVectorEnv(VectorEnv):
    """B copies of a ParallelEnv.

    Args:
        n_workers: processes among which the copies are spread; 0: this process steps them all.
        device: where the step's tensors are; on the CPU they are the memory that workers write to, elsewhere copies.
    Raises:
        EnvError: the environment cannot be built, or its spaces or groups cannot be handled.
    """

    def __init__(self, source: EnvSource, n_envs: int, n_workers: int, device: str = "cpu") -> None:
        if n_envs < 1:
            raise EnvBuildError(f"{source.name}: at least one copy is needed; got n_envs={n_envs}")
        self.n_envs, self.device = n_envs, torch.device(device)
        self._source = source
        self._stepper: Stepper = Pool(source, n_envs, min(n_workers, n_envs)) if n_workers else InProcess(source, n_envs)
        self.spec = self._stepper.spec
        arrays = self._stepper.arrays
        self._actions = {
            group.name: ActionBuffer(group, arrays.groups[group.name], f"{self.spec.name}: group {group.name!r}")
            for group in self.spec.groups
        }
        self._shared = step_of(arrays)
        self._step = self._shared if self.device.type == "cpu" else allocate_step(self.spec, n_envs, self.device)
        self._was_reset = False

    def reset(self, seed: int) -> Step:
        self._stepper.arrays.seed[0] = int(seed) % SEED_SPAN
        self._stepper.reset()
        self._was_reset = True
        return self._handed_over()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every copy; see VectorEnv.

        Raises:
            EnvError: before the first `reset`; a group without actions; actions of another shape or kind, NaN or out
                of range; an environment that raised, with its copy, seed and traceback (workers are ended).
        """
        if not self._was_reset:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        for name, port in self._actions.items():
            if name not in actions:
                raise EnvError(f"{self.spec.name}: no actions for group {name!r}; got those of {list(actions)}")
            port.put(actions[name])
        self._stepper.step()
        return self._handed_over()

    def render(self, index: int = 0) -> np.ndarray:
        if not self._source.render:
            raise EnvBuildError(
                f"{self.spec.name} was built without pictures; build it with render=True, env.render=true"
            )
        if not 0 <= index < self.n_envs:
            raise EnvError(f"{self.spec.name} has copies 0 to {self.n_envs - 1}; got {index}")
        return self._stepper.render(index)

    def environment(self, index: int = 0) -> Any | None:
        """Copy `index` itself; None where a worker has it."""
        return self._stepper.envs[index] if isinstance(self._stepper, InProcess) else None

    def close(self) -> None:
        self._stepper.close()

    def _handed_over(self) -> Step:
        if self._step is not self._shared:
            _copy_step(self._shared, self._step)
        return self._step


class ActionBuffer:
    """Where one group's actions are put: checked, and clipped to their bounds."""

    def __init__(self, group: GroupSpec, arrays: GroupArrays, where: str) -> None:
        self._shared, self._acting, self._where, self._spec = arrays.action, arrays.acting, where, group.action
        self._dtype = getattr(torch, group.action.dtype)
        if group.action.kind == "continuous":
            self._low = np.array(group.action.low, np.float32)
            self._high = np.array(group.action.high, np.float32)
            self._slack = (self._high - self._low) * np.float32(TOLERANCE)
        else:
            counts = np.array(group.action.n, np.uint64)
            self._n = counts[0] if group.action.kind == "discrete" else counts

    def put(self, actions: Tensor) -> None:
        if tuple(actions.shape) != self._shared.shape or actions.dtype != self._dtype:
            raise EnvError(
                f"{self._where}: actions must be {self._spec.dtype} of shape {list(self._shared.shape)} (env, agent"
                f"{', component' if self._spec.shape else ''}); got {actions.dtype} of shape {list(actions.shape)}"
            )
        given = actions.detach().cpu().numpy()
        if self._spec.kind == "continuous":
            np.maximum(given, self._low, out=self._shared)
            np.minimum(self._shared, self._high, out=self._shared)
            if not (np.abs(given - self._shared) <= self._slack).all():
                self._refuse(given, np.abs(given - self._shared) <= self._slack)
        else:
            self._shared[...] = given
            if not (self._shared.view(np.uint64) < self._n).all():
                self._refuse(given, self._shared.view(np.uint64) < self._n)

    def _refuse(self, given: np.ndarray, is_right: np.ndarray) -> None:
        """Actions of agents that are not acting may be anything; for the others a wrong one is an error."""
        wrong = ~is_right.reshape(*self._acting.shape, -1).all(-1)
        if (wrong & self._acting).any():
            env, agent = (int(place[0]) for place in np.nonzero(wrong & self._acting))
            valid = (
                f"[{self._spec.low}, {self._spec.high}]" if self._spec.kind == "continuous" else f"[0, {self._spec.n})"
            )
            raise EnvError(
                f"{self._where}: action {given[env, agent]} of agent {agent} in copy {env} is not in {valid}"
            )
        self._shared[wrong] = 0 if self._spec.kind != "continuous" else (self._low + self._high) / 2


def _copy_step(source: Step, target: Step) -> None:
    for name, group in source.groups.items():
        for field in fields(GroupStep):
            _copy(getattr(group, field.name), getattr(target.groups[name], field.name))
    for name in ("done", "episode_seed", "state", "final_state"):
        _copy(getattr(source, name), getattr(target, name))


def _copy(source: Tensor | None, target: Tensor | None) -> None:
    if source is not None and target is not None:
        target.copy_(source)
