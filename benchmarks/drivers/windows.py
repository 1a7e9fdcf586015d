"""Measures a training's thread from outside, over pairs of short windows: one with an additional load, one without.

A machine's speed varies over seconds to minutes by more than the few percent to be measured. So the windows are short,
adjacent ones are compared, their order is random, and the result is the median of the pairs' ratios with a bootstrap
interval. Frames per second on a core do not depend on other users of the cores; the share of time on a core does not
depend on the cores' speed; frames per second, the product of both, depends on both.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.drivers.kernel import times_of
from marlnb.training.runs.files import METRICS
from marlnb.training.runs.run import Run

LOOK_S = 0.003
MAX_WAIT_S = 60.0  # an iteration, and the wait for it
TAIL_BYTES = 65_536
RESAMPLES = 4000


@dataclass(frozen=True)
class Window:
    """What a training run did between the ends of two iterations.

    Attributes:
        frames: environment steps. wall_s: duration. ran_s, waited_s: its thread's seconds on a core, and of waiting for
            one; the rest of the time it slept (Python's lock, files). others_s: seconds on a core of the kernel's other
            threads. outside_s: the same of the other processes that this one started, such as a browser.
    """

    frames: int
    wall_s: float
    ran_s: float
    waited_s: float
    others_s: float
    outside_s: float

    @property
    def per_cpu_s(self) -> float:
        return self.frames / self.ran_s

    @property
    def per_s(self) -> float:
        return self.frames / self.wall_s

    @property
    def on_core(self) -> float:
        return self.ran_s / self.wall_s

    @property
    def slept(self) -> float:
        return max(0.0, 1 - (self.ran_s + self.waited_s) / self.wall_s)


@dataclass(frozen=True)
class Pair:
    """Neighbouring windows."""

    plain: Window
    loaded: Window


def watch(run: Run, pid: int, thread: int, seconds: float) -> Window:
    """A window of at least `seconds`, from the end of the run's next iteration.

    Raises:
        TimeoutError: no iteration ended within a minute.
    """
    first = _iteration_end(run, pid, thread)
    time.sleep(max(0.0, first.now_s + seconds - time.monotonic()))
    last = _iteration_end(run, pid, thread)
    wall_s, ran_s, waited_s, others_s, outside_s = (b - a for a, b in zip(first[1:], last[1:]))
    return Window(last.frames - first.frames, wall_s, ran_s, waited_s, others_s, outside_s)


def in_pairs(
    n: int, switch: Callable[[bool], None], window: Callable[[], Window], *, settle_s: float, seed: int = 0
) -> list[Pair]:
    """`n` pairs of windows; `switch(True)` adds the load to be measured, `switch(False)` removes it."""
    rng, pairs, state = random.Random(seed), [], None
    for _ in range(n):
        windows = {}
        for loaded in rng.sample([False, True], 2):
            if loaded is not state:
                switch(loaded)
                time.sleep(settle_s)
                state = loaded
            windows[loaded] = window()
        pairs.append(Pair(windows[False], windows[True]))
    if state:
        switch(False)
    return pairs


def interval(values: Sequence[float], *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Bootstrap percentiles of the median."""
    rng = random.Random(seed)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = int((1 - level) / 2 * RESAMPLES)
    return medians[cut], medians[-1 - cut]


def place(kernel: int, cores: set[int], other_cores: set[int]) -> None:
    """The kernel's process on some cores, and this process with all others that it began on other ones."""
    for process in psutil.Process().children(recursive=True):
        _pin(process.pid, cores if process.pid == kernel else other_cores)
    _pin(os.getpid(), other_cores)


def _pin(pid: int, cores: set[int]) -> None:
    """All threads of a process; those that they begin later follow."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return
    for thread in threads:
        with suppress(ProcessLookupError):  # it ended just now
            os.sched_setaffinity(thread, cores)


class _Moment(NamedTuple):
    """Frames, the clock, and the times of a `Window` so far."""

    frames: int
    now_s: float
    ran_s: float
    waited_s: float
    others_s: float
    outside_s: float


def _iteration_end(run: Run, pid: int, thread: int) -> _Moment:
    """When the next iteration has ended."""
    path, start = run.path / METRICS, time.monotonic()
    size = path.stat().st_size
    while path.stat().st_size == size:
        if time.monotonic() - start > MAX_WAIT_S:
            raise TimeoutError(f"{run.path}: no iteration ended within {MAX_WAIT_S:g} s")
        time.sleep(LOOK_S)
    now, times = time.monotonic(), times_of(pid)
    ran, waited = times.pop(thread)
    others = sum(used for used, _ in times.values())
    return _Moment(int(_last_row(path)["frames"]), now, ran, waited, others, _outside_s(pid))


def _outside_s(pid: int) -> float:
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            spent += sum(process.cpu_times()[:2]) if process.pid != pid else 0.0
    return spent


def _last_row(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        row: dict[str, Any] = json.loads(file.read().splitlines()[-1])
    return row
