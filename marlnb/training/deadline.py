"""Deadline: when a training has to be saved, because what it runs on is about to be taken away."""

from __future__ import annotations

import os
import time

from marlnb.allocations import Allocation
from marlnb.formatting import format_duration

MARGIN_S = 60.0
SHARE = 0.25  # of a short allocation that the margin may take


class Deadline:
    """Looks at the clock between iterations; the scheduler is asked when it begins, and once more before it says stop.

    It says stop when the time left is less than a margin and one more iteration. The margin is a minute, twice what a
    checkpoint took where that is longer, and a quarter of what was left at the beginning where that is shorter.
    """

    def __init__(self) -> None:
        """Raises ConfigError when MARLNB_ENDS_AT is no number."""
        # a limit can have been shortened since it was shown; a thousand jobs that begin at once do not ask for that
        self._ends_at = Allocation.current(ask_again="MARLNB_JOB" not in os.environ).ends_at
        left = self._ends_at - time.time() if self._ends_at is not None else 0.0
        self._margin_s = min(MARGIN_S, SHARE * left)
        self._checkpoint_s = 0.0
        self.ignored = ""
        if self._ends_at is not None and left <= 0:  # of another job: a shell that outlived its own
            self.ignored = "the allocation's end is past already, and is not heeded"
            self._ends_at = None

    def saved(self, seconds: float) -> None:
        """A checkpoint took so long."""
        self._checkpoint_s = max(self._checkpoint_s, seconds)

    def reason_to_stop(self, iteration_s: float) -> str | None:
        """ "the allocation ends in 58 s" when it does too soon for an iteration of that length, else None."""
        if self._ends_at is None or not self._near(iteration_s):
            return None
        self._ends_at = Allocation.current(ask_again=True).ends_at  # more time may have been granted
        if self._ends_at is None or not self._near(iteration_s):
            return None
        return f"the allocation ends in {format_duration(max(0.0, self._ends_at - time.time()))}"

    def _near(self, iteration_s: float) -> bool:
        assert self._ends_at is not None
        return self._ends_at - time.time() < max(self._margin_s, 2 * self._checkpoint_s) + iteration_s
