"""Checks of what goes into rules and comes out of them, with errors that name the tensor, its shape and the valid one.

They read shapes and dtypes only, so they never wait for a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.errors import EnvError
from marlnb.specs import EnvSpec


def check_actions(spec: EnvSpec, n_envs: int, actions: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless there is a tensor of the right shape for each group."""
    shapes = {group.name: (n_envs, group.n_agents, *group.action.shape) for group in spec.groups}
    if any(name not in actions or tuple(actions[name].shape) != shape for name, shape in shapes.items()):
        valid = {name: list(shape) for name, shape in shapes.items()}
        got = {name: list(action.shape) for name, action in actions.items()}
        raise EnvError(f"{spec.name} needs actions of shapes {valid}; got {got}")


def check_rows(
    spec: EnvSpec, n_envs: int, source: str, rows: Mapping[str, Tensor], *, is_observation: bool = False
) -> None:
    """Raises EnvError unless `rows` holds `[env, agent]` of every group, or an observation `[env, agent, *shape]`.

    Args:
        source: what returned them, for the message.
        is_observation: whether the rows are observations.
    """
    for group in spec.groups:
        expected = (n_envs, group.n_agents, *(group.observation.shape if is_observation else ()))
        value = rows.get(group.name) if isinstance(rows, Mapping) else None
        if value is None:
            got = list(rows) if isinstance(rows, Mapping) else type(rows).__name__
            raise EnvError(f"{spec.name}: {source} must have a tensor for each of {list(spec.group_names)}; got {got}")
        if tuple(value.shape) != expected:
            raise EnvError(
                f"{spec.name}: {source} of group {group.name!r} must have the shape {list(expected)}: "
                f"env, agent{', feature' if is_observation else ''}; got {list(value.shape)}"
            )


def check_state(
    spec: EnvSpec, source: str, state: Mapping[str, Tensor], before: Mapping[str, Tensor], n_envs: int | None = None
) -> None:
    """Raises EnvError unless `state` has the tensors, shapes, dtypes and devices of `before`.

    Args:
        source: the function that returned it, for the message.
        n_envs: if given, each tensor must also have so many rows.
    """
    if state.keys() != before.keys():
        raise EnvError(f"{spec.name}: {source} returned a state with {sorted(state)}; before it had {sorted(before)}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise EnvError(f"{spec.name}: {source}: state[{name!r}] must be a tensor; got {type(value).__name__}")
        if _form(value) != _form(before[name]):
            raise EnvError(
                f"{spec.name}: {source} changed state[{name!r}] from {_described(before[name])} "
                f"to {_described(value)}; "
                "shapes, dtypes and devices of a state never change. Mark what is unused instead of removing it"
            )
        if n_envs is not None and (value.ndim == 0 or len(value) != n_envs):
            raise EnvError(
                f"{spec.name}: {source}: state[{name!r}] must be [env, ...] with {n_envs} envs; got {list(value.shape)}"
            )


def _form(value: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return value.shape, value.dtype, value.device


def _described(value: Tensor) -> str:
    return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
