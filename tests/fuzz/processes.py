"""Runs inputs in processes of their own, so that a crash or a hang of one of them is an outcome like any other.

An outcome is a kind and what happened. Right are: same or accepted (the right answer), refused (an error of marlnb's
own, of a readable length). Wrong are: traceback (any other error), nonsense (accepted, and wrong), changed (other
values without an error), verbose (an error of more than `MAX_MESSAGE` characters), crash, hang (more than `LIMIT_S`).
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from marlnb.errors import MarlnbError
from tests.forked import fork

Outcome = tuple[str, str]
LIMIT_S = 10.0  # of processor time; a process that waits has six times as long by the clock
RIGHT = ("same", "accepted", "refused")
STACK_S = 0.5  # a process that hangs has so long to write where it is
MAX_MESSAGE = 6_000
MEMORY_BYTES = 6 * 2**30  # of address space, beyond what this process has mapped


class Target(Protocol):
    """What is tried with random inputs."""

    def draw(self, generator: Any) -> bytes:
        """A new input, a function of the generator's state."""

    def outcome(self, data: bytes) -> Outcome:
        """What an input does in this process; errors are raised."""


def try_input(target: Target, data: bytes) -> Outcome:
    """The outcome of one input in this process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return target.outcome(data)
    except MarlnbError as error:
        text = str(error)
        return ("verbose", f"{len(text):,} characters: {text[:100]}") if len(text) > MAX_MESSAGE else ("refused", text)
    except Exception as error:
        return "traceback", where(error)


def try_in_processes(target: Target, inputs: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, Outcome]]:
    """The outcomes of numbered inputs, many in one process; after one that ends it, another continues."""
    waiting = list(inputs)
    while waiting:
        n_done = 0
        for outcome in _in_a_process(target, [data for _, data in waiting]):
            number, data = waiting[n_done]
            n_done += 1
            yield number, data, outcome
        waiting = waiting[n_done:]


def where(error: BaseException) -> str:
    """The type of an error and the last line of marlnb that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/marlnb/" in frame.filename]
    position = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} in {position}: {str(error)[:120]}"


def _in_a_process(target: Target, inputs: Sequence[bytes]) -> Iterator[Outcome]:
    """The outcomes of inputs in a fork of this process, up to the first one that ends it."""
    read_end, write_end = os.pipe()
    stack = tempfile.TemporaryFile()  # noqa: SIM115  closed below
    child = fork()
    if child == 0:
        _serve(target, inputs, write_end, stack)
    with suppress(OSError):
        os.setpgid(child, child)  # here and there, since either may be first
    os.close(write_end)
    n_done, reason = 0, ""
    try:
        with open(read_end, "rb") as answers:
            while not reason and n_done < len(inputs):
                line, reason = _next_line(answers, child)
                if line:
                    n_done += 1
                    kind, text = json.loads(line)
                    yield kind, text
        place = _stack(child, stack) if reason == "hang" else ""
    finally:
        os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        stack.close()
    if n_done < len(inputs):
        ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        yield ("hang", f"more than {LIMIT_S:g} s{place}") if reason == "hang" else ("crash", ended)


def _stack(child: int, file: IO[bytes]) -> str:
    """Where a process hangs, as it says itself."""
    os.kill(child, signal.SIGUSR1)
    time.sleep(STACK_S)
    return "\n" + os.pread(file.fileno(), 10_000, 0).decode(errors="replace")


def _serve(target: Target, inputs: Sequence[bytes], answers: int, stack: IO[bytes]) -> None:
    """Answers in a forked process, which never returns."""
    try:
        os.setpgid(0, 0)
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for data in inputs:
            os.write(answers, json.dumps(try_input(target, data)).encode() + b"\n")
        os._exit(0)
    except BaseException:
        os._exit(1)


def _next_line(answers: Any, child: int) -> tuple[bytes, str]:
    """The next answer; or nothing, and "hang" or "end" as the reason."""
    started, used = time.monotonic(), _cpu_s(child)
    while True:
        if select.select([answers], [], [], 0.5)[0]:
            line = answers.readline()
            return line, "" if line else "end"
        waited = time.monotonic() - started
        if waited > LIMIT_S and (_cpu_s(child) - used > LIMIT_S or waited > 6 * LIMIT_S):
            return b"", "hang"


def _cpu_s(process: int) -> float:
    """Seconds of processor time of a process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
