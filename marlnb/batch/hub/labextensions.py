"""What JupyterLab needs to show this environment's widgets: its labextensions, copied where there are none."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_path

WANTED = ("@jupyter-widgets/jupyterlab-manager", "anywidget", "marlnb")
FOLDER = "labextensions"

Fate = Literal["install", "ours", "theirs", "hub's", "none"]


@dataclass(frozen=True)
class Labextension:
    """One labextension, and what is to be done about it.

    Attributes:
        fate: install (copy it), ours (copied before, this version), theirs (the folder has one that was put there by
            somebody else), hub's (every JupyterLab here has one already), none (this environment has none).
        version: this environment's. other: the version of the one that is there already.
        source: this environment's folder. place: where the other is.
    """

    name: str
    fate: Fate
    version: str = ""
    other: str = ""
    source: Path | None = None
    place: Path | None = None

    def describe(self) -> str:
        """In a sentence."""
        if self.fate == "none":
            return f"labextension {self.name}: this environment has none"
        if self.fate == "install":
            return f"labextension {self.name} {self.version} installed"
        if self.fate == "ours":
            return f"labextension {self.name} {self.version} was installed already"
        same = self.other == self.version
        there = f"labextension {self.name} {self.other} is in {self.place} already"
        if same:
            return f"{there}: left as it is"
        advice = f"; if widgets do not show, move that folder away and install again, for {self.version}"
        return f"{there}, this environment has {self.version}: left as it is{advice if self.fate == 'theirs' else ''}"


def find(data: Path, owned: set[str]) -> list[Labextension]:
    """Each wanted labextension; `owned` are those in `data` that marlnb put there and nobody has changed."""
    return [_find(name, data, owned) for name in WANTED]


def _find(name: str, data: Path, owned: set[str]) -> Labextension:
    source, target = environment_folder() / name, data / FOLDER / name
    version = version_of(source)
    if not source.is_dir():
        return Labextension(name, "none")
    if name in owned:
        same = version_of(target) == version
        return Labextension(name, "ours" if same else "install", version, version_of(target), source, target)
    if target.exists() or target.is_symlink():
        return Labextension(name, "theirs", version, version_of(target), source, target)
    for folder in _everybodys(data):
        if (folder / name).is_dir():
            return Labextension(name, "hub's", version, version_of(folder / name), source, folder / name)
    return Labextension(name, "install", version, source=source)


def environment_folder() -> Path:
    """Where this environment keeps its labextensions."""
    return Path(sys.prefix) / "share" / "jupyter" / FOLDER


def version_of(folder: Path) -> str:
    """As its package.json says, "?" where it does not."""
    try:
        return str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "?"


def _everybodys(data: Path) -> list[Path]:
    """Folders that every JupyterLab of this machine looks into, whichever environment it is of."""
    own = (environment_folder().resolve(), (data / FOLDER).resolve())
    return [path for text in jupyter_path(FOLDER) if (path := Path(text)).resolve() not in own]
