"""Runs commands in processes that are killed, or whose disk refuses, at the n-th call that writes below a folder.

The calls are counted by `faults.c`, which is compiled with the machine's compiler and loaded before the C library. A
process that has it loaded forks one process per fault, so that torch is imported once.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from marlnb.errors import MarlnbError
from tests.forked import fork

SOURCE = Path(__file__).with_name("faults.c")
LIBRARY_VARIABLE = "MARLNB_FAULTS_LIBRARY"
STAYS, TORN, JUMP, COUNTED = 1, 2, 4, 8  # flags of faults.c
LIMIT_S = 300.0  # on a busy machine; a hang takes longer
DISK_ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO")}


@dataclass(frozen=True)
class Fault:
    """What happens at the `at`-th call that writes.

    Attributes:
        at: number of the call, from 1; 0: nothing happens.
        kind: "kill", "torn" (killed after half of a write), one of `DISK_ERRORS`, "full" (half of a write succeeds
            before ENOSPC), or "clock" (it is set back by an hour).
    """

    at: int
    kind: str = "kill"

    @property
    def error(self) -> int:
        return {"kill": 0, "torn": 0, "clock": 3600, "full": errno.ENOSPC}.get(self.kind, DISK_ERRORS.get(self.kind, 0))

    @property
    def flags(self) -> int:
        return {"kill": 0, "torn": TORN, "clock": JUMP, "full": STAYS | TORN}.get(self.kind, STAYS)


class Outcome(NamedTuple):
    """How a command ended.

    Attributes:
        kind: "done", "refused" (by an error of marlnb), "traceback" (any other), "killed" or "hang".
        text: what the command returned, as JSON has it, or the error.
        calls: that wrote until then, as `rename /status.json`.
        pid: of the command's process.
    """

    kind: str
    text: Any
    calls: tuple[str, ...]
    pid: int


def compiler() -> str | None:
    """The machine's C compiler."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def run_with_library(words: list[str], folder: Path) -> int:
    """Runs `python` with these arguments in a process that has the library loaded; returns its exit code."""
    library = folder / "faults.so"
    compile_words = [str(compiler()), "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(compile_words, check=True)
    variables = {"LD_PRELOAD": str(library), LIBRARY_VARIABLE: str(library), "OMP_NUM_THREADS": "1"}
    variables["MARLNB_DATA_DIR"] = str(folder / "data")  # what is trained here is not trusted after it
    return subprocess.run([sys.executable, *words], env={**os.environ, **variables}, check=False).returncode


def has_library() -> bool:
    return LIBRARY_VARIABLE in os.environ


def run_with_fault(
    command: Callable[[], object], fault: Fault, folder: Path, *, program: str = "", counted: bool = False
) -> Outcome:
    """Runs a command in a fork of this process, which writes below a folder.

    Args:
        program: the first process that the command starts with this in its command line meets the fault, not the fork.
        counted: each look at the time of day is a microsecond after the one before.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary) / "calls"
        child = fork()
        if child == 0:
            os.close(reader)
            _run_in_child(command, fault, folder, writer, log, program, counted)
        os.close(writer)
        answer = _read(reader, child)
        lines = tuple(log.read_text().splitlines()) if log.exists() else ()
    if answer:
        kind, text = json.loads(answer)
        return Outcome(kind, text, lines, child)
    return Outcome("hang" if answer is None else "killed", "", lines, child)


def call_in_fork(call: Callable[[], int]) -> None:
    """Calls a command's main function in a fork, which meets the fault of `run_with_fault(program=...)`, if any.

    This process has imported what the command imports, so that an attempt does not start Python again.
    """
    child = fork()
    if child:
        os.waitpid(child, 0)
        return
    code = 1
    try:
        if variable := os.environ.pop("MARLNB_FAULTS", ""):  # what it starts meets none
            _, folder, at, error, flags, log = variable.split(" ")
            calls = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            library = ctypes.CDLL(os.environ[LIBRARY_VARIABLE])
            library.faults_arm(folder.encode(), ctypes.c_long(int(at)), int(error), int(flags), calls)
        code = call()
    finally:
        os._exit(code)


def _run_in_child(
    command: Callable[[], object], fault: Fault, folder: Path, pipe: int, log: Path, program: str, counted: bool
) -> None:
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        library = ctypes.CDLL(os.environ[LIBRARY_VARIABLE])
        if program:
            os.environ["MARLNB_FAULTS"] = f"{program} {folder} {fault.at} {fault.error} {fault.flags} {log}"
        else:
            calls = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
            flags = fault.flags | (COUNTED if counted else 0)
            library.faults_arm(str(folder).encode(), ctypes.c_long(fault.at), fault.error, flags, calls)
        try:
            outcome = ["done", command()]
        except MarlnbError as error:
            outcome = ["refused", f"{type(error).__name__}: {error}"]
        except BaseException as error:
            outcome = ["traceback", _where(error)]
        library.faults_arm(b"", ctypes.c_long(0), 0, 0, -1)
        os.write(pipe, json.dumps(outcome).encode())
    finally:
        os._exit(0)


def _read(reader: int, child: int) -> bytes | None:
    """What a child wrote before it ended; None where it takes too long, then it is killed."""
    answer, deadline = b"", time.monotonic() + LIMIT_S
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.killpg(child, signal.SIGKILL)
                return None
            part = os.read(reader, 65536)
            if not part:
                return answer
            answer += part
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/marlnb/" in frame.filename]
    place = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])
    return f"{type(error).__name__} in {place or '?'}: {str(error)[:300]}"
