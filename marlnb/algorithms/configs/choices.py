"""Choices and checks that the options of several algorithms have."""

from __future__ import annotations

from typing import Literal

from marlnb.errors import ConfigError

RegressionLoss = Literal["l2", "huber"]


def check_both_set(where: str, final: str, value: float | None, frames: str, n_frames: int) -> None:
    """Raises ConfigError if only one of the options of a linear change is set.

    Args:
        where: beginning of the message.
        final: the option of the number after the change.
        value: its value; None: not set.
        frames: the option of the length of the change.
        n_frames: its value; 0: not set.
    """
    if n_frames and value is None:
        raise ConfigError(f"{where}: {frames}={n_frames} needs {final}; got none")
    if value is not None and not n_frames:
        raise ConfigError(f"{where}: {final}={value:g} needs {frames}, the length of the change; got 0")
