"""Inspects an HDF5 file before this process opens it: whatever it holds, it is either safe or an error is raised.

Three steps, each cheaper than reading the file: it is a regular file with the HDF5 signature; its structure has the
checksums with which it was written; and a process of its own has walked over the structure (`structure.py`), since HDF5
itself may crash or hang on a file. That process takes about 0.2 s. It is left out for a file that this process wrote,
or inspected before, as long as its size and time stay the same; and for one that an earlier kernel inspected
(`inspected.py`).
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.display.formatting import marlnb_command
from marlnb.errors import RecordingError
from marlnb.recording.file.checksums import Checksums
from marlnb.recording.file.inspected import note_of, noted_sources, write_note

SIGNATURE = b"\x89HDF\r\n\x1a\n"
BASE_CPU_S, BASE_TIMEOUT_S = 2.0, 60.0  # of processor time, which a loop of HDF5 uses up, and in all
BYTES_PER_S = 100e6  # one more second for so many bytes: a large file's index of chunks is long
MEMORY_BYTES = 8 * 2**30  # of address space
PROGRAM = Path(__file__).with_name("structure.py")
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_intact: dict[tuple[int, ...], frozenset[str]] = {}
"""Files that need no other inspection, with the sources of their virtual datasets."""


def inspect(path: Path) -> None:
    """Inspects a file that is to be opened for reading.

    Raises:
        RecordingError: it is not a regular file or not HDF5, or has something that no recording has.
    """
    check_file(path)
    checksums = Checksums.read(path)
    if checksums is not None:
        checksums.check_structure()
    for source in sorted(sources_of(path)):
        if not is_below(path.parent, source):
            raise RecordingError(
                f"{path} is not opened, because it reads {source}, which is not below its folder. The segments of a "
                "recording are next to it; move them there, or join them again"
            )


def walk_ahead(paths: Sequence[Path]) -> None:
    """Walks over several files in one process, so that `inspect` of each does not start one."""
    new = [path for path in paths if path.is_file() and _identity(path) not in _intact]
    new = [path for path in new if noted_sources(note_of(path, PROGRAM)) is None]
    before = [(_identity(path), note_of(path, PROGRAM)) for path in new]
    for (identity, note), result in zip(before, _run_walks(new, damaged=False) if len(new) > 1 else []):
        if not result["problem"]:
            _intact[identity] = frozenset(result["sources"])
            write_note(note, result["sources"])


def inspect_damaged(path: Path, original: Path) -> None:
    """As `inspect`, for a file that `repair` changes: what cannot be read is allowed, what is dangerous is not."""
    check_file(path)
    result = _run_walks([path], damaged=True)[0]
    if not result["problem"] and result["sources"]:
        result["problem"] = f"it reads other files: {result['sources'][0]}"
    if result["problem"]:
        raise RecordingError(f"{original} cannot be repaired: {result['problem']}; it is unchanged")


def remember(path: Path) -> None:
    """Notes a file that this process has written, so that it is not inspected."""
    _intact[_identity(path)] = frozenset()


def check_file(path: Path) -> None:
    """Raises RecordingError unless the path is a regular file with the HDF5 signature. It never waits."""
    check_ordinary(path)
    try:
        with open(path, "rb") as file:
            head = file.read(len(SIGNATURE))
    except OSError as error:
        raise RecordingError(f"{path} cannot be opened: {error.strerror}") from error
    if head != SIGNATURE:
        raise RecordingError(
            f"{path} cannot be opened: it lacks the HDF5 signature. A writer that was killed before its "
            "first block leaves such a file; it holds no rows"
        )


def check_ordinary(path: Path) -> None:
    """Raises RecordingError where the path is a folder, a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise RecordingError(f"{path} cannot be opened: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise RecordingError(f"{path} is a folder; a recording is a file, as in a run's recordings/")
    if not stat.S_ISREG(mode):
        raise RecordingError(f"{path} is a pipe or a device; expected a regular file")


def sources_of(path: Path) -> frozenset[str]:
    """The files that a file's virtual datasets read, as the file names them; found by a walk over its structure.

    Raises:
        RecordingError: it has something that no recording has, or HDF5 crashes or hangs on it.
    """
    identity = _identity(path)
    if identity not in _intact:
        note = note_of(path, PROGRAM)
        sources = noted_sources(note)
        if sources is None:
            result = _run_walks([path], damaged=False)[0]
            if result["problem"]:
                raise RecordingError(
                    f"{path} was not opened, because it differs from every valid recording: {result['problem']}. If a "
                    f"crash damaged it, `{marlnb_command('repair', path)}` restores what is intact"
                )
            sources = frozenset(result["sources"])
            write_note(note, sources)
        _intact[identity] = sources
    return _intact[identity]


def is_below(folder: Path, source: str) -> bool:
    """Whether a relative path stays below a folder, also through links."""
    return not os.path.isabs(source) and folder.resolve() in (folder / source).resolve().parents


def _run_walks(paths: Sequence[Path], *, damaged: bool) -> list[dict[str, Any]]:
    """What `structure.inspect` finds in a process of its own; where one ends the process, up to that one."""
    more_s = sum(path.stat().st_blocks * 512 for path in paths) / BYTES_PER_S  # not of the size that a file claims
    cpu_s, timeout_s = BASE_CPU_S + more_s, BASE_TIMEOUT_S + more_s
    folders = ":".join(dict.fromkeys(str(Path(str(module.__file__)).parents[1]) for module in (h5py, np)))
    command = [sys.executable, "-I", "-S", str(PROGRAM), folders, str(MEMORY_BYTES), str(int(cpu_s) + 1)]
    command += [str(int(damaged)), *(str(path.absolute()) for path in paths)]
    environment = {**os.environ, **_THREADS, "HDF5_PLUGIN_PATH": os.devnull}
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, env=environment, check=False
        )
        output, code, errors = process.stdout, process.returncode, process.stderr
    except subprocess.TimeoutExpired as expired:
        output, code, errors = expired.stdout or b"", None, b""
    results: list[dict[str, Any]] = [json.loads(line) for line in output.decode().splitlines()]
    if len(results) == len(paths):
        return results
    if code is None or code == -signal.SIGXCPU:
        problem = f"reading its structure with HDF5 took longer than {cpu_s if code else timeout_s:.0f} s"
    elif code < 0:
        problem = f"HDF5 crashed while reading its structure (signal {-code})"
    else:
        words = " ".join(errors.decode(errors="replace").strip().splitlines()[-1:])
        raise RecordingError(f"{paths[len(results)]} cannot be inspected: {sys.executable} failed: {words}")
    return [*results, {"problem": problem, "sources": []}]


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
