"""The labextensions that JupyterLab needs for this environment's widgets; missing ones are copied."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_path

WANTED = ("@jupyter-widgets/jupyterlab-manager", "anywidget", "marlnb")
FOLDER = "labextensions"

Action = Literal["install", "keep", "keep_foreign", "use_shared", "none"]


@dataclass(frozen=True)
class Labextension:
    """One labextension, and what to do with it.

    Attributes:
        name: name of the labextension.
        action: "install" (copy it), "keep" (marlnb copied this version before), "keep_foreign" (another installer put
            one there), "use_shared" (every JupyterLab here has one), "none" (this environment has none).
        version: version in this environment.
        installed_version: version of the one that is installed.
        source: its folder in this environment.
        folder: folder of the one that is installed.
    """

    name: str
    action: Action
    version: str = ""
    installed_version: str = ""
    source: Path | None = None
    folder: Path | None = None

    def describe(self) -> str:
        """A sentence about it."""
        if self.action == "none":
            return f"labextension {self.name}: not in this environment"
        if self.action == "install":
            return f"labextension {self.name} {self.version} installed"
        if self.action == "keep":
            return f"labextension {self.name} {self.version} was installed already"
        present = f"labextension {self.name} {self.installed_version} is already in {self.folder}"
        if self.installed_version == self.version:
            return f"{present}: not changed"
        advice = ""
        if self.action == "keep_foreign":
            advice = f"; if widgets do not show, move that folder away and install again, for {self.version}"
        return f"{present}, this environment has {self.version}: not changed{advice}"


def find(data: Path, owned: set[str]) -> list[Labextension]:
    """The wanted labextensions.

    Args:
        data: Jupyter's data folder.
        owned: names of those in `data` that marlnb installed and that are unchanged.
    """
    return [_find(name, data, owned) for name in WANTED]


def _find(name: str, data: Path, owned: set[str]) -> Labextension:
    source, target = environment_folder() / name, data / FOLDER / name
    version = version_of(source)
    if not source.is_dir():
        return Labextension(name, "none")
    if name in owned:
        same = version_of(target) == version
        return Labextension(name, "keep" if same else "install", version, version_of(target), source, target)
    if target.exists() or target.is_symlink():
        return Labextension(name, "keep_foreign", version, version_of(target), source, target)
    for folder in _shared_folders(data):
        if (folder / name).is_dir():
            return Labextension(name, "use_shared", version, version_of(folder / name), source, folder / name)
    return Labextension(name, "install", version, source=source)


def environment_folder() -> Path:
    """This environment's folder of labextensions."""
    return Path(sys.prefix) / "share" / "jupyter" / FOLDER


def version_of(folder: Path) -> str:
    """The version in its package.json; "?" without one."""
    try:
        return str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "?"


def _shared_folders(data: Path) -> list[Path]:
    """Folders that every JupyterLab on this machine reads, whatever its environment."""
    excluded = (environment_folder().resolve(), (data / FOLDER).resolve())
    return [path for text in jupyter_path(FOLDER) if (path := Path(text)).resolve() not in excluded]
