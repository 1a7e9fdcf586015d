"""Small disks that are really full or read-only: `python -m tests.faults.full_disk [--scenario record] [--growth 2]`.

A file system in memory is mounted (this needs root, on Linux), the command's folder is put on it, and a file fills all
but some KB. The command is an error of marlnb that names the disk and the path, or completes without the space; it
completes when the file is deleted, and leaves what an undisturbed one does. `faults.c` refuses single calls instead;
here the system decides which calls fail, also those that no library makes, such as pages of mapped files. With `--late`
nothing sees before it begins how much is free, as where another process fills the disk afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from tests.faults.__main__ import NAMES
from tests.faults.processes import Fault, has_library, run_with_library
from tests.faults.trials import Trial

DISK_BYTES = 64 * 1024**2
PAGE_BYTES = 4096
FILLER = "filler"
FIGURES = re.compile(r"([\d.]+) (k?B|MB) free, ([\d.]+) (k?B|MB) needed")
UNIT_BYTES = {"B": 1, "kB": 1e3, "MB": 1e6}


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A file system in memory, mounted at a folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        remount(folder, "rw")
        subprocess.run(["umount", "--lazy", folder], check=True)


def remount(folder: Path, option: str) -> None:
    """Makes the disk read-only ("ro"), writable ("rw") or something else."""
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


@contextmanager
def filled(disk: Path, free_bytes: int) -> Iterator[None]:
    """Leaves so much space on the disk."""
    status = os.statvfs(disk)
    with open(disk / FILLER, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(PAGE_BYTES, status.f_bavail * status.f_frsize - free_bytes))
    try:
        yield
    finally:
        (disk / FILLER).unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    remount(disk, "ro")
    try:
        yield
    finally:
        remount(disk, "rw")


@contextmanager
def without_inodes(disk: Path) -> Iterator[None]:
    """A disk with much space, on which no file can be created."""
    status = os.statvfs(disk)
    remount(disk, f"nr_inodes={status.f_files - status.f_ffree}")
    try:
        yield
    finally:
        remount(disk, f"nr_inodes={status.f_files}")


def sizes(growth: float) -> Iterator[int]:
    """Free space to try: nothing, one page, and more each time."""
    pages = 0
    while pages * PAGE_BYTES < DISK_BYTES:
        yield pages * PAGE_BYTES
        pages = max(pages + 1, int(pages * growth))


def wrong_figures(message: str) -> list[str]:
    """A disk that is full has less space than what is needed."""
    if not (match := FIGURES.search(message)):
        return []
    free, free_unit, needed, needed_unit = match.groups()
    is_less = float(free) * UNIT_BYTES[free_unit] < float(needed) * UNIT_BYTES[needed_unit]
    return [] if is_less else [f"its figures: {message}"]


def try_scenario(name: str, disk: Path, growth: float) -> int:
    """The number of attempts with problems."""
    trial = Trial(name, disk)
    command = partial(trial.scenario.command, trial.folder)

    def attempt(words: str, kind: str, disturbed: AbstractContextManager[None]) -> tuple[bool, bool]:
        trial._copy()
        with disturbed:
            outcome = trial._run_with(Fault(0), command)
        problems = (
            trial._wrong(outcome, Fault(1, kind)) + wrong_figures(str(outcome.text)) + trial._wrong_again(command)
        )
        print(f"{name}, {words}: {outcome.kind} {outcome.text or ''}", flush=True)
        for problem in problems:
            print(f"  problem: {problem}", flush=True)
        return outcome.kind == "done", bool(problems)

    attempts = [attempt("no inodes", "full", without_inodes(disk)), attempt("read-only", "EROFS", read_only(disk))]
    for free in sizes(growth):
        attempts.append(attempt(f"{free // 1024} KB free", "full", filled(disk, free)))
        if all(done for done, _ in attempts[-2:]):
            break
    return sum(failed for _, failed in attempts)


def see_nothing_before() -> None:
    """Recording and repairing see how much space is free before they begin; not in this process."""
    from marlnb.recording.capture.plan import RecordingPlan
    from marlnb.recording.tools import repair

    RecordingPlan.check = lambda plan: None  # type: ignore[method-assign]
    repair.free_bytes = lambda path: DISK_BYTES  # type: ignore[assignment]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.full_disk", description=__doc__)
    parser.add_argument("--scenario", choices=NAMES, action="append", help="may be given several times")
    parser.add_argument("--growth", type=float, default=1.4, help="of the free space, from one attempt to the next")
    parser.add_argument("--late", action="store_true", help="the disk is filled after its space was seen")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not has_library():
            return run_with_library(["-m", "tests.faults.full_disk", *arguments], Path(folder))
        from tests.recording.forked_walks import walk_in_forks

        walk_in_forks()
        if options.late:
            see_nothing_before()
        n_problems = 0
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # disks are unmounted
        for name in options.scenario or NAMES:
            with mounted(disk := Path(folder, name)):
                n_problems += try_scenario(name, disk, options.growth)
    print(f"{n_problems} attempts with problems")
    return int(bool(n_problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
