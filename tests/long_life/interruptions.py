"""Interrupts of cells at random moments, while worker processes step environments: nothing stays, and cells work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.long_life.cycles import SETUP
from tests.long_life.kernel import LOST, Ending, Holdings, running_kernel

ALLOWED = ("", "KeyboardInterrupt", LOST)
GRACE_S = 10.0  # until processes that have to end have ended
CELL = """
run = train("workers", "runs/interrupted", 0, resume=True)
mnb.evaluate(run, episodes=4)
mnb.record(run, name="recording-{number}", episodes=8, progress=False).close()
"""
NEXT = """
import gc
run = train("workers", "runs/interrupted", 0, resume=True)
assert run.status()["state"] == "complete", run.status()
assert mnb.evaluate(run, episodes=2).episodes == 2
shutil.rmtree("runs")
del run
gc.collect()
"""


@dataclass(frozen=True)
class Interruption:
    """One interrupted cell.

    Attributes:
        after_s: time from its start to the first interrupt.
        twice: whether a second interrupt followed.
        ending: of the cell.
        held: by the kernel after it, when processes had time to end.
        problem: of the next cell; "" if it worked.
    """

    after_s: float
    twice: bool
    ending: Ending
    held: Holdings
    problem: str


def interrupt_cells(
    n: int, folder: Path, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> tuple[Holdings, list[Interruption]]:
    """What a kernel held before, and n interruptions of cells in it."""
    generator, interruptions = np.random.default_rng(seed), []
    with running_kernel(folder) as kernel:
        kernel.run(SETUP)
        started = time.monotonic()
        for number in range(2):
            kernel.run(CELL.format(number=number))
            kernel.run(NEXT)
        duration_s = (time.monotonic() - started) / 2
        before = kernel.holdings()
        for number in range(n):
            after_s, twice = float(generator.uniform(0, duration_s)), bool(generator.random() < 0.3)
            cell = kernel.start(CELL.format(number=number))
            time.sleep(after_s)
            kernel.interrupt()
            if twice:
                time.sleep(float(generator.uniform(0, 0.2)))
                kernel.interrupt()
            ending = kernel.end(cell)
            deadline = time.monotonic() + GRACE_S
            while (held := kernel.holdings()).processes and time.monotonic() < deadline:
                time.sleep(0.2)
            after = kernel.end(kernel.start(NEXT))
            if after.error in ("KeyboardInterrupt", LOST):  # the interrupt came when the cell had just ended
                after = kernel.end(kernel.start(NEXT))
            interruptions.append(Interruption(after_s, twice, ending, held, after.text if after.error else ""))
            if number % 10 == 9 or after.error or ending.error not in ALLOWED or held.processes:
                how = "twice" if twice else "once"
                say(f"{number}: after {after_s:.2f} s, {how}: {ending.error or 'ended'}; {held}")
        say(f"at the end: {kernel.holdings()}")
    return before, interruptions


def problems(before: Holdings, interruptions: list[Interruption]) -> list[str]:
    """What an interrupted cell left or broke."""
    failures = []
    for number, one in enumerate(interruptions):
        where = f"{number}: {'two interrupts' if one.twice else 'an interrupt'} after {one.after_s:.3f} s"
        if one.ending.error not in ALLOWED:
            failures.append(f"{where}: the cell ended with {one.ending.text[-2000:]}")
        if one.held.processes > before.processes:
            failures.append(f"{where}: {one.held.processes} processes stay")
        if one.problem:
            failures.append(f"{where}: the next cell failed: {one.problem[-2000:]}")
    last = interruptions[-1].held
    for name in ("threads", "files", "shared"):
        if last.counts()[name] > before.counts()[name] + 2:  # the last traceback may hold one of each
            failures.append(f"{name} grew from {before.counts()[name]} to {last.counts()[name]}")
    return failures
