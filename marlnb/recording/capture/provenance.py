"""What made a recording: the version and hash of the code, the experiment, the settings and the seeds."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from marlnb.recording.capture.preparation import Prepared
from marlnb.recording.file.layout import FORMAT, VERSION
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.runs.spec_file import spec_to_json
from marlnb.version import __version__

GIT_TIMEOUT_S = 5.0
_PACKAGE = Path(__file__).parents[2]  # marlnb's own folder


def root_attributes(prepared: Prepared) -> dict[str, Any]:
    """Attributes of a recording's root: format, experiment, settings, code and seeds."""
    experiment = prepared.policy_source.experiment
    config = prepared.config
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": "" if experiment is None else json.dumps(experiment.to_json()),
        "source": getattr(prepared.policy_source, "source", "marlnb"),
        "spec": json.dumps(spec_to_json(prepared.env.spec)),
        "settings": json.dumps(prepared.settings, sort_keys=True),
        "checkpoint": prepared.origin.sha256,
        "iteration": prepared.origin.iteration,
        "code_version": __version__,
        "code_sha256": code_sha256(),
        "code_commit": code_commit(),
        "seed": config.seed,
        "generator_seed": derive_seed(config.seed, "actions"),
        "dtype": config.dtype,
        "every": config.every,
    }


@cache
def code_sha256() -> str:
    """A hash of the names and contents of marlnb's source files on disk, in the order of their names."""
    folder = _PACKAGE
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
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
