"""Whole training iterations of IPPO: marlnb against BenchMARL, stepped in turns, with the same settings.

On one core: frames for each second of CPU time, with one thread. On both: frames for each second of the clock, against
the best of BenchMARL's ways to use them. Nothing else should be running.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from benchmarks import peers
from benchmarks.table import Row, report

ENVIRONMENTS = ("multiwalker", "simple_spread")
TARGETS = {("multiwalker", "cpu_s"): 1.9, ("multiwalker", "wall_s"): 2.6}
TARGETS |= {("simple_spread", "cpu_s"): 4.0, ("simple_spread", "wall_s"): 5.0}
Clock = Literal["cpu_s", "wall_s"]


@dataclass(frozen=True)
class Contestant:
    """One way to train: a driver, its threads, and the cores that it may use."""

    what: str
    driver: Literal["benchmarl", "marlnb"]
    threads: int
    n_cores: int
    workers: bool = False

    def command(self, environment: str) -> list[str]:
        python = str(peers.python(peers.BENCHMARL)) if self.driver == "benchmarl" else sys.executable
        words = [python, "-m", f"benchmarks.drivers.{self.driver}", environment, "--threads", str(self.threads)]
        return [*words, *(["--workers"] if self.workers else [])]


ONE_CORE = (Contestant("BenchMARL", "benchmarl", 1, 1), Contestant("marlnb", "marlnb", 1, 1))
ALL_CORES = (
    Contestant("BenchMARL, 1 thread", "benchmarl", 1, 2),
    Contestant("BenchMARL, 2 threads", "benchmarl", 2, 2),
    Contestant("BenchMARL, 8 workers", "benchmarl", 1, 2, workers=True),
    Contestant("marlnb", "marlnb", 2, 2),
)


class Session:
    """A driver's process; it stands still between two `iterate`."""

    def __init__(self, contestant: Contestant, environment: str) -> None:
        self.contestant = contestant
        cores = sorted(os.sched_getaffinity(0))[: contestant.n_cores]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            contestant.command(environment),
            cwd=peers.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(contestant.threads), "SDL_VIDEODRIVER": "dummy"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self._answer()

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


def measure(contestants: Sequence[Contestant], environment: str, clock: Clock, repetitions: int) -> list[Row]:
    """Frames per second of `clock` of each contestant, an iteration each in turns, one way round and the other."""
    rates: dict[str, list[float]] = {contestant.what: [] for contestant in contestants}
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session(contestant, environment)) for contestant in contestants]
        for repetition in range(repetitions):
            for session in sessions if repetition % 2 else reversed(sessions):
                cost = session.iterate()
                rates[session.contestant.what].append(cost["frames"] / cost[clock])
    unit = f"frames/{'CPU ' if clock == 'cpu_s' else ''}s"
    return with_targets([Row(what, tuple(found), unit) for what, found in rates.items()], TARGETS[environment, clock])


def with_targets(rows: Sequence[Row], target: float) -> list[Row]:
    """The last row, marlnb's, set against the best of the others."""
    *others, ours = rows
    best = max(others, key=lambda row: row.median)
    return [*others, Row(ours.what, ours.values, ours.unit, against=best.what, target=target)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=ENVIRONMENTS)
    parser.add_argument("--repetitions", type=int, default=5, help="iterations of 2000 frames that each is measured on")
    parser.add_argument("--part", choices=["one-core", "all-cores"], help="only this part")
    arguments = parser.parse_args()
    if not peers.python(peers.BENCHMARL).exists():
        raise SystemExit("BenchMARL's environment is missing: make bench-peers-setup")
    for environment in arguments.environments:
        if arguments.part != "all-cores":
            rows = measure(ONE_CORE, environment, "cpu_s", arguments.repetitions)
            report(f"training-{environment}-one-core", f"IPPO on {environment}, one core", rows)
        if arguments.part != "one-core":
            rows = measure(ALL_CORES, environment, "wall_s", arguments.repetitions)
            report(f"training-{environment}-two-cores", f"IPPO on {environment}, two cores", rows)


if __name__ == "__main__":
    main()
