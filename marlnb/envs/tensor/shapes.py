"""Checks of what goes into rules and comes out of them, with errors that name the tensor, its shape and the valid one.

They read shapes and dtypes only, so they never wait for a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from marlnb.errors import EnvError
from marlnb.specs import EnvSpec

Shapes = Mapping[str, tuple[int, ...]]
"""By group."""


def have(values: Mapping[str, Tensor], shapes: Shapes) -> bool:
    """Whether each group has a tensor of its shape; quick, for every step."""
    try:
        for name, shape in shapes.items():
            value = values[name]
            if not isinstance(value, Tensor) or value.shape != shape:
                return False
    except (KeyError, TypeError):
        return False
    return True


def check_actions(spec: EnvSpec, shapes: Shapes, actions: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless there is a tensor of the right shape for each group."""
    if not have(actions, shapes):
        valid = {name: list(shape) for name, shape in shapes.items()}
        got = {
            name: list(action.shape) if isinstance(action, Tensor) else type(action).__name__
            for name, action in actions.items()
        }
        raise EnvError(f"{spec.name} needs actions of shapes {valid}; got {got}")


def check_rows(spec: EnvSpec, shapes: Shapes, source: str, rows: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless `rows` holds `[env, agent, ...]` of every group.

    Args:
        shapes: `[env, agent]`, or of an observation `[env, agent, feature]`.
        source: what returned them, for the message.
    """
    if have(rows, shapes):
        return
    for name, shape in shapes.items():
        value = rows.get(name) if isinstance(rows, Mapping) else None
        if value is None:
            got = list(rows) if isinstance(rows, Mapping) else type(rows).__name__
            raise EnvError(f"{spec.name}: {source} must have a tensor for each of {list(shapes)}; got {got}")
        if not isinstance(value, Tensor):
            raise EnvError(f"{spec.name}: {source} of group {name!r} must be a tensor; got {type(value).__name__}")
        if tuple(value.shape) != shape:
            raise EnvError(
                f"{spec.name}: {source} of group {name!r} must have the shape {list(shape)}: "
                f"env, agent{', feature' if len(shape) > 2 else ''}; got {list(value.shape)}"
            )


def check_flags(spec: EnvSpec, shapes: Shapes, source: str, flags: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless `flags` holds bool tensors `[env, agent]` of some of the groups.

    Args:
        source: the function that returned them, for the message.
    """
    if not isinstance(flags, Mapping):
        got = type(flags).__name__
        raise EnvError(f"{spec.name}: {source} must return tensors by group, {{}} for all agents; got {got}")
    for name, value in flags.items():
        if name not in shapes:
            raise EnvError(f"{spec.name}: {source} returned group {name!r}; the groups are {list(shapes)}")
        if not _is_flag(value, shapes[name]):
            raise EnvError(
                f"{spec.name}: {source} of group {name!r} must be a bool tensor of the shape {list(shapes[name])}: "
                f"env, agent; got {_described(value)}"
            )


def check_terminated(spec: EnvSpec, n_envs: int, terminated: Tensor | None) -> None:
    """Raises EnvError unless `terminated` is a bool tensor `[env]` or None."""
    if terminated is not None and not _is_flag(terminated, (n_envs,)):
        raise EnvError(
            f"{spec.name}: terminated must return a bool tensor of the shape [{n_envs}]: env, or None; "
            f"got {_described(terminated)}"
        )


def _is_flag(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and value.shape == shape and value.dtype == torch.bool


def check_masks(spec: EnvSpec, shapes: Shapes, masks: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless exactly the groups whose spec has an action mask have one, `[env, agent, choice]`."""
    if not isinstance(masks, Mapping):
        got = type(masks).__name__
        raise EnvError(f"{spec.name}: action_mask must return tensors by group, {{}} without masks; got {got}")
    if len(masks) == len(shapes) and have(masks, shapes):
        return
    for name in masks:
        if name not in shapes:
            raise EnvError(
                f"{spec.name}: action_mask returned a mask for group {name!r}, whose spec has none; pass "
                "action_mask=True to mnb.agent_group"
            )
    check_rows(spec, shapes, "action_mask", masks)


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
        if value is before[name] and n_envs is None:
            continue
        if not isinstance(value, Tensor):
            raise EnvError(f"{spec.name}: {source}: state[{name!r}] must be a tensor; got {type(value).__name__}")
        other = before[name]
        if value.shape != other.shape or value.dtype != other.dtype or value.device != other.device:
            raise EnvError(
                f"{spec.name}: {source} changed state[{name!r}] from {_described(other)} "
                f"to {_described(value)}; "
                "shapes, dtypes and devices of a state never change. Mark what is unused instead of removing it"
            )
        if n_envs is not None and (value.ndim == 0 or len(value) != n_envs):
            raise EnvError(
                f"{spec.name}: {source}: state[{name!r}] must be [env, ...] with {n_envs} envs; got {list(value.shape)}"
            )


def check_saved_state(spec: EnvSpec, saved: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raises EnvError unless a saved state has the names, shapes and dtypes of an environment's state."""
    if saved.keys() != state.keys():
        raise EnvError(
            f"{spec.name}: the saved state has {sorted(saved)}, and a state of this environment has {sorted(state)}: "
            "another environment or another version of marlnb saved it"
        )
    for name, value in saved.items():
        expected = state[name]
        if not isinstance(value, Tensor) or value.shape != expected.shape or value.dtype != expected.dtype:
            raise EnvError(
                f"{spec.name}: the saved state's {name!r} must be {_described(expected)}; got {_described(value)}"
            )


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
