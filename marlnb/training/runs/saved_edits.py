"""Edits saved with a run: `edits/<name>.json` in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.errors import ConfigError, RunError, shown, unknown
from marlnb.models.hooks.edit import Edit, edit_list
from marlnb.paths import expanded
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import read_json, write_atomically

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "edits"


def save_edits(
    policy_source: PolicySourceLike, name: str, edits: Edit | Iterable[Edit], *, note: str = "", replace: bool = False
) -> Path:
    """Saves edits under a name. Edits that read a recording store which one.

    Raises:
        RunError: the name exists and `replace` is False.
    """
    policy_source, edits = as_policy_source(policy_source), edit_list(edits)
    path = _path(policy_source, name)
    if path.exists() and not replace:
        raise RunError(f"{path} exists already; choose another name or use replace=True")
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "note": note,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "edits": [edit_to_json(edit, policy_source.path) for edit in edits],
    }
    write_atomically(path, json.dumps(data, indent=2) + "\n")
    return path


def load_edits(policy_source: PolicySourceLike, name: str) -> list[Edit]:
    """The edits saved under a name.

    Raises:
        RunError: there are none; the message lists the existing names. Or their file is damaged.
    """
    policy_source = as_policy_source(policy_source)
    return [edit_from_json(edit, policy_source.path) for edit in _read(policy_source, name)["edits"]]


def resolve_edits(policy_source: PolicySourceLike, edits: Edit | Iterable[Edit] | str) -> list[Edit]:
    """One or several edits, or those saved under a name, as a list.

    Raises:
        ConfigError: there is something else.
        RunError: none are saved under the name.
    """
    return load_edits(policy_source, edits) if isinstance(edits, str) else edit_list(edits)


def list_edits(policy_source: PolicySourceLike) -> pd.DataFrame:
    """One row per name: note, time, and what each edit does."""
    import pandas as pd

    policy_source = as_policy_source(policy_source)
    rows = []
    for name in _names(policy_source):
        data = _read(policy_source, name)
        description = "; ".join(f"{edit['edit']} {edit['site']}" for edit in data["edits"])
        rows.append({"name": name, "note": data["note"], "made": data["made"], "edits": description})
    return pd.DataFrame(rows, columns=["name", "note", "made", "edits"])


def edit_to_json(edit: Edit, folder: Path) -> dict[str, Any]:
    """Plain data of an edit, with the digest of the recording that it reads.

    The path of a recording in `folder`, a run's, becomes relative to it, since it may be moved; others are absolute.
    """
    data = edit.pinned().to_json()
    if data.get("source") is None:
        return data
    source, folder = expanded(data["source"]).resolve(), folder.resolve()
    return {**data, "source": str(source.relative_to(folder) if source.is_relative_to(folder) else source)}


def edit_from_json(data: Mapping[str, Any], folder: Path) -> Edit:
    """The edit that `edit_to_json` made of `folder`, which may have been moved."""
    source = data.get("source")
    return Edit.from_json({**data, "source": str(folder / source)} if isinstance(source, str) else data)


def write_result(policy_source: PolicySource, name: str, kind: str, data: Mapping[str, Any]) -> Path:
    """Writes a result about saved edits as `edits/<name>.<kind>.json`."""
    path = _path(policy_source, name).with_suffix(f".{kind}.json")
    write_atomically(path, json.dumps(data, indent=2) + "\n")
    return path


def _path(policy_source: PolicySource, name: str) -> Path:
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"invalid name for edits: {name!r}; valid: letters, digits, _ and -")
    return policy_source.path / FOLDER / f"{name}.json"


def _names(policy_source: PolicySource) -> list[str]:
    return sorted(path.stem for path in (policy_source.path / FOLDER).glob("*.json") if "." not in path.stem)


def _read(policy_source: PolicySource, name: str) -> dict[str, Any]:
    path = _path(policy_source, name)
    if not path.exists():
        raise RunError(f"{policy_source.path}: {unknown('saved edits', name, _names(policy_source))}")
    data = read_json(path)
    edits = data.get("edits")
    if not isinstance(edits, list) or not all(
        isinstance(edit, dict)
        and all(isinstance(edit.get(key), str) for key in ("edit", "site"))
        and isinstance(edit.get("source"), str | None)
        for edit in edits
    ):
        raise RunError(f"{path} is damaged: expected a list of edits, each with its kind and site; got {shown(edits)}")
    return {**data, "note": str(data.get("note", "")), "made": str(data.get("made", ""))}
