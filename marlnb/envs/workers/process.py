"""A worker: a process that steps some copies when a byte arrives, and ends with the process that started it.

What to do is told through shared memory, so a byte that is lost or sent twice changes nothing: `order[0]` counts the
orders and `order[1]` is the present one's kind; a worker answers an order by copying its count into its own slot.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
from typing import Any

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # meant for the training, which saves first
RESET, STEP = 1, 2
WAKE, RENDER = b"w", b"r"  # to a worker; an object follows RENDER
DONE, VALUE, FAILURE = b"d", b"v", b"f"  # from a worker; an object follows the last two
ORDER_BYTES = 4096  # the head of the shared memory: order count, order kind, an answer slot for each worker
LENGTH = struct.Struct("<Q")


def main(command: int, result: int, memory: int, slot: int, dies_with_thread: bool) -> None:
    """Runs a worker on descriptors that it inherited."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _end_with_parent(command, dies_with_thread)
    try:
        _serve(command, result, memory, slot)
    except EOFError:
        pass
    except BaseException as error:
        with contextlib.suppress(BrokenPipeError):  # another worker failed first, and nobody listens any more
            _send(result, FAILURE, _failure(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _serve(command: int, result: int, memory: int, slot: int) -> None:
    order = receive(command)
    sys.path[:] = order["path"]
    from marlnb.envs.workers.env_batch import EnvBatch
    from marlnb.envs.workers.memory import arrays_in

    copies = EnvBatch(pickle.loads(order["source"]), order["indices"])
    try:
        _send(result, VALUE, copies.describe() if slot == 0 else None)
        attached = receive(command)
        shared = mmap.mmap(memory, attached["size"])
        os.close(memory)
        head = memoryview(shared)[:ORDER_BYTES].cast("q")
        spec, n_envs = attached["spec"], attached["n_envs"]
        copies.attach(spec, arrays_in(shared, spec, n_envs, ORDER_BYTES), n_envs)
        _send(result, VALUE, None)
        _follow(command, result, head, slot, copies)
    finally:
        copies.close()


def _follow(command: int, result: int, head: memoryview, slot: int, copies: Any) -> None:
    answered, mine = 0, 2 + slot
    while True:
        word = os.read(command, 1)
        if not word:
            return
        if word == RENDER:
            _send(result, VALUE, copies.render(receive(command)))
            continue
        asked = head[0]
        if asked == answered:
            continue
        if head[1] == STEP:
            copies.step()
        else:
            copies.reset()
        answered = head[mine] = asked
        os.write(result, DONE)


def _end_with_parent(command: int, dies_with_thread: bool) -> None:
    """Ends this process, in the middle of a step if need be, when the one that started it is gone, however it went."""
    threading.Thread(target=_watch, args=(command,), daemon=True).start()
    if dies_with_thread and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: sent when the starting thread ends
        if os.getppid() == 1:
            os._exit(0)


def _watch(command: int) -> None:
    poll = select.poll()
    poll.register(command, 0)  # only the hang-up is waited for
    poll.poll()
    threading.Event().wait(2.0)  # an orderly end comes first
    os._exit(0)


def _failure(error: BaseException) -> tuple[str, str]:
    """What the pool makes the error again of: the name of its kind, and its text."""
    import traceback

    from marlnb.errors import kind_of

    kind = kind_of(error)
    return (kind.__name__, str(error)) if kind else ("EnvError", "".join(traceback.format_exception(error)).rstrip())


def receive(descriptor: int) -> Any:
    """One object of those sent at the start or for a picture.

    Raises:
        EOFError: the other side is gone.
    """
    size = LENGTH.unpack(_exactly(descriptor, LENGTH.size))[0]
    return pickle.loads(_exactly(descriptor, size))


def send(descriptor: int, value: Any) -> None:
    data = pickle.dumps(value)
    view = memoryview(LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _send(descriptor: int, word: bytes, value: Any) -> None:
    os.write(descriptor, word)
    send(descriptor, value)


def _exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
