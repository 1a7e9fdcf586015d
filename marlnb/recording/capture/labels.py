"""A user's label function under its name: whatever goes wrong in it is said of that label."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from marlnb.errors import RecordingError
from marlnb.training.collect.episodes import TimeStep

KINDS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
)


class NamedLabel:
    """Calls a user's function, and holds it to the shape and type of its first answer.

    Raises:
        RecordingError: it is no function; when called: it raised (which is the cause of this error), told a type that
            cannot be written, or another shape or type than before.
    """

    def __init__(self, name: str, function: Callable[[TimeStep], Tensor]) -> None:
        if not callable(function):
            raise RecordingError(
                f"label {name!r} must be a function of a moment, as lambda moment: moment.t > 2; got {function!r}"
            )
        self.name, self._function = name, function
        self._told: tuple[torch.Size, torch.dtype] | None = None

    def __call__(self, time_step: TimeStep) -> Tensor:
        try:
            value = self._function(time_step)
        except Exception as error:
            raise RecordingError(f"label {self.name!r} raised {type(error).__name__}: {error}") from error
        if isinstance(value, Tensor):
            self._check(value, time_step.env.n_envs)
        elif self._told is not None:
            raise RecordingError(f"label {self.name!r} was a tensor at first; now it is {value!r}")
        return value

    def _check(self, value: Tensor, n_envs: int) -> None:
        if value.dtype not in KINDS:
            valid = ", ".join(_short(kind) for kind in KINDS)
            raise RecordingError(f"label {self.name!r} is of type {_short(value.dtype)}; valid: {valid}")
        if self._told is None:
            self._told = (value.shape[1:], value.dtype)
        elif value.shape != (n_envs, *self._told[0]) or value.dtype != self._told[1]:
            shape, kind = (n_envs, *self._told[0]), _short(self._told[1])
            raise RecordingError(
                f"label {self.name!r} is {_short(value.dtype)} of shape {tuple(value.shape)} now; at first it was "
                f"{kind} of shape {shape}, which is what is recorded"
            )


def named_label(name: str, function: Callable[[TimeStep], Tensor]) -> NamedLabel:
    """`function` as a NamedLabel, or itself where it is one already."""
    return function if isinstance(function, NamedLabel) else NamedLabel(name, function)


def _short(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
