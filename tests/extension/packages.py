"""Packages in environments that have no pip of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def install(python: Path, *requirements: str) -> None:
    """Installs packages and what they need, with uv where there is one: JupyterLab takes seconds instead of minutes."""
    uv = Path(sys.prefix) / "bin" / "uv"
    if uv.exists():
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *requirements], check=True)
    else:
        subprocess.run([*_pip(python), *requirements], check=True)


def install_wheel(python: Path, wheel: Path) -> None:
    """Installs a wheel with pip, without what it needs."""
    subprocess.run([*_pip(python), "--no-deps", "--no-index", str(wheel)], check=True)


def _pip(python: Path) -> list[str]:
    words = [sys.executable, "-m", "pip", "--python", str(python)]
    return [*words, "install", "--quiet", "--disable-pip-version-check"]
