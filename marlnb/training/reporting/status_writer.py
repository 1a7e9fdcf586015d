"""StatusWriter: writes to a run folder what its training does, for those who watch it from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from marlnb.experiment import Experiment
from marlnb.training.limits import Trained, expected_frames, limits_of
from marlnb.training.runs.run_folder import RunFolder
from marlnb.training.runs.states import RUNNING_STATES, RunState

STATUS_INTERVAL_S = 1.0
PROGRESS = ("iteration", "frames", "checkpoint", "scores", "frames_per_second")


class StatusWriter:
    """Writes the status of one training run.

    Attributes:
        rate: frames per second of the last iteration; 0 before the first.
    """

    def __init__(self, experiment: Experiment, run: RunFolder) -> None:
        self._experiment, self._run = experiment, run
        self._written_at = self.rate = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written_at >= STATUS_INTERVAL_S

    def write(
        self,
        state: RunState,
        trained: Trained | None,
        scores: Mapping[str, Mapping[str, float]],
        *,
        reason: str = "",
        **facts: Any,
    ) -> None:
        """Replaces the status.

        Args:
            trained: so far; None: not known yet, so that what the last session has written stays.
            scores: by mode, the mean return of one agent by group.
            reason: why the training was stopped; empty if it was not.
        """
        self._written_at = time.monotonic()
        total = expected_frames(self._experiment, trained or Trained(), self.rate)
        facts |= {"frames_total": total, "limits": limits_of(self._experiment)}
        if trained is None:
            earlier = {name: value for name, value in self._run.status().items() if name in PROGRESS}
            return self._run.write_status(state, **facts, **earlier)
        self._run.write_status(
            state,
            iteration=trained.iterations,
            frames=trained.frames,
            scores=scores,
            frames_per_second=self.rate,
            eta_s=max(0, total - trained.frames) / self.rate if self.rate and state in RUNNING_STATES else None,
            **({"reason": reason} if reason else {}),
            **facts,
        )
