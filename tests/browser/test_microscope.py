"""The microscope as a person uses it: open, scrub, click a unit, edit and play again, bookmark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab

DATA = Path(__file__).parents[2] / "data"
CELL = """
import marlnb as mnb
recording = mnb.record("runs/listener", episodes=12, name="looked-at", exist="open", progress=False)
scope = mnb.microscope(recording, episode=3, order="cluster")
scope
"""


def _number(scope: Locator, name: str) -> int:
    return int(scope.get_attribute(f"data-{name}") or -1)


def test_an_episode_is_looked_into(lab: Lab, page: Page) -> None:
    shutil.copytree(DATA / "speaker_listener", lab.folder / "runs" / "listener", dirs_exist_ok=True)
    notebook = lab.open(page, lab.write("microscope.ipynb", CELL, "(scope.t, scope.scope.picked)"))
    panel = notebook.run(0).locator(".marlnb-microscope")
    scope = panel.locator(".marlnb-scope")
    expect(scope).to_have_attribute("data-t", "0", timeout=SLOW_MS)
    film = scope.locator(".ms-film canvas")
    expect(film).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)
    listener = scope.locator("[data-agent=listener_0]")
    expect(listener.locator(".ms-looks .ms-bar")).to_have_count(8, timeout=SLOW_MS)
    page.screenshot(path="/tmp/shots-micro/microscope-1.png")
