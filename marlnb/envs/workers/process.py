"""A worker: a process that steps some envs when a byte arrives, and ends with the process that started it.

Commands are in shared memory, so a byte that is lost or sent twice changes nothing. `head[0]` counts the commands,
`head[1]` is the kind of the current one, and a worker answers by copying the count into its own slot of the head.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
from typing import Any

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)  # the training saves first
RESET, STEP, LABELS = 1, 2, 3
WAKE, RENDER = b"w", b"r"  # to a worker; an object follows RENDER
DONE, VALUE, FAILURE = b"d", b"v", b"f"  # from a worker; an object follows the last two
COMMAND_BYTES = 1 << 16  # head of the shared memory: command count, command kind, an answer slot for each worker
LENGTH = struct.Struct("<Q")


def main(command: int, result: int, lifeline: int, memory: int, slot: int) -> None:
    """Runs a worker with the file descriptors that it inherited."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _keep_to_this_process(command, result)
    _end_with_parent(command, lifeline)
    try:
        _serve(command, result, memory, slot)
    except EOFError:
        pass
    except BaseException as error:
        with contextlib.suppress(BrokenPipeError):  # another worker failed first, and the parent no longer listens
            _send(result, FAILURE, _describe_error(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _serve(command: int, result: int, memory: int, slot: int) -> None:
    setup = receive(command)
    sys.path[:] = setup["path"]
    from marlnb.envs.workers.env_batch import EnvBatch
    from marlnb.envs.workers.memory import arrays_in

    envs = EnvBatch(pickle.loads(setup["source"]), setup["indices"])
    try:
        _send(result, VALUE, envs.describe() if slot == 0 else None)
        attached = receive(command)
        shared = mmap.mmap(memory, attached["size"])
        os.close(memory)
        head = memoryview(shared)[:COMMAND_BYTES].cast("q")
        spec, n_envs = attached["spec"], attached["n_envs"]
        envs.attach(spec, arrays_in(shared, spec, n_envs, COMMAND_BYTES), n_envs)
        _send(result, VALUE, None)
        _run_commands(command, result, head, slot, envs)
    finally:
        envs.close()


def _run_commands(command: int, result: int, head: memoryview, slot: int, envs: Any) -> None:
    answered, answer_slot = 0, 2 + slot
    while True:
        word = os.read(command, 1)
        if not word:
            return
        if word == RENDER:
            _send(result, VALUE, envs.render(receive(command)))
            continue
        number = head[0]
        if number == answered:
            continue
        {RESET: envs.reset, STEP: envs.step, LABELS: envs.write_labels}[head[1]]()
        answered = head[answer_slot] = number
        os.write(result, DONE)


def _keep_to_this_process(*pipes: int) -> None:
    """Closes the pipes in processes that an environment starts: the parent waits until their other ends are closed."""

    def close() -> None:
        for pipe in pipes:
            os.close(pipe)

    for pipe in pipes:
        os.set_inheritable(pipe, False)
    os.register_at_fork(after_in_child=close)


def _end_with_parent(command: int, lifeline: int) -> None:
    """Ends this process, and those that its environments started, when its parent has ended, even in a step.

    On Linux the system itself kills the group of processes when the parent's end of `lifeline` is closed. A thread of
    this process would wait for a step that keeps the interpreter to itself.
    """
    threading.Thread(target=_watch, args=(command,), daemon=True).start()
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())  # minus: the group that this process leads
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _watch(command: int) -> None:
    poll = select.poll()
    poll.register(command, 0)  # waits only for the hang-up
    poll.poll()
    threading.Event().wait(2.0)  # gives an orderly end the time to happen first
    os.killpg(0, signal.SIGKILL)


def _describe_error(error: BaseException) -> tuple[str, str]:
    """(name of the class, message): what the pool needs to raise the error again."""
    import traceback

    from marlnb.errors import kind_of

    kind = kind_of(error)
    return (kind.__name__, str(error)) if kind else ("EnvError", "".join(traceback.format_exception(error)).rstrip())


def receive(descriptor: int) -> Any:
    """One object that the other side sent.

    Raises:
        EOFError: the other side has closed the pipe.
    """
    size = LENGTH.unpack(_read_exactly(descriptor, LENGTH.size))[0]
    return pickle.loads(_read_exactly(descriptor, size))


def send(descriptor: int, value: Any) -> None:
    data = pickle.dumps(value)
    view = memoryview(LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _send(descriptor: int, word: bytes, value: Any) -> None:
    os.write(descriptor, word)
    send(descriptor, value)


def _read_exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
