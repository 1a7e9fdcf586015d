"""What made a recording: the code, its version and where it came from, the seeds."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import marlnb
from marlnb.recording.capture.preparation import Prepared
from marlnb.recording.file.layout import FORMAT, VERSION
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.runs.spec_file import spec_to_json

GIT_TIMEOUT_S = 5.0


def root_attributes(prepared: Prepared) -> dict[str, Any]:
    """Attributes of a recording's root: format, subject, settings, code and seeds."""
    experiment = prepared.subject.experiment
    request = prepared.request
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": "" if experiment is None else json.dumps(experiment.to_json()),
        "source": getattr(prepared.subject, "source", "marlnb"),
        "spec": json.dumps(spec_to_json(prepared.env.spec)),
        "settings": json.dumps(prepared.settings, sort_keys=True),
        "checkpoint": prepared.origin.sha256,
        "iteration": prepared.origin.iteration,
        "code_version": marlnb.__version__,
        "code_sha256": code_sha256(),
        "code_commit": code_commit(),
        "seed": request.seed,
        "generator_seed": derive_seed(request.seed, "actions"),
        "dtype": request.dtype,
        "every": request.every,
    }


@cache
def code_sha256() -> str:
    """A hash of marlnb's own source files as they are on disk: names and contents, in the order of their names."""
    folder = Path(marlnb.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def code_commit() -> str:
    """The commit that is checked out where marlnb runs from a checkout, else ""; `code_sha256` tells of changes."""
    folder = Path(marlnb.__file__).parent.parent
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
