"""A JupyterHub whose servers run on this machine, under a prefix and a strict content security policy."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.lab import SLOW_MS, free_port, until
from tests.cluster.hub import environment

PREFIX = "/jupyter"
USER = "ada"
CSP = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
)
CONFIG = """
c.JupyterHub.bind_url = {url!r}
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.Spawner.cmd = [{server!r}]
c.Spawner.notebook_dir = {work!r}
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.environment = {variables!r}
c.Spawner.args = {options!r}
"""


@dataclass(frozen=True)
class Hub:
    """A hub, ready to log in.

    Attributes:
        url: with the prefix. work: the folder that the person's server shows.
    """

    url: str
    password: str
    work: Path

    def log_in(self, page: Page) -> None:
        """Starts the person's server; afterwards the page shows its JupyterLab."""
        page.goto(f"{self.url}/hub/login?next={PREFIX}/hub/spawn")
        page.fill("#username_input", USER)
        page.fill("#password_input", self.password)
        page.click("#login_submit")
        page.wait_for_url(f"**{PREFIX}/user/{USER}/lab**", timeout=SLOW_MS)


@contextmanager
def hub_on(folder: Path, python: Path) -> Iterator[Hub]:
    """A hub whose own environment has no marlnb: the person has installed a kernel by `marlnb hub install`.

    Args:
        python: of the person's environment.
    """
    environment.prepare()
    work, data = folder / "work", folder / "data"
    work.mkdir(parents=True)
    variables = {"JUPYTER_DATA_DIR": str(data), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    quiet = folder / "config" / "labconfig" / "page_config.json"
    quiet.parent.mkdir(parents=True)
    quiet.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    words = [str(python), "-m", "marlnb", "hub", "install"]
    subprocess.run(words, env={**os.environ, **variables}, check=True, stdout=subprocess.DEVNULL)
    bin_folder = environment.HUB / "bin"
    port, hub_port, api_port = (free_port() for _ in range(3))
    hub = Hub(f"http://127.0.0.1:{port}{PREFIX}", secrets.token_hex(8), work)
    headers = f"--ServerApp.tornado_settings={{'headers': {{'Content-Security-Policy': \"{CSP}\"}}}}"
    settings = {
        "url": hub.url,
        "hub_port": hub_port,
        "api_port": api_port,
        "proxy": str(environment.proxy()),
        "password": hub.password,
        "server": str(bin_folder / "jupyterhub-singleuser"),
        "work": str(work),
        "variables": variables,
        "options": ["--allow-root", headers],
    }
    (folder / "config.py").write_text(CONFIG.format(**settings))
    command = [str(bin_folder / "jupyterhub"), "--config", str(folder / "config.py")]
    path = f"{bin_folder}:{os.environ['PATH']}"
    with open(folder / "hub.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PATH": path}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: process.poll() is not None or b"is now running" in (folder / "hub.log").read_bytes(), 90)
        assert process.poll() is None, (folder / "hub.log").read_text()
        yield hub
    finally:
        process.terminate()  # the hub ends its servers and its proxy
        process.wait(60)
