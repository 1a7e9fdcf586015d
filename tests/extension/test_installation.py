"""The wheel in an environment without Node.js."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

from tests.extension.packages import install, install_wheel


def test_jupyterlab_lists_the_extension_as_enabled_without_node(wheel: Path, tmp_path: Path) -> None:
    """A clean environment has JupyterLab and the wheel, nothing else."""
    folder = tmp_path / "clean"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install(python, "jupyterlab>=4.4,<5")
    install_wheel(python, wheel)
    environment = {"PATH": f"{folder / 'bin'}", "HOME": str(tmp_path), "JUPYTER_PLATFORM_DIRS": "1"}
    words = [str(python), "-m", "jupyter", "labextension", "list"]
    listed = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "node" not in os.listdir(folder / "bin")
    (line,) = [line for line in (listed.stdout + listed.stderr).splitlines() if "marlnb v" in line]
    assert "enabled" in line and "OK" in line and "(python, marlnb)" in line
