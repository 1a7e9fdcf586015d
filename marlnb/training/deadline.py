"""Deadline: when a training run must be saved because its allocation is about to end."""

from __future__ import annotations

import os
import time

from marlnb.allocations import Allocation
from marlnb.display.formatting import format_duration

MAX_MARGIN_S = 60.0
MAX_MARGIN_SHARE = 0.25  # of a short allocation


class Deadline:
    """Checks the clock between iterations. The scheduler is asked at the start, and again before a stop.

    A training run must stop if the remaining time is less than a margin plus one more iteration. The margin is a
    minute, or a quarter of the time left at the start if that is shorter, but at least twice the longest checkpoint.
    A clock that is set back does not move the end: the time that passed is also counted by a clock that cannot be set.

    Attributes:
        ignored: why the allocation's end is ignored; empty if it is not.
    """

    def __init__(self) -> None:
        """Raises ConfigError if MARLNB_ENDS_AT is not a number."""
        # Asking again finds limits that were shortened meanwhile. Jobs do not: a thousand may start at once.
        self._ends_at = Allocation.current(ask_again="MARLNB_JOB" not in os.environ).ends_at
        self._clock_offset_s = time.time() - time.monotonic()
        remaining_s = self._remaining_s() if self._ends_at is not None else 0.0
        self._margin_s = min(MAX_MARGIN_S, MAX_MARGIN_SHARE * remaining_s)
        self._checkpoint_s = 0.0
        self.ignored = ""
        if self._ends_at is not None and remaining_s <= 0:  # left by another job in a shell that outlived it
            self.ignored = "the allocation's end has passed and is ignored"
            self._ends_at = None

    def record_checkpoint(self, seconds: float) -> None:
        """Notes how long a checkpoint took."""
        self._checkpoint_s = max(self._checkpoint_s, seconds)

    def reason_to_stop(self, iteration_s: float) -> str | None:
        """For example "the allocation ends in 58 s", if another iteration of `iteration_s` does not fit; else None."""
        if self._ends_at is None or not self._is_near(iteration_s):
            return None
        self._ends_at = Allocation.current(ask_again=True).ends_at  # more time may have been granted
        if self._ends_at is None or not self._is_near(iteration_s):
            return None
        return f"the allocation ends in {format_duration(max(0.0, self._remaining_s()))}"

    def _is_near(self, iteration_s: float) -> bool:
        return self._remaining_s() < max(self._margin_s, 2 * self._checkpoint_s) + iteration_s

    def _remaining_s(self) -> float:
        assert self._ends_at is not None
        return self._ends_at - max(time.time(), time.monotonic() + self._clock_offset_s)
