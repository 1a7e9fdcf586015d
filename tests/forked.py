"""Scripts that are killed: each runs in a fork of the test's process, which has imported torch and marlnb already."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import warnings

import torch


def fork() -> int:
    """As `os.fork`, with a child that waits for no thread of its parent, since it has none of them.

    It computes in one thread, and finalises nothing that the parent left to its garbage collector.
    """
    gc.freeze()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of pytest-xdist's thread
            child = os.fork()
    except OSError:
        gc.unfreeze()
        raise
    if child:
        gc.unfreeze()
    else:
        torch.set_num_threads(1)
    return child


class Forked:
    """A child process that executes a script, as `python -c SCRIPT ARGUMENTS` would.

    Attributes:
        pid: of the child.
        returncode: None while it runs; its exit code, or minus the signal that ended it.
    """

    def __init__(self, script: str, *arguments: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = fork()
        self.returncode: int | None = None
        if self.pid == 0:
            _execute(script, arguments)

    def poll(self) -> int | None:
        """The return code; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 200) -> int:
        """The return code, once it has ended. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} runs after {timeout} s")
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(script: str, *arguments: object) -> int:
    """Runs a script to its end and returns its exit code."""
    return Forked(script, *arguments).wait()


def _execute(script: str, arguments: tuple[object, ...]) -> None:
    code = 1
    try:
        sys.argv = ["-c", *map(str, arguments)]
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
