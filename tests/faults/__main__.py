"""Kills and refuses at every call that writes: `python -m tests.faults [--scenario train] [--kind kill] [--every 5]`.

After a kill the same command, given again, completes, and leaves what an undisturbed one does. A disk that refuses is
an error of marlnb, which names the disk; a training's state is then "failed"; and the command completes when the disk
works again. A clock that is set back changes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.faults.processes import DISK_ERRORS, Fault, Outcome, compiler, has_library, run_with_fault, run_with_library

KINDS = ("kill", "torn", "full", *DISK_ERRORS, "clock")
FULL = ("ENOSPC", "EDQUOT", "full")
WORDS = {"ENOSPC": "is full", "full": "is full", "EDQUOT": "quota", "EROFS": "is read-only", "EIO": "does not work"}
NAMES = ("train", "evolve", "record", "segments", "merge", "repair", "backfill", "batch", "supervisor", "job")


class Trial:
    """One scenario in a folder of its own, with what an undisturbed command leaves."""

    def __init__(self, name: str, work: Path) -> None:
        from tests.faults.scenarios import SCENARIOS

        self.name, self.scenario = name, SCENARIOS[name]
        self.prepared, self.folder = work / f"{name}-prepared", work / name
        self.prepared.mkdir()
        self._run(partial(self.scenario.prepare, self.prepared))
        self._copy()
        self.calls = self._run(partial(self.scenario.command, self.folder), self.scenario.program).calls
        self.expected = self._run(partial(self.scenario.result, self.folder)).text

    def problems(self, fault: Fault) -> list[str]:
        """What is wrong after a fault and after the command was given again."""
        self._copy()
        command = partial(self.scenario.command, self.folder)
        outcome = run_with_fault(command, fault, self.folder, program=self.scenario.program)
        problems = self._wrong(outcome, fault)
        again = run_with_fault(command, Fault(0), self.folder)
        if again.kind != "done":
            return [*problems, f"again: {again.kind}: {again.text}"]
        left = run_with_fault(partial(self.scenario.result, self.folder), Fault(0), self.folder)
        if left.kind != "done":
            return [*problems, f"its result: {left.kind}: {left.text}"]
        different = sorted(
            name for name in {*left.text, *self.expected} if left.text.get(name) != self.expected.get(name)
        )
        return [*problems, *(f"{name} is {left.text.get(name)!r}" for name in different)]

    def _wrong(self, outcome: Outcome, fault: Fault) -> list[str]:
        """What is wrong with how a command ended under a fault."""
        if fault.kind in ("kill", "torn"):
            return [] if outcome.kind in ("killed", "done") else [f"{outcome.kind}: {outcome.text}"]
        if outcome.kind == "done":  # it could do without what was refused
            return []
        text = str(outcome.text)
        named = outcome.kind == "refused" and WORDS.get(fault.kind, "?") in text and str(self.folder) in text
        problems = [] if named else [f"{outcome.kind}: {text}"]
        if self.name == "train" and fault.kind in FULL:
            state = str(run_with_fault(self._state, Fault(0), self.folder).text)
            problems += [f"its state is {state}"] * (state != "failed")
        return problems

    def _state(self) -> str:
        from marlnb.training.runs.run import Run

        run = self.folder / "run"
        return Run.open(run).status()["state"] if (run / "status.json").exists() else "failed"

    def _copy(self) -> None:
        from tests.faults.scenarios import copy

        copy(self.prepared, self.folder)

    def _run(self, command: partial[object], program: str = "") -> Outcome:
        outcome = run_with_fault(command, Fault(0), self.folder, program=program)
        if outcome.kind != "done":
            raise RuntimeError(f"{self.name} without a fault: {outcome.kind}: {outcome.text}")
        return outcome


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--scenario", choices=NAMES, action="append", help="may be given several times")
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be given several times")
    parser.add_argument("--every", type=int, default=1, help="try each k-th call only")
    parser.add_argument("--first", type=int, default=1, help="the first call to try")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not has_library():
            if compiler() is None:
                parser.error("this machine has no C compiler (cc, gcc or clang) for tests/faults/faults.c")
            return run_with_library(["-m", "tests.faults", *arguments], Path(folder))
        n_problems = 0
        for name in options.scenario or NAMES:
            trial = Trial(name, Path(folder))
            for kind in options.kind or KINDS:
                start, numbers = time.monotonic(), range(options.first, len(trial.calls) + 1, options.every)
                n_before = n_problems
                for at in numbers:
                    for problem in trial.problems(Fault(at, kind)):
                        n_problems += 1
                        print(f"{name}, {kind} at {at} ({trial.calls[at - 1]}): {problem}", flush=True)
                took = time.monotonic() - start
                share = f"{len(numbers)} of {len(trial.calls)} calls"
                print(f"{name}, {kind}: {share}, {n_problems - n_before} problems, {took:.0f} s", flush=True)
    return 1 if n_problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
