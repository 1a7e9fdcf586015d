"""Which code runs: the version, a hash of the source files and the commit of marlnb, without any path."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

GIT_TIMEOUT_S = 5.0
# folders that do not change what a training run computes: the layers above it, and what only prints
NOT_TRAINING = frozenset(
    (
        *("analysis", "batch", "cli", "display", "galleries", "groundtruth"),
        *("lab", "plots", "recording", "teaching", "widgets"),
    )
)
_PACKAGE = Path(__file__).parent


@cache
def code_sha256(without: Collection[str] = frozenset()) -> str:
    """A hash of the names and contents of marlnb's source files on disk, in the order of their names.

    Args:
        without: subfolders that do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in without:
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def code_commit() -> str:
    """The commit of the git checkout that marlnb runs from, else "". Local changes only show in `code_sha256`."""
    folder = _PACKAGE.parent
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def training_code() -> dict[str, str]:
    """`version` and `commit` of marlnb, and `sha256` of the part of it that trains."""
    from marlnb.version import __version__

    return {"version": __version__, "commit": code_commit(), "sha256": code_sha256(NOT_TRAINING)}
