"""A real JupyterLab in a real Chromium, for tests that do what a person does."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import nbformat
from playwright.sync_api import Locator, Page, expect

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
SLOW_MS = 120_000
Application = Literal["lab", "notebooks"]  # JupyterLab and Notebook 7, as their addresses begin
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that serves one folder.

    Attributes:
        url: with its port. token: of this server alone. folder: what it serves.
    """

    url: str
    token: str
    folder: Path

    def write(self, name: str, *cells: str, tags: Mapping[int, list[str]] = MappingProxyType({})) -> str:
        """A notebook of code cells, some with tags; returns its name."""
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        for index, words in tags.items():
            made.cells[index].metadata["tags"] = words
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(made, self.folder / name)
        return name

    @property
    def data(self) -> Path:
        """Its JUPYTER_DATA_DIR, where signatures of notebooks lie."""
        return self.folder / ".home" / "data"

    def open(self, page: Page, name: str, application: Application = "lab") -> Notebook:
        """A notebook in a fresh workspace, its kernel connected."""
        self.show(page, name, application)
        return Notebook(page).connected()

    def show(self, page: Page, name: str, application: Application = "lab") -> None:
        """A file in a fresh workspace of JupyterLab, or in Notebook 7; what a page waits for is up to the caller."""
        place = f"lab/workspaces/{secrets.token_hex(4)}/tree" if application == "lab" else application
        page.goto(f"{self.url}/{place}/{name}?token={self.token}")

    def choose(self, plugin: str, settings: dict[str, object] | None) -> None:
        """Settings of a person for the pages that are opened from now on; None: as they were."""
        name, _, section = plugin.partition(":")
        path = self.folder / ".home" / "lab" / "user-settings" / name / f"{section}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        if settings is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(json.dumps(settings))


@dataclass(frozen=True)
class Notebook:
    """A notebook open in a page."""

    page: Page

    def connected(self) -> Notebook:
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
        # the indicator says idle before it has connected: the kernel's name is there only afterwards
        self.page.wait_for_selector(".jp-KernelName:has-text('Python 3')", timeout=SLOW_MS, state="attached")
        self.page.wait_for_selector(
            ".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=SLOW_MS, state="attached"
        )
        dialog = self.page.locator(".jp-Dialog button.jp-mod-accept")  # a loaded machine: it says that it reconnects
        self.page.add_locator_handler(dialog, lambda button: button.first.click())
        return self

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def run(self, index: int) -> Locator:
        """Runs one cell, as Shift+Enter does, and returns its output area without waiting for the end."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        return self.output(index)

    def output(self, index: int) -> Locator:
        return self.cell(index).locator(".jp-Cell-outputWrapper")

    def save(self) -> None:
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        expect(self.page.locator(".lm-TabBar-tab.lm-mod-current.jp-mod-dirty")).to_have_count(0, timeout=SLOW_MS)

    def shut_down(self) -> None:
        """Ends its kernel."""
        self.menu("Kernel", "Shut Down Kernel")
        expect(self.page.locator(".jp-KernelName:has-text('No Kernel')")).to_be_attached(timeout=SLOW_MS)

    def menu(self, *path: str) -> None:
        """Chooses from the menu bar, as `menu("Run", "Run All Cells")`."""
        self.page.locator(f".lm-MenuBar-item:has-text('{path[0]}')").first.click()
        for word in path[1:]:
            self.page.locator(f".lm-Menu-item:has-text('{word}')").first.click()


def button(panel: Locator, name: str) -> Locator:
    return panel.locator("button", has_text=name).first


def points(panel: Locator) -> int:
    """How many points the panel's curves have in the page."""
    return int(panel.locator(".marlnb-live-curves").first.get_attribute("data-points") or 0)


def until(holds: Callable[[], object], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@contextmanager
def lab_on(folder: Path, *, options: Sequence[str] = (), python: Path | None = None) -> Iterator[Lab]:
    """A JupyterLab with nothing of this user's settings, ended with its kernels afterwards.

    Args:
        python: of the environment whose JupyterLab and marlnb run; None: this one's, with the marlnb of this folder.
    """
    words = ["jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.root_dir={folder}"]
    words += ["--ServerApp.port_retries=0", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", *options]
    home = folder / ".home"
    settings = home / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    with _served(words, folder, home, "--ServerApp.port={}", python) as lab:
        yield lab


@contextmanager
def start_page_on(folder: Path) -> Iterator[Lab]:
    """`marlnb lab` on a folder, as lab_on; what it does to JupyterLab's settings is its own."""
    home = folder.parent / "home"
    with _served(["marlnb", "lab", str(folder), "--no-browser"], folder, home, "--port={}") as lab:
        yield lab


@contextmanager
def _served(
    module_and_options: Sequence[str],
    folder: Path,
    home: Path,
    port_option: str,
    python: Path | None = None,
) -> Iterator[Lab]:
    home.mkdir(parents=True, exist_ok=True)
    port, token = free_port(), secrets.token_hex(16)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "MPLBACKEND"))},
        "JUPYTER_CONFIG_DIR": str(home),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_TOKEN": token,
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_PLATFORM_DIRS": "1",
        **({"PYTHONPATH": str(ROOT)} if python is None else {}),
        "OMP_NUM_THREADS": "1",
    }
    words = [str(python or sys.executable), "-m", *module_and_options, port_option.format(port)]
    with open(home / "server.log", "wb") as log:
        server = subprocess.Popen(words, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        lab = Lab(f"http://127.0.0.1:{port}", token, folder)
        _wait(lab, server, home / "server.log")
        yield lab
    finally:
        server.terminate()  # jupyter ends its kernels on SIGTERM
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SLOW_MS / 1000
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{lab.url}/api?token={lab.token}", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(log.read_text())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
