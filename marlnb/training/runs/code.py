"""The code that trained a run: marlnb's version and hash, and hashes of the user's own modules, without any path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.code_version import training_code
from marlnb.errors import RunError
from marlnb.experiment import Experiment
from marlnb.plugins.import_paths import file_of, is_import_path
from marlnb.training.runs.files import CODE, read_json, write_atomically

HASH_LENGTH = 8


def log_code(run: Path, experiment: Experiment, iteration: int) -> None:
    """Records the code that trains from this iteration on. Records of later iterations are dropped.

    Raises:
        OSError: the file cannot be written.
    """
    code: dict[str, Any] = {**training_code(), "own": own_code(experiment)}
    entries = [entry for entry in _read(run) if entry["iteration"] < iteration]
    if not entries or {key: entries[-1].get(key) for key in code} != code:
        entries.append({"iteration": iteration, **code})
    write_atomically(run / CODE, json.dumps({"code": entries}, indent=1) + "\n")


def own_code(experiment: Experiment) -> dict[str, str]:
    """By import path that an experiment names, such as `my_envs:Corridor`, the SHA-256 of that module's file."""
    parts = Experiment.from_json(experiment.to_json(), origin=".").unloaded.values()
    paths = {code.value for part in parts for code in part.code if is_import_path(code.value)}
    files = {path: file_of(path.partition(":")[0]) for path in sorted(paths)}
    return {path: hashlib.sha256(Path(file).read_bytes()).hexdigest() for path, file in files.items() if file}


def code_label(run: Path) -> str:
    """The code that trained a run in few words, such as `marlnb 0.1.0 (3f2a9c04)`; empty where it is not known.

    The number in brackets is the start of the hash of the code that trains. Several, one after the other, have the
    labels of each.
    """
    return ", then ".join(dict.fromkeys(map(_label, _read(run))))


def _label(code: Mapping[str, Any]) -> str:
    own = code.get("own")
    hashes = {f"marlnb {code.get('version', '?')}": code.get("sha256"), **(own if isinstance(own, dict) else {})}
    return ", ".join(f"{name} ({str(sha256)[:HASH_LENGTH]})" for name, sha256 in hashes.items())


def _read(run: Path) -> list[dict[str, Any]]:
    """The records, oldest first; none of a run of an earlier version, or of a damaged file."""
    try:
        entries = read_json(run / CODE).get("code")
    except RunError:
        return []
    known = entries if isinstance(entries, list) else []
    return [entry for entry in known if isinstance(entry, dict) and type(entry.get("iteration")) is int]
