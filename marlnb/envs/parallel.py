"""The VectorEnv over PettingZoo environments: worker processes, or this process, write into its buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.action_validation import TOLERANCE, invalid_action
from marlnb.envs.steps import copy_step
from marlnb.envs.vector import Step, VectorEnv, allocate_step, check_n_envs, step_of
from marlnb.envs.workers.env_batch import EnvBatch
from marlnb.envs.workers.isolation import IsolatedProcess
from marlnb.envs.workers.memory import Arrays, GroupArrays, allocate_arrays
from marlnb.envs.workers.pool import Pool
from marlnb.envs.workers.randomness import PreservedGenerators, copied_generators
from marlnb.envs.workers.source import EnvSource
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN, EnvSpec, GroupSpec


class Stepper(Protocol):
    """Steps the envs: in this process, or in a pool of worker processes."""

    spec: EnvSpec
    arrays: Arrays

    def reset(self) -> None: ...
    def start_step(self) -> None: ...
    def finish_step(self) -> None: ...
    def write_labels(self) -> None: ...
    def render(self, index: int) -> np.ndarray: ...
    def close(self) -> None: ...


class InProcess:
    """Steps all envs in this process."""

    def __init__(self, source: EnvSource, n_envs: int) -> None:
        self._isolated = IsolatedProcess()
        with self._isolated, PreservedGenerators(copied_generators()):
            self._batch = EnvBatch(source, range(n_envs))
            self.spec = self._batch.describe()
            self.arrays = allocate_arrays(self.spec, n_envs)
            self._batch.attach(self.spec, self.arrays, n_envs)
        self.envs = self._batch.envs
        self._closed = False

    def reset(self) -> None:
        self._check_open()
        with self._isolated, PreservedGenerators(copied_generators()):
            self._batch.reset()

    def start_step(self) -> None:
        self._check_open()

    def finish_step(self) -> None:
        self._check_open()
        with self._isolated, PreservedGenerators(self._batch.swapped):
            self._batch.step()

    def write_labels(self) -> None:
        self._check_open()
        with self._isolated, PreservedGenerators(copied_generators()):
            self._batch.write_labels()

    def render(self, index: int) -> np.ndarray:
        self._check_open()
        with self._isolated:
            return self._batch.render(index)

    def draw_ends(self, pictures: dict[int, np.ndarray]) -> None:
        self._batch.draw_ends(pictures)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with self._isolated:
                self._batch.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EnvError(f"{self._batch.source.name} is closed")


class ParallelVectorEnv(VectorEnv):
    """B envs of a PettingZoo environment.

    Args:
        source: how to build an env.
        n_envs: B.
        n_workers: processes that share the envs; 0: this process steps them all.
        device: where the step's tensors are. On the CPU they are the memory that workers write to; on other devices
            each step copies that memory.
    Raises:
        EnvError: the environment cannot be built, or its spaces or groups are not supported.
    """

    def __init__(self, source: EnvSource, n_envs: int, n_workers: int, device: str = "cpu") -> None:
        check_n_envs(source.name, n_envs)
        self.n_envs, self.device = n_envs, torch.device(device)
        self._source = source
        self._stepper: Stepper = (
            Pool(source, n_envs, min(n_workers, n_envs)) if n_workers else InProcess(source, n_envs)
        )
        try:
            self._allocate(bool(n_workers))
        except BaseException:
            self.close()
            raise

    def _allocate(self, steps_in_processes: bool) -> None:
        self.spec, self.steps_in_processes = self._stepper.spec, steps_in_processes
        arrays = self._stepper.arrays
        self._actions = {
            group.name: ActionBuffer(group, arrays.groups[group.name], f"{self.spec.name}: group {group.name!r}")
            for group in self.spec.groups
        }
        self._shared = step_of(arrays)
        self._step = self._shared if self.device.type == "cpu" else allocate_step(self.spec, self.n_envs, self.device)
        self._was_reset = False

    def reset(self, seed: int) -> Step:
        self._stepper.arrays.seed[0] = int(seed) % SEED_SPAN
        self._stepper.reset()
        self._was_reset = True
        return self._on_device()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every env; see VectorEnv.

        Raises:
            EnvError: before the first `reset`; a group without actions; actions of another shape or dtype, NaN or
                out of range; an environment raised (the message has index, seed and traceback; workers are ended).
        """
        self.start_step(actions)
        return self.finish_step()

    def start_step(self, actions: Mapping[str, Tensor]) -> None:
        if not self._was_reset:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        for name, port in self._actions.items():
            if name not in actions:
                raise EnvError(f"{self.spec.name}: no actions for group {name!r}; got actions for {list(actions)}")
            port.put(actions[name])
        self._stepper.start_step()

    def finish_step(self) -> Step:
        self._stepper.finish_step()
        return self._on_device()

    def labels(self) -> dict[str, Tensor]:
        """What the environment's own method `labels` returns; `marlnb.envs.workers.labels` explains it.

        Raises:
            EnvError: before the first `reset`; the method raised, or returned something else than at first.
        """
        if not self.spec.labels:
            return {}
        if not self._was_reset:
            raise EnvError(f"{self.spec.name}: reset before reading labels")
        self._stepper.write_labels()
        values = self._stepper.arrays.labels
        return {name: torch.from_numpy(value.copy()).to(self.device) for name, value in values.items()}

    def render(self, index: int = 0) -> np.ndarray:
        if not self._source.render:
            raise EnvBuildError(
                f"{self.spec.name} was built without rendering; build it with render=True (env.render=true)"
            )
        self._check_index(index)
        return self._stepper.render(index)

    def draw_ends(self) -> None:
        super().draw_ends()
        if isinstance(self._stepper, InProcess) and self._end_pictures is not None:
            self._stepper.draw_ends(self._end_pictures)

    def environment(self, index: int = 0) -> Any | None:
        """Env `index` itself; None if a worker process has it."""
        return self._stepper.envs[index] if isinstance(self._stepper, InProcess) else None

    def close(self) -> None:
        self._stepper.close()

    def _on_device(self) -> Step:
        if self._step is not self._shared:
            copy_step(self._shared, self._step)
        return self._step


