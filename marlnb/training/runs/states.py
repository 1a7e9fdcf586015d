"""The states of a run's training. A run without a status is "created", or "missing" if its folder is gone."""

from __future__ import annotations

from typing import Literal, get_args

RunState = Literal["created", "running", "paused", "interrupted", "stopped", "complete", "failed", "missing"]
STATES: tuple[RunState, ...] = get_args(RunState)
RUNNING_STATES: tuple[RunState, ...] = ("running", "paused")
