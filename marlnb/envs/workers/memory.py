"""The arrays that the envs write and the VectorEnv reads, in one block of memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from math import prod

import numpy as np

from marlnb.specs import EnvSpec

ALIGNMENT = 64  # bytes: one cache line, so that two processes never write to the same one
COMMON = ("done", "episode_seed", "seed", "state", "final_state")


@dataclass
class GroupArrays:
    """One group's arrays, `[env, agent, ...]` as in `marlnb.envs.vector.GroupStep`, and its actions."""

    observation: np.ndarray
    final_observation: np.ndarray
    alive: np.ndarray
    acting: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action: np.ndarray
    action_mask: np.ndarray | None
    final_action_mask: np.ndarray | None


@dataclass
class Arrays:
    """All arrays of B envs; `marlnb.envs.vector.Step` explains them.

    Attributes:
        seed: `[1]` int64, the seed that was passed to `reset`.
        labels: by label, `[env]` or `[env, agent]`; written on request.
    """

    groups: dict[str, GroupArrays]
    done: np.ndarray
    episode_seed: np.ndarray
    seed: np.ndarray
    state: np.ndarray | None
    final_state: np.ndarray | None
    labels: dict[str, np.ndarray]


def _shapes(spec: EnvSpec, n_envs: int) -> dict[tuple[str | None, str], tuple[tuple[int, ...], str]]:
    """(group, field) to (shape, dtype)."""
    shapes: dict[tuple[str | None, str], tuple[tuple[int, ...], str]] = {
        (None, "seed"): ((1,), "int64"),
        (None, "episode_seed"): ((n_envs,), "int64"),
    }
    rows = {group.name: (n_envs, group.n_agents) for group in spec.groups}
    observations = {g.name: ((*rows[g.name], *g.observation.shape), g.observation.dtype) for g in spec.groups}
    for group in spec.groups:
        shapes[group.name, "action"] = ((*rows[group.name], *group.action.shape), group.action.dtype)
        shapes[group.name, "final_observation"] = observations[group.name]
    if spec.state_shape is not None:
        shapes[None, "final_state"] = shapes[None, "state"] = ((n_envs, *spec.state_shape), "float32")
    for group in spec.groups:
        shapes[group.name, "observation"] = observations[group.name]
        if group.has_action_mask:
            mask = ((*rows[group.name], group.action.n_logits), "bool")
            shapes[group.name, "action_mask"] = shapes[group.name, "final_action_mask"] = mask
        shapes[group.name, "alive"] = shapes[group.name, "acting"] = (rows[group.name], "bool")
    for name, shape in rows.items():
        shapes[name, "reward"] = (shape, "float32")
        shapes[name, "terminated"] = shapes[name, "truncated"] = (shape, "bool")
    shapes[None, "done"] = ((n_envs,), "bool")
    for label in spec.labels:
        label_shape: tuple[int, ...] = (n_envs,) if label.group is None else rows[label.group]
        shapes[None, f"labels/{label.name}"] = (label_shape, "int64" if label.classes else "float32")
    return shapes


def _size(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT


def size_bytes(spec: EnvSpec, n_envs: int) -> int:
    return sum(_size(*entry) for entry in _shapes(spec, n_envs).values())


def arrays_in(buffer: mmap.mmap | np.ndarray, spec: EnvSpec, n_envs: int, offset: int = 0) -> Arrays:
    """Views into `buffer` from byte `offset`, the same in every process that maps it."""
    views: dict[tuple[str | None, str], np.ndarray] = {}
    for key, (shape, dtype) in _shapes(spec, n_envs).items():
        views[key] = np.frombuffer(buffer, dtype, prod(shape), offset).reshape(shape)
        offset += _size(shape, dtype)
    groups = {
        name: GroupArrays(
            **{field: views.get((name, field)) for field in GroupArrays.__dataclass_fields__}  # type: ignore[arg-type]
        )
        for name in spec.group_names
    }
    return Arrays(
        groups=groups,
        labels={label.name: views[None, f"labels/{label.name}"] for label in spec.labels},
        **{field: views.get((None, field)) for field in COMMON},  # type: ignore[arg-type]
    )


def allocate_arrays(spec: EnvSpec, n_envs: int) -> Arrays:
    """Zeroed arrays that are not shared with other processes."""
    buffer = np.zeros(size_bytes(spec, n_envs) + ALIGNMENT, np.uint8)
    return arrays_in(buffer, spec, n_envs, -buffer.ctypes.data % ALIGNMENT)


def anonymous_file() -> int:
    """A file descriptor of empty memory without a name: it is freed with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("marlnb")
    else:
        descriptor, path = tempfile.mkstemp(prefix="marlnb")
        os.unlink(path)
    return descriptor
