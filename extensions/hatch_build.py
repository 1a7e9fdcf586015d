"""Puts the built JupyterLab extension into the wheel, where `make extension` has built it.

Without it a wheel, an editable install and a source distribution work as before, less the extension, so that nobody
needs Node.js. With MARLNB_EXTENSION=required, as `make wheel` sets it, a missing one is an error, and so are missing
charts of the notebook's widgets, which `make extension` builds too and which are files of the package. The tutorials
in `notebooks/` become files of the package too, so that the launcher's "First hour" needs no clone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NOTEBOOKS = ("README.md", "*.ipynb", "teaching/*.ipynb")  # not the runs that they made
BUILT = Path("extensions", "lab", "labextension")
WIDGETS = Path("marlnb", "widgets", "bundles", "curves.js")
TARGET = "share/jupyter/labextensions/marlnb"


class ExtensionHook(BuildHookInterface):
    """Adds the files as data of the environment: JupyterLab looks for extensions in `share/jupyter`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        is_built = (Path(self.root) / BUILT / "install.json").is_file()
        if not is_built and os.environ.get("MARLNB_EXTENSION") == "required":
            raise FileNotFoundError(f"{BUILT} is not built; run `make extension` first")
        if not (Path(self.root) / WIDGETS).is_file() and os.environ.get("MARLNB_EXTENSION") == "required":
            raise FileNotFoundError(f"{WIDGETS} is not built; run `make extension` first")
        folder = Path(self.root) / "notebooks"
        if version != "editable":
            for path in (path for pattern in NOTEBOOKS for path in folder.glob(pattern)):
                target = f"marlnb/lab/notebooks/{path.relative_to(folder).as_posix()}"
                build_data["force_include"][str(path)] = target
        if is_built and version != "editable":
            build_data["shared_data"][BUILT.as_posix()] = TARGET
