"""The parent's side of worker processes: sends commands, waits for answers, and always ends the processes."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from marlnb import errors
from marlnb.envs.workers.closing import close_on_error, interrupts_after
from marlnb.envs.workers.memory import Arrays, anonymous_file, arrays_in, size_bytes
from marlnb.envs.workers.process import COMMAND_BYTES, DONE, FAILURE, LABELS, RENDER, RESET, STEP, WAKE, receive, send
from marlnb.envs.workers.source import EnvSource
from marlnb.errors import EnvError, MarlnbError
from marlnb.specs import EnvSpec

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from marlnb.envs.workers.process import main; main(*map(int, sys.argv[2:]))"
)
_SETTINGS = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dsp",
    "PYGAME_HIDE_SUPPORT_PROMPT": "hide",
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")},
}
_DEFAULTS = {"PYTHONHASHSEED": "0"}  # sets of strings have the same order in all workers
_GRACE_S = 3.0  # for the environments to close before their process is killed


class _Worker:
    """One process, the pipes to it, and the numbers of the envs that it steps."""

    def __init__(self, slot: int, indices: Sequence[int], memory: int) -> None:
        self.slot, self.indices = slot, indices
        command_in, self.command = os.pipe()
        self.result, result_out = os.pipe()
        lifeline_in, self.lifeline = os.pipe()  # nothing is ever written to it; it closes when this process ends
        inherited = (command_in, result_out, lifeline_in, memory)
        words = [str(number) for number in (*inherited, slot)]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), *words],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt typed at the terminal reaches only the parent
                env={**_DEFAULTS, **os.environ, **_SETTINGS},
            )
        finally:
            for descriptor in (command_in, result_out, lifeline_in):
                os.close(descriptor)

    def answer(self) -> Any:
        """Waits for an object that the worker sends.

        Raises:
            MarlnbError: the worker failed; of the kind that was raised there.
            EnvError: the process has ended.
        """
        try:
            while (word := os.read(self.result, 1)) == DONE:
                pass  # left over from an interrupted command
            value = receive(self.result) if word else None
        except EOFError:
            word = b""
        if not word:
            raise EnvError(self.death_message())
        if word == FAILURE:
            raise self.failure(value)
        return value

    def failure(self, description: Any) -> MarlnbError:
        """The error that was raised in the process, with the same class and message."""
        kind: type[MarlnbError] = getattr(errors, description[0])
        return kind(description[1])

    def death_message(self) -> str:
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return f"the worker process of envs {list(self.indices)} (process {self.process.pid}) {how}"


class Pool:
    """Processes that step the B envs between them.

    Raises:
        EnvError: an environment cannot be built, or a process cannot be started; no process is left running.
        MarlnbError: a worker raised it.
    """

    def __init__(self, source: EnvSource, n_envs: int, n_workers: int) -> None:
        if not sys.executable:
            raise EnvError("sys.executable is empty, so worker processes cannot be started; use workers=0")
        self.name = source.name
        memory = anonymous_file()
        self.workers: list[_Worker] = []
        self._close = weakref.finalize(self, _end, self.workers, os.getpid())
        close_on_error(self)
        try:
            for slot in range(n_workers):
                indices = range(slot * n_envs // n_workers, (slot + 1) * n_envs // n_workers)
                with interrupts_after():
                    self.workers.append(_Worker(slot, indices, memory))
            self._begin(source, n_envs, memory)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(memory)

    def _begin(self, source: EnvSource, n_envs: int, memory: int) -> None:
        from marlnb.envs.workers.pickling import pickled  # imports cloudpickle, which only workers need

        pickled_source = pickled(source)
        for worker in self.workers:
            self._send(worker, {"path": sys.path, "source": pickled_source, "indices": list(worker.indices)})
        answers = [worker.answer() for worker in self.workers]
        self.spec: EnvSpec = answers[0]  # only the first worker sends the spec
        size = COMMAND_BYTES + size_bytes(self.spec, n_envs)
        os.ftruncate(memory, size)
        shared = mmap.mmap(memory, size)
        self.arrays: Arrays = arrays_in(shared, self.spec, n_envs, COMMAND_BYTES)
        self._head = memoryview(shared)[:COMMAND_BYTES].cast("q")
        for worker in self.workers:
            self._send(worker, {"size": size, "spec": self.spec, "n_envs": n_envs})
        for worker in self.workers:
            worker.answer()

    def _send(self, worker: _Worker, value: Any) -> None:
        try:
            send(worker.command, value)
        except BrokenPipeError:
            worker.answer()  # raises the worker's own error
            raise

    def reset(self) -> None:
        self._command(RESET)

    def start_step(self) -> None:
        self._start(STEP)

    def finish_step(self) -> None:
        self._finish()

    def write_labels(self) -> None:
        self._command(LABELS)

    def render(self, index: int) -> np.ndarray:
        self._check_open()
        worker = next(worker for worker in self.workers if index in worker.indices)
        try:
            os.write(worker.command, RENDER)
            send(worker.command, index)
            picture: np.ndarray = worker.answer()
        except BaseException:
            self.close()
            raise
        return picture

    def close(self) -> None:
        with interrupts_after():  # entered before `_close`, which an interrupt at its start would use up
            self._close()

    def _command(self, kind: int) -> None:
        """Makes all workers do one thing. An interrupt is raised when they have finished, a second one at once."""
        self._start(kind)
        self._finish()

    def _start(self, kind: int) -> None:
        self._check_open()
        if not self._is_idle():  # an interrupt came between a step's start and its end
            self._wake_workers()
            self._finish()
        self._head[1] = kind
        self._head[0] += 1
        try:
            self._wake_workers()
        except KeyboardInterrupt:
            self._wake_workers()
            self._finish(interrupted=True)
            raise
        except BaseException:
            self.close()
            raise

    def _finish(self, interrupted: bool = False) -> None:
        self._check_open()
        try:
            try:
                self._wait_for_workers()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                self._wait_for_workers()  # nothing is done twice: the command's number is the same
                raise
        except KeyboardInterrupt:
            if not self._is_idle():
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _check_open(self) -> None:
        if not self._close.alive:
            raise EnvError(f"{self.name} is closed")

    def _is_idle(self) -> bool:
        return all(self._head[2 + worker.slot] == self._head[0] for worker in self.workers)

    def _wake_workers(self) -> None:
        for worker in self.workers:
            if self._head[2 + worker.slot] != self._head[0]:
                self._wake(worker)

    def _wait_for_workers(self) -> None:
        head, number = self._head, self._head[0]
        for worker in self.workers:
            while head[2 + worker.slot] != number:
                if (word := os.read(worker.result, 1)) == FAILURE:
                    raise worker.failure(receive(worker.result))
                if not word:
                    raise EnvError(f"{self.name}: {worker.death_message()}")

    def _wake(self, worker: _Worker) -> None:
        try:
            os.write(worker.command, WAKE)
        except BrokenPipeError:
            raise EnvError(f"{self.name}: {worker.death_message()}") from None


def _end(workers: list[_Worker], owner: int) -> None:
    """Closes the pipes that workers wait for, so that they end by themselves; kills those that do not.

    A worker leads a group of processes. As long as one of them lives, the group's number is given to no other. An
    interrupt waits until all have ended.
    """
    with interrupts_after():
        for worker in workers:
            os.close(worker.command)
            os.close(worker.result)
        for worker in workers:
            if os.getpid() != owner:
                os.close(worker.lifeline)
                continue  # in a fork of the owner the processes are not children
            try:
                worker.process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            os.close(worker.lifeline)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.process.pid, signal.SIGKILL)  # what its environments started and left behind
