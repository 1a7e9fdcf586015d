"""The folder in which jobs write, and the one of the environment: shared with nodes, roomy, its locks working."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.formatting import format_bytes

MOUNTS = Path("/proc/self/mountinfo")
# file systems that one machine has for itself; all others (nfs, lustre, gpfs, beegfs, ceph, fuse, 9p) may be shared
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "tmpfs", "ramfs", "overlay", "vfat", "apfs", "hfs")
JOB_BYTES = 200_000_000  # a run of small networks with its checkpoints, a recording and the executed notebook
JOB_FILES = 100
LOW_SHARE = 0.03
CLOCK_S = 5.0
MANY_FILES = 10_000


@check("folder")
def _folder(subject: Subject) -> Iterator[Answer]:
    """Locks, renames, rights and clock of the folder's file system, tried in a folder of our own, which is removed."""
    parent = nearest_folder(subject.folder)
    if not os.access(parent, os.W_OK | os.X_OK):
        yield "fail", f"{parent} cannot be written to by {os.environ.get('USER', os.getuid())}", "give another --out"
        return
    kind = filesystem(parent)
    yield from _shared(subject, parent, "the jobs' folder")
    with tempfile.TemporaryDirectory(prefix=".marlnb-doctor-", dir=parent) as name:
        problems = list(_tried(Path(name)))
    yield from problems
    if not any(level == "fail" for level, _, _ in problems):
        yield "ok", f"{parent} ({kind or 'file system not known'}): locks, renames and private folders work", ""


@check("space")
def _space(subject: Subject) -> Iterator[Answer]:
    parent, n_jobs, each = nearest_folder(subject.folder), len(subject.sweep), _job_bytes(subject)
    found = os.statvfs(parent)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    told = f"{parent}: {format_bytes(free)} free, about {format_bytes(n_jobs * each)} needed"
    if free < n_jobs * each:
        yield "fail", told, "free some, or give --out a folder on another file system"
    elif free < LOW_SHARE * total:
        yield "warn", f"{told}; it is nearly full ({free / total:.1%} left)", "free some: others fill it too"
    else:
        yield "ok", told, ""
    if found.f_files and found.f_favail < n_jobs * JOB_FILES:
        text = f"{parent}: {found.f_favail:,} files can still be made, about {n_jobs * JOB_FILES:,} are needed"
        yield "fail", text, "remove small files, or give --out a folder on another file system"
    yield from _quotas(parent)


@check("environment's place")
def _place(subject: Subject) -> Iterator[Answer]:
    prefix = subject.seen.prefix
    if not prefix:
        return
    yield from _shared(subject, Path(prefix), "the environment")
    n_files = count_files(Path(prefix))
    more = " or more" if n_files >= 10 * MANY_FILES else ""
    if n_files > MANY_FILES:
        text = f"the environment {prefix} is {n_files:,}{more} files: quotas of clusters often count them"
        yield "ok", text, ""


def _job_bytes(subject: Subject) -> float:
    """What a job takes, as the notebook says of itself (`"marlnb": {"megabytes": 30}` in its metadata), or a guess."""
    if subject.notebook is None:
        return JOB_BYTES
    told = json.loads(subject.notebook.read_text(encoding="utf-8"))["metadata"].get("marlnb", {})
    return float(told.get("megabytes", JOB_BYTES / 1e6)) * 1e6


def _shared(subject: Subject, path: Path, what: str) -> Iterator[Answer]:
    kind = is_local(path)
    if kind and subject.profile.executor != "local" and not subject.on_node:
        text = f"{what} {path} lies on a disk of this machine ({kind}); nodes other than this one do not see it"
        yield "warn", text, "use a folder that nodes share (often $HOME, $WORK or $SCRATCH); --on-node tells for sure"


def is_local(path: Path) -> str:
    """The kind of file system where only this machine has it, else nothing."""
    kind = filesystem(path)
    return kind if kind in LOCAL else ""


def filesystem(path: Path) -> str:
    """The kind of file system on which a path lies, or would lie; empty where that cannot be told."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        within = real == point or real.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def nearest_folder(path: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    path = Path(os.path.abspath(path.expanduser()))
    while not path.is_dir():
        path = path.parent
    return path


def count_files(folder: Path) -> int:
    """How many files are in it; counting ends at ten times as many as are told of."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        if count >= 10 * MANY_FILES:
            break
    return count


def _tried(folder: Path) -> Iterator[Answer]:
    first, second = folder / "a", folder / "b"
    began = time.time()
    first.write_text("x")
    skew = first.stat().st_mtime - began
    if abs(skew) > CLOCK_S:
        text = f"the file server's clock differs from this machine's by {skew:+.0f} s"
        yield "warn", text, "progress may look stale; tell the administrators"
    with open(first, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error))
            text = f"files cannot be locked there ({name}): two jobs could train one run"
            yield "warn", text, "marlnb then goes by signs of life; better give --out a folder on another file system"
    second.write_text("y")
    os.replace(first, second)
    if second.read_text() != "x":
        yield "fail", "a file that replaces another does not do so at once there", "give --out another file system"
    os.chmod(folder, 0o700)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        text = "a folder cannot be made private there: others may read runs and notebooks"
        yield "warn", text, "ask who may see that file system, or give --out another"


def _quotas(folder: Path) -> Iterator[Answer]:
    """What `quota` and `lfs quota` say, where a cluster has them; a `*` marks what is over its limit."""
    user = str(os.getuid())
    for command in (["quota", "-s", "-w"], ["lfs", "quota", "-h", "-u", user, str(folder)]):
        if shutil.which(command[0]) is None or (command[0] == "lfs" and filesystem(folder) != "lustre"):
            continue
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = [line.strip() for line in said.splitlines() if any(letter.isdigit() for letter in line)]
        over = [line for line in lines if "*" in line]
        if over:
            yield "fail", f"over the quota: {' | '.join(over)}", "remove what is not needed any more"
        elif lines:
            yield "ok", f"{command[0]} says: {' | '.join(lines[-3:])}", ""
