"""What the hub needs: an environment with JupyterHub and no marlnb, its proxy, and Chromium; installed when missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HUB = ROOT / ".peers" / "hub"
PYTHON_PACKAGES = ("jupyterhub>=5,<7", "batchspawner>=1.3,<2", "jupyterlab>=4.4,<5")
PROXY = "configurable-http-proxy@^5"
DEBIAN = {"chromium": "chromium", "npm": "npm"}


def prepare() -> None:
    """Installs what is missing, and says so.

    Raises:
        SystemExit: a package is not available; the message is the installer's.
    """
    missing = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if missing:
        _call("apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing)
    if not (HUB / "bin" / "jupyterhub").exists():
        _call(sys.executable, "-m", "venv", str(HUB))
        uv = Path(sys.executable).parent / "uv"
        pip = [str(uv), "pip"] if uv.exists() else [str(HUB / "bin" / "python"), "-m", "pip"]
        _call(*pip, "install", *(["--python", str(HUB / "bin" / "python")] if uv.exists() else []), *PYTHON_PACKAGES)
    if not proxy().exists():
        (HUB / "npm").mkdir(exist_ok=True)
        _call("npm", "install", "--silent", "--prefix", str(HUB / "npm"), PROXY)


def prepare_browser() -> None:
    """playwright, in this environment: tests import it."""
    if importlib.util.find_spec("playwright") is None:
        uv = Path(sys.executable).parent / "uv"
        pip = [str(uv), "pip"] if uv.exists() else [sys.executable, "-m", "pip"]
        _call(*pip, "install", *(["--python", sys.executable] if uv.exists() else []), "playwright>=1.49,<2")


def proxy() -> Path:
    return HUB / "npm" / "node_modules" / ".bin" / "configurable-http-proxy"


def _call(*words: str) -> None:
    print(" ".join(words), file=sys.stderr, flush=True)
    done = subprocess.run(
        words, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
