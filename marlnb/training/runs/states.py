"""The states of a run's training."""

from __future__ import annotations

from typing import Literal, get_args

RunState = Literal["created", "running", "paused", "interrupted", "stopped", "complete", "failed"]
STATES: tuple[RunState, ...] = get_args(RunState)
RUNNING_STATES: tuple[RunState, ...] = ("running", "paused")
