"""Training runs that alternate: each side is a process that does one iteration on request and reports its cost."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from benchmarks import peers
from benchmarks.table import Row

Clock = Literal["cpu_s", "wall_s"]
Driver = Literal["agilerl", "agilerl_evolution", "benchmarl", "jaxmarl", "marlnb", "marlnb_evolution", "warpdrive"]
PYTHONS: dict[Driver, Path] = {
    "agilerl": peers.python(peers.AGILERL),
    "agilerl_evolution": peers.python(peers.AGILERL),
    "benchmarl": peers.python(peers.BENCHMARL),
    "jaxmarl": peers.python(peers.JAXMARL),
    "marlnb": Path(sys.executable),
    "marlnb_evolution": Path(sys.executable),
    "warpdrive": peers.python(peers.WARPDRIVE),
}


@dataclass(frozen=True)
class Contestant:
    """One way to train: a driver, its threads, the cores that it may use, and further words for the driver."""

    what: str
    driver: Driver
    threads: int = 1
    n_cores: int = 1
    options: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.driver.startswith("marlnb")

    def command(self, task: str) -> list[str]:
        words = [str(PYTHONS[self.driver]), "-m", f"benchmarks.drivers.{self.driver}", task]
        return [*words, "--threads", str(self.threads), *self.options]


def ways_of_marlnb(
    precisions: Sequence[str], *, threads: int = 1, n_cores: int = 1, options: tuple[str, ...] = ()
) -> list[Contestant]:
    """marlnb with torch's operators and with compiled gradient steps, with networks of each precision."""
    ways = []
    for precision in precisions:
        name = "marlnb" if precision == "float32" else f"marlnb, {precision}"
        for kind in ("never", "first"):
            words = (*options, "--precision", precision, "--compile", kind)
            ways.append(Contestant(f"{name}, compile={kind}", "marlnb", threads, n_cores, words))
    return ways


def add_precisions(parser: argparse.ArgumentParser) -> None:
    """The argument `precisions` of `ways_of_marlnb`."""
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=["float32", "bfloat16"],
        default=["float32"],
        help="of marlnb's networks (%(default)s); without instructions for bfloat16 it is many times slower",
    )


class Session:
    """A driver's process; it is idle between two calls of `iterate`.

    Args:
        ready_s: seconds until it must be ready to iterate; None: any time.
    Raises:
        SystemExit: the driver ended, or was not ready in time; the text has its last words.
    """

    def __init__(self, contestant: Contestant, task: str, ready_s: float | None = None) -> None:
        self.contestant = contestant
        cores = sorted(os.sched_getaffinity(0))[: contestant.n_cores]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            contestant.command(task),
            cwd=peers.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(contestant.threads), "SDL_VIDEODRIVER": "dummy"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        limit = None if ready_s is None else threading.Timer(ready_s, self._process.kill)
        if limit is not None:
            limit.start()
        try:
            self._answer()
        finally:
            if limit is not None:
                limit.cancel()

    def iterate(self) -> dict[str, float]:
        """One more iteration; returns frames, cpu_s and wall_s."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            last = self._complaints.read().decode(errors="replace")[-3000:]
            raise SystemExit(f"{self.contestant.what} ended with {self._process.wait()}:\n{last}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=60)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._complaints.close()


def measure(
    contestants: Sequence[Contestant], task: str, clock: Clock, repetitions: int, target: float | None
) -> list[Row]:
    """Frames per second of `clock` of each contestant; they alternate by iteration, in both orders.

    Each of ours is compared with the best of the others; if all are ours, with the first.
    """
    rates: dict[str, list[float]] = {contestant.what: [] for contestant in contestants}
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session(contestant, task)) for contestant in contestants]
        for repetition in range(repetitions):
            for session in sessions if repetition % 2 else reversed(sessions):
                cost = session.iterate()
                rates[session.contestant.what].append(cost["frames"] / cost[clock])
    unit = f"frames/{'CPU ' if clock == 'cpu_s' else ''}s"
    rows = {contestant: Row(contestant.what, tuple(rates[contestant.what]), unit) for contestant in contestants}
    others = [row for contestant, row in rows.items() if not contestant.is_ours] or [rows[contestants[0]]]
    best = max(others, key=lambda row: row.median).what
    return [row if row in others else replace(row, against=best, target=target) for row in rows.values()]


def check_peers(*folders: Path) -> None:
    """Ends the program unless the peers' environments are installed."""
    missing = [folder.name for folder in folders if not peers.python(folder).exists()]
    if missing:
        raise SystemExit(f"the environment of {' and '.join(missing)} is missing: make bench-peers-setup")
