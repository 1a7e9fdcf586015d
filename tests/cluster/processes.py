"""Which processes belong to a cluster, how one is ended, and how one waits for something to come true."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TERM_THEN_KILL = (signal.SIGTERM, signal.SIGKILL)
_DAEMONS = (b"munged", b"slurmctld", b"slurmd", b"slurmstepd", b"slurmdbd", b"mariadbd", b"tcpdump")


def until(what: str, ask: Callable[[], T], *, timeout_s: float = 60.0, every_s: float = 0.2) -> T:
    """Asks until the answer is true, and returns it.

    Raises:
        TimeoutError: it was not within the time; the message says what, and the last answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}; the last answer was {answer!r}")
        time.sleep(every_s)


def run(*words: str | os.PathLike[str], check: bool = True, env: Mapping[str, str] | None = None) -> str:
    """Runs a command, `env` added to the environment, and returns what it printed.

    Raises:
        RuntimeError: it failed and was to be checked; with its words.
    """
    done = subprocess.run(
        [os.fspath(word) for word in words], capture_output=True, text=True, env={**os.environ, **(env or {})}
    )
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def detached(words: list[str], out: Path, errors: Path) -> int:
    """Begins a process that outlives this one and its terminal, and returns its id."""
    begin = f'setsid "$@" >>{shlex.quote(str(out))} 2>>{shlex.quote(str(errors))} </dev/null & echo $!'
    return int(run("sh", "-c", begin, "sh", *words))


def pid_in(file: Path) -> int | None:
    """The process that a pid file names, None when it is gone."""
    try:
        pid = int(file.read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return None if is_zombie(pid) else pid


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] in "ZX"
    except OSError:
        return True


def end(pids: list[int], *, patience_s: float = 10.0, signals: tuple[int, ...] = TERM_THEN_KILL) -> None:
    """Sends each signal to those that are still there, and waits in between."""
    for number in signals:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while pids and time.monotonic() < deadline:
            pids = [pid for pid in pids if not is_zombie(pid)]
            time.sleep(0.05)


def inhabitants(namespace: str) -> list[int]:
    """Every process in a network namespace, whatever its parent is."""
    try:
        own = os.stat(f"/run/netns/{namespace}").st_ino
    except FileNotFoundError:
        return []
    return [pid for pid in _pids() if _inode(pid) == own]


def bearing(mark: str) -> list[int]:
    """Every process in whose environment the mark stands, but this one and its ancestors."""
    needle = mark.encode()
    own = {os.getpid(), *_ancestors(os.getpid())}
    return [pid for pid in _pids() if pid not in own and not is_zombie(pid) and needle in _bytes(pid, "environ")]


def children(pid: int) -> list[int]:
    """The processes that a process began, oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def naming(state: Path) -> list[int]:
    """The daemons whose command or environment names the state folder; not a shell that has its SLURM_CONF."""
    needle = os.fsencode(state) + b"/"
    daemons = [pid for pid in _pids() if _bytes(pid, "comm").strip() in _DAEMONS]
    return [pid for pid in daemons if any(needle in _bytes(pid, name) for name in ("cmdline", "environ"))]


def described(pids: list[int]) -> str:
    return "\n".join(f"{pid} {_bytes(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')}" for pid in pids)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _inode(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return -1


def _bytes(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _ancestors(pid: int) -> set[int]:
    ancestors: set[int] = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[1])
        except OSError:
            break
        ancestors.add(pid)
    return ancestors
