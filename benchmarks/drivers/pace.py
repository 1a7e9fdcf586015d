"""The protocol by which two training runs alternate: each does one iteration on request and reports its cost.

A driver trains, calling `Pace.iteration_done()` after each iteration. After the warm-up it waits for a line on
standard input before each further iteration, and answers with one line of JSON. Waiting costs no CPU time, set-up and
warm-up are not counted, and two drivers can alternate on the same cores.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import NoReturn

import psutil


def cpu_seconds() -> float:
    """CPU time of this process and of all its living descendants."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


class Pace:
    """The driver's side of the conversation.

    Args:
        frames: environment steps in one iteration.
        warmup: iterations before the first that counts.
    """

    def __init__(self, frames: int, warmup: int = 1) -> None:
        self.frames = frames
        self.warmup = warmup
        self._done = 0
        self._cpu_s = 0.0
        self._wall_s = 0.0
        self._answers = os.dup(1)
        os.dup2(2, 1)  # whatever a library prints must not come between the answers

    def iteration_done(self) -> None:
        self._done += 1
        if self._done < self.warmup:
            return
        if self._done > self.warmup:
            self._say(cpu_s=cpu_seconds() - self._cpu_s, wall_s=time.perf_counter() - self._wall_s, frames=self.frames)
        else:
            self._say(ready=True)
        if not sys.stdin.readline().strip():
            self.end()
        self._cpu_s, self._wall_s = cpu_seconds(), time.perf_counter()

    def end(self) -> NoReturn:
        sys.exit(0)

    def _say(self, **answer: float) -> None:
        os.write(self._answers, (json.dumps(answer) + "\n").encode())
