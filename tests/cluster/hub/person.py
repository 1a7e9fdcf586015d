"""Person: a user at a browser, who logs in, asks for a server, and runs cells."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.lab import SLOW_MS, Notebook
from tests.cluster.hub.server import Hub

USER = "root"


@dataclass(frozen=True)
class Person:
    hub: Hub
    page: Page

    def go(self, path: str) -> None:
        """To a page of the hub; logs in where it asks for that."""
        self.page.goto(f"{self.hub.url}{path}")
        if self.page.locator("#username_input").count():
            self.page.fill("#username_input", USER)
            self.page.fill("#password_input", self.hub.password)
            self.page.click("#login_submit")
            self.page.wait_for_selector("#username_input", state="detached", timeout=SLOW_MS)

    def begin_server(self, minutes: int) -> str:
        """A server for so long; returns the id of its job once it can be used."""
        self.go("/hub/spawn")
        self.page.wait_for_selector("select[name=runtime]", timeout=SLOW_MS)
        self.page.select_option("select[name=runtime]", str(minutes))
        self.page.click("input[type=submit], button[type=submit]")
        self.page.wait_for_url(re.compile(rf"/user/{USER}/lab"), timeout=2 * SLOW_MS)
        (job,) = self.hub.jobs()
        return job

    def end_server(self) -> None:
        self.go("/hub/home")
        if self.page.locator("#stop").is_visible():
            self.page.click("#stop")
        self.page.wait_for_selector("#start:has-text('Start My Server')", timeout=SLOW_MS)

    def open(self, notebook: Path) -> Notebook:
        """In a workspace of its own; the kernel is the one that the notebook names."""
        place = notebook.relative_to(self.hub.work)
        self.page.goto(f"{self.hub.url}/user/{USER}/lab/workspaces/{os.urandom(3).hex()}/tree/{place}")
        return Notebook(self.page).connected()

    def interrupt(self) -> None:
        """The button with the square."""
        self.page.locator(".jp-NotebookPanel-toolbar [data-command='notebook:interrupt-kernel']").first.click()

    def photograph(self, name: str) -> None:
        """Into the folder MARLNB_SCREENSHOTS, where that is set."""
        folder = os.environ.get("MARLNB_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"hub-{name}.png"))
