"""The manifest of a checkpoint: what can be read without its tensors, and without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.errors import CheckpointError
from marlnb.text_files import read_text

FORMAT = "marlnb-state"
VERSION = 1
MANIFEST = "manifest.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, checked against its own hash.

    Raises:
        CheckpointError: it is missing, damaged or of another format.
    """
    try:
        manifest = json.loads(read_text(folder / MANIFEST, follow=False))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder} has no readable {MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise CheckpointError(f"{folder / MANIFEST} does not have the format {FORMAT!r}, version {VERSION}")
    if manifest.get("sha256") != manifest_digest({key: value for key, value in manifest.items() if key != "sha256"}):
        raise CheckpointError(f"{folder / MANIFEST} is damaged: its content does not match its SHA-256")
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest without its own hash. Raises CheckpointError if it is nested too deeply."""
    try:
        return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    except RecursionError as error:
        raise CheckpointError("the manifest is nested too deeply") from error
