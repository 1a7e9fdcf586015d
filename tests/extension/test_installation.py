"""The wheel in an environment without Node.js, and what a page needs: no other host, no script beyond the server's."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.lab import SLOW_MS, lab_on
from tests.extension.test_runs_panel import open_panel, run_row
from tests.lab.run_folders import write_run

CSP = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
)


def test_jupyterlab_lists_the_extension_as_enabled_without_node(wheel: Path, tmp_path: Path) -> None:
    """A clean environment has JupyterLab and the wheel, nothing else."""
    folder = tmp_path / "clean"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "jupyterlab>=4.4,<5"], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    environment = {"PATH": f"{folder / 'bin'}", "HOME": str(tmp_path), "JUPYTER_PLATFORM_DIRS": "1"}
    words = [str(python), "-m", "jupyter", "labextension", "list"]
    listed = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "node" not in os.listdir(folder / "bin")
    (line,) = [line for line in (listed.stdout + listed.stderr).splitlines() if "marlnb v" in line]
    assert "enabled" in line and "OK" in line and "(python, marlnb)" in line


def test_a_hub_with_a_prefix_and_strict_content_security(python: Path, browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    write_run(folder / "runs" / "mine")
    options = [
        "--ServerApp.base_url=/user/me/",
        f"--ServerApp.tornado_settings={{'headers': {{'Content-Security-Policy': \"{CSP}\"}}}}",
    ]
    with lab_on(folder, python=python, options=options, base_url="/user/me") as lab:
        page = browser.new_page()
        requested: list[str] = []
        problems: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: problems.append(message.text) if "marlnb" in message.text else None)
        panel = open_panel(lab, page)
        run_row(panel, "mine").click(timeout=SLOW_MS)
        expect(page.locator(".marlnb-page:visible h1")).to_have_text("mine", timeout=SLOW_MS)
        expect(page.locator(".marlnb-page .marlnb-plot canvas")).to_be_visible()
        assert [url for url in requested if not url.startswith((lab.url, "data:", "blob:"))] == []
        assert problems == []
        page.close()
