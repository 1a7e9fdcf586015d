"""Edits saved with a run: `edits/<name>.json` in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.errors import ConfigError, RunError, unknown
from marlnb.models.hooks.edit import Edit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "edits"


def save_edits(
    subject: PolicySourceLike, name: str, edits: Edit | Iterable[Edit], *, note: str = "", replace: bool = False
) -> Path:
    """Saves edits under a name. Edits that read a recording store which one.

    Raises:
        RunError: the name exists and `replace` is False.
    """
    subject, edits = as_policy_source(subject), [edits] if isinstance(edits, Edit) else list(edits)
    path = _path(subject, name)
    if path.exists() and not replace:
        raise RunError(f"{path} exists already; choose another name or use replace=True")
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "note": note,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "edits": [_relative(edit.pinned().to_json(), subject.path) for edit in edits],
    }
    write_atomically(path, json.dumps(data, indent=2) + "\n")
    return path


def load_edits(subject: PolicySourceLike, name: str) -> list[Edit]:
    """The edits saved under a name.

    Raises:
        RunError: there are none; the message lists the existing names.
    """
    subject = as_policy_source(subject)
    return [Edit.from_json(_absolute(edit, subject.path)) for edit in _read(subject, name)["edits"]]


def list_edits(subject: PolicySourceLike) -> pd.DataFrame:
    """One row per name: note, time, and what each edit does."""
    import pandas as pd

    subject = as_policy_source(subject)
    rows = []
    for name in _names(subject):
        data = _read(subject, name)
        description = "; ".join(f"{edit['edit']} {edit['site']}" for edit in data["edits"])
        rows.append({"name": name, "note": data["note"], "made": data["made"], "edits": description})
    return pd.DataFrame(rows, columns=["name", "note", "made", "edits"])


def write_result(subject: PolicySource, name: str, kind: str, data: Mapping[str, Any]) -> Path:
    """Writes a result about saved edits as `edits/<name>.<kind>.json`."""
    path = _path(subject, name).with_suffix(f".{kind}.json")
    write_atomically(path, json.dumps(data, indent=2) + "\n")
    return path


def _path(subject: PolicySource, name: str) -> Path:
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"invalid name for edits: {name!r}; valid: letters, digits, _ and -")
    return subject.path / FOLDER / f"{name}.json"


def _names(subject: PolicySource) -> list[str]:
    return sorted(path.stem for path in (subject.path / FOLDER).glob("*.json") if "." not in path.stem)


def _read(subject: PolicySource, name: str) -> dict[str, Any]:
    path = _path(subject, name)
    if not path.exists():
        raise RunError(f"{subject.path}: {unknown('saved edits', name, _names(subject))}")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _relative(edit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The path of a recording of this run becomes relative to its folder, which may be moved."""
    source = edit.get("source")
    if source is not None and Path(source).absolute().is_relative_to(folder.absolute()):
        return {**edit, "source": str(Path(source).absolute().relative_to(folder.absolute()))}
    return edit if source is None else {**edit, "source": str(Path(source).absolute())}


def _absolute(edit: dict[str, Any], folder: Path) -> dict[str, Any]:
    source = edit.get("source")
    return edit if source is None else {**edit, "source": str(folder / source)}
