"""One command under one fault after the other: how it ends, and what it leaves when it is given again."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from tests.faults.processes import Fault, Outcome, run_with_fault

FULL = ("ENOSPC", "EDQUOT", "full")
PROCESS = re.compile(r"[.-]\d{4,}(?=/|$)")
WORDS = {"ENOSPC": " free", "full": " free", "EDQUOT": "quota", "EROFS": "is read-only", "EIO": "does not work"}


class Trial:
    """One scenario in a folder of its own, with what an undisturbed command leaves."""

    def __init__(self, name: str, work: Path) -> None:
        from tests.faults.scenarios import SCENARIOS

        self.name, self.scenario = name, SCENARIOS[name]
        self.prepared, self.folder = work / f"{name}-prepared", work / name
        self.prepared.mkdir()
        self.continued: dict[str, list[str]] = {}
        """What was wrong after the command was given again, by the digest of what a fault had left."""
        self.results: dict[str, list[str]] = {}
        """What is wrong with what a command that completed left, by its digest."""
        self._run(partial(self.scenario.prepare, self.prepared))
        self._copy()
        self._warm_up()
        self._copy()
        self.calls = self._run(partial(self.scenario.command, self.folder), self.scenario.program).calls
        self.expected = self._run(partial(self.scenario.result, self.folder)).text

    def _warm_up(self) -> None:
        """Runs the command in this process, of which all others are forks: what is done once takes the most time."""
        if self.scenario.warm_up is not None:
            self.scenario.warm_up(self.folder)
        elif self.scenario.in_process:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                self.scenario.command(self.folder)
                self.scenario.result(self.folder)

    def problems(self, fault: Fault) -> list[str]:
        """What is wrong after a fault and after the command was given again."""
        self._copy()
        command = partial(self.scenario.command, self.folder)
        outcome = self._run_with(fault, command, self.scenario.program)
        problems = self._wrong(outcome, fault)
        left = digest_of(self.folder, outcome.pid) if self.scenario.in_process else ""
        if not left or left not in self.continued:
            self.continued[left] = self._wrong_again(command)
        return [*problems, *self.continued[left]]

    def _wrong_again(self, command: Callable[[], object]) -> list[str]:
        """What is wrong after the command was given again in the folder as it is."""
        again = self._run_with(Fault(0), command)
        if again.kind != "done":
            return [f"again: {again.kind}: {again.text}"]
        completed = digest_of(self.folder, again.pid) if self.scenario.in_process else ""
        if not completed or completed not in self.results:
            self.results[completed] = self._wrong_result()
        return self.results[completed]

    def _wrong_result(self) -> list[str]:
        """How what a command that completed left differs from what an undisturbed one leaves."""
        result = run_with_fault(partial(self.scenario.result, self.folder), Fault(0), self.folder)
        if result.kind != "done":
            return [f"its result: {result.kind}: {result.text}"]
        names = sorted({*result.text, *self.expected})
        return [
            f"{name} is {result.text.get(name)!r}" for name in names if result.text.get(name) != self.expected.get(name)
        ]

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
            problems += [f"its state is {state}"] * (state not in ("failed", "complete"))  # the last line of its log
        return problems

    def _run_with(self, fault: Fault, command: Callable[[], object], program: str = "") -> Outcome:
        """A command that starts processes waits for them, by the machine's clock."""
        return run_with_fault(command, fault, self.folder, program=program, counted=self.scenario.in_process)

    def _state(self) -> str:
        from marlnb.training.runs.run import Run

        run = self.folder / "run"
        return Run.open(run).status()["state"] if (run / "status.json").exists() else "failed"

    def _copy(self) -> None:
        from tests.faults.scenarios import copy

        copy(self.prepared, self.folder)

    def _run(self, command: Callable[[], object], program: str = "") -> Outcome:
        outcome = self._run_with(Fault(0), command, program)
        if outcome.kind != "done":
            raise RuntimeError(f"{self.name} without a fault: {outcome.kind}: {outcome.text}")
        return outcome


def digest_of(folder: Path, pid: int = 0) -> str:
    """A hash of all names and contents below a folder.

    Numbers of processes in the names of files do not count, nor does that of the process that wrote, in the contents.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(PROCESS.sub("", str(path.relative_to(folder))).encode() + b"\0")
        if path.is_file():
            content = path.read_bytes()
            if path.suffix != ".h5":
                content = content.replace(str(pid).encode(), b"pid")
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
