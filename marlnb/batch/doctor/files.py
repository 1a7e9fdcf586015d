"""Checks of the jobs' folder and the environment's folder: shared with nodes, enough space, working locks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.cost import stated_costs
from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.display.formatting import format_bytes
from marlnb.paths import expanded

MOUNTS = Path("/proc/self/mountinfo")
# file systems of a single machine; all others (nfs, lustre, gpfs, beegfs, ceph, fuse, 9p) may be shared
LOCAL_FILE_SYSTEMS = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "vfat", "apfs", "hfs"),
    *("tmpfs", "ramfs", "overlay"),
)
JOB_MEGABYTES = 200  # a run of small networks with its checkpoints, a recording and the executed notebook
JOB_FILES = 100
MIN_FREE_SHARE = 0.03
MAX_CLOCK_SKEW_S = 5.0
MANY_FILES = 10_000


@check("folder")
def _folder(request: DoctorRequest) -> Iterator[Answer]:
    """Tries locks, renames, permissions and the clock of the file system in a temporary folder."""
    parent = nearest_folder(request.folder)
    if not os.access(parent, os.W_OK | os.X_OK):
        yield "fail", f"{os.environ.get('USER', os.getuid())} cannot write to {parent}", "give another --out"
        return
    yield from _shared(request, parent, "the jobs' folder")
    with tempfile.TemporaryDirectory(prefix=".marlnb-doctor-", dir=parent) as name:
        problems = list(_try_operations(Path(name)))
    yield from problems
    if not any(level == "fail" for level, _, _ in problems):
        kind = filesystem(parent) or "file system unknown"
        yield "ok", f"{parent} ({kind}): locks, renames and private folders work", ""


@check("space")
def _space(request: DoctorRequest) -> Iterator[Answer]:
    stated = {} if request.notebook is None else stated_costs(request.notebook)
    parent, n_jobs = nearest_folder(request.folder), len(request.sweep)
    needed = n_jobs * float(stated.get("megabytes", JOB_MEGABYTES)) * 1e6
    stats = os.statvfs(parent)
    free, total = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    text = f"{parent}: {format_bytes(free)} free, about {format_bytes(needed)} needed"
    if free < needed:
        yield "fail", text, "free some space, or give --out a folder on another file system"
    elif free < MIN_FREE_SHARE * total:
        yield "warn", f"{text}; it is nearly full ({free / total:.1%} free)", "free some space: others use it too"
    else:
        yield "ok", text, ""
    if stats.f_files and stats.f_favail < n_jobs * JOB_FILES:
        text = f"{parent}: {stats.f_favail:,} more files are possible, about {n_jobs * JOB_FILES:,} are needed"
        yield "fail", text, "remove small files, or give --out a folder on another file system"
    yield from _quotas(parent)


@check("environment's folder")
def _place(request: DoctorRequest) -> Iterator[Answer]:
    prefix = request.kernel_report.prefix
    if not prefix:
        return
    yield from _shared(request, Path(prefix), "the environment")
    if (n_files := count_files(Path(prefix))) > MANY_FILES:
        more = " or more" if n_files >= 10 * MANY_FILES else ""
        text = f"the environment {prefix} has {n_files:,}{more} files; quotas of clusters often count files"
        yield "ok", text, ""


def _shared(request: DoctorRequest, path: Path, what: str) -> Iterator[Answer]:
    kind = is_local(path)
    if kind and request.profile.executor != "local" and not request.on_node:
        remedy = "use a folder that nodes share (often $HOME, $WORK or $SCRATCH); --on-node checks it on a node"
        yield "warn", f"{what} {path} is on a disk of this machine ({kind}), which other nodes cannot see", remedy


def is_local(path: Path) -> str:
    """The kind of the file system if only this machine has it, else empty."""
    kind = filesystem(path)
    return kind if kind in LOCAL_FILE_SYSTEMS else ""


def filesystem(path: Path) -> str:
    """The kind of the file system of a path, which need not exist; empty if unknown."""
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
    """The folder itself, or its nearest parent that exists."""
    path = Path(os.path.abspath(expanded(path)))
    while not path.is_dir():
        path = path.parent
    return path


def count_files(folder: Path) -> int:
    """Number of files in a folder; counting stops at ten times `MANY_FILES`."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        if count >= 10 * MANY_FILES:
            break
    return count


def _try_operations(folder: Path) -> Iterator[Answer]:
    first, second = folder / "a", folder / "b"
    started = time.time()
    first.write_text("x")
    skew = first.stat().st_mtime - started
    if abs(skew) > MAX_CLOCK_SKEW_S:
        text = f"the file server's clock differs from this machine's by {skew:+.0f} s"
        yield "warn", text, "progress may look outdated; tell the administrators"
    with open(first, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error))
            text = f"files cannot be locked there ({name}): two jobs could train the same run"
            yield "warn", text, "marlnb then relies on process ids; better give --out a folder on another file system"
    second.write_text("y")
    os.replace(first, second)
    if second.read_text() != "x":
        yield "fail", "replacing a file is not atomic there", "give --out a folder on another file system"
    os.chmod(folder, 0o700)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        text = "folders cannot be made private there: other users may read runs and notebooks"
        yield "warn", text, "ask who can read that file system, or give --out a folder on another one"


def _quotas(folder: Path) -> Iterator[Answer]:
    """The output of `quota` and `lfs quota`, where they exist; a `*` marks an exceeded limit."""
    user = str(os.getuid())
    for command in (["quota", "-s", "-w"], ["lfs", "quota", "-h", "-u", user, str(folder)]):
        if shutil.which(command[0]) is None or (command[0] == "lfs" and filesystem(folder) != "lustre"):
            continue
        try:
            output = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = [line.strip() for line in output.splitlines() if any(letter.isdigit() for letter in line)]
        over = [line for line in lines if "*" in line]
        if over:
            yield "fail", f"over the quota: {' | '.join(over)}", "delete files that are no longer needed"
        elif lines:
            yield "ok", f"{command[0]} says: {' | '.join(lines[-3:])}", ""