class ActionBuffer:
    """Checks one group's actions, clips them to their bounds, and writes them into shared memory.

    `ActionValidator` does the same for tensors on any device; this class avoids its allocations.
    """

    def __init__(self, group: GroupSpec, arrays: GroupArrays, prefix: str) -> None:
        self._shared, self._acting, self._prefix, self._spec = arrays.action, arrays.acting, prefix, group.action
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
                f"{self._prefix}: actions must be {self._spec.dtype} of shape {list(self._shared.shape)} (env, agent"
                f"{', component' if self._spec.shape else ''}); got {actions.dtype} of shape {list(actions.shape)}"
            )
        array = actions.detach().cpu().numpy()
        if self._spec.kind == "continuous":
            np.maximum(array, self._low, out=self._shared)
            np.minimum(self._shared, self._high, out=self._shared)
            if not (np.abs(array - self._shared) <= self._slack).all():
                self._replace_invalid(array, np.abs(array - self._shared) <= self._slack)
        else:
            self._shared[...] = array
            if not (self._shared.view(np.uint64) < self._n).all():
                self._replace_invalid(array, self._shared.view(np.uint64) < self._n)

    def _replace_invalid(self, array: np.ndarray, is_valid: np.ndarray) -> None:
        """Replaces invalid actions of agents that are not acting; an invalid action of an acting agent is an error."""
        wrong = ~is_valid.reshape(*self._acting.shape, -1).all(-1)
        if (wrong & self._acting).any():
            env_index, agent = (int(axis[0]) for axis in np.nonzero(wrong & self._acting))
            raise invalid_action(self._prefix, self._spec, array[env_index, agent], agent, env_index)
        self._shared[wrong] = 0 if self._spec.kind != "continuous" else (self._low + self._high) / 2
