"""Ending: decides between two iterations whether a training run ends, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from marlnb.experiment import Experiment
from marlnb.training.deadline import Deadline
from marlnb.training.limits import Trained, reached_limit
from marlnb.training.runs.files import STOP, stop_reason


@dataclass(frozen=True)
class End:
    """Why a training run ends.

    Attributes:
        state: "complete" if it has reached a limit or its target, else "stopped".
        reason: in words; empty if all frames are trained.
        by_allocation: whether it is stopped because its allocation ends.
    """

    state: Literal["complete", "stopped"]
    reason: str = ""
    by_allocation: bool = False


class Ending:
    """Looks for what ends a training run: a limit, its target, a request, or the end of its allocation, in this order.

    Args:
        experiment: what is trained.
        folder: of the run; a file STOP in it is a request.

    Attributes:
        deadline: of the allocation.
        request: why it was asked to stop; None if it was not.

    Raises:
        ConfigError: the end of the allocation is not a number.
    """

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self._experiment, self._folder = experiment, folder
        self.deadline = Deadline()
        self.request: str | None = None

    def find(
        self, trained: Trained, iteration_s: float, reached_target: float | None, *, frames_may_end: bool
    ) -> End | None:
        """Why no other iteration follows; None if one does.

        Args:
            trained: so far.
            iteration_s: how long an iteration takes.
            reached_target: the return that reached the target; None if none did.
            frames_may_end: whether the training may end here because of its frames.
        """
        limit = reached_limit(self._experiment, trained)
        is_frames = limit.startswith("frames=")
        if limit and (frames_may_end or not is_frames):
            return End("complete", "" if is_frames else f"{limit} reached")
        if reached_target is not None:
            return End("complete", f"target return {self._experiment.target_return} reached: {reached_target}")
        written = stop_reason(self._folder)
        if self.request is not None or written is not None:
            return End("stopped", self.request or written or f"the file {STOP}")
        if (reason := self.deadline.reason_to_stop(iteration_s)) is not None:
            return End("stopped", reason, by_allocation=True)
        return None

    def is_asked_for(self, iteration_s: float) -> bool:
        """Whether it was asked to stop, or its allocation ends before another iteration of `iteration_s`."""
        return self.request is not None or self.deadline.reason_to_stop(iteration_s) is not None
