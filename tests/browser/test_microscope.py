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


def _at(scope: Locator, t: int) -> None:
    expect(scope).to_have_attribute("data-t", str(t), timeout=20_000)


def test_an_episode_is_looked_into(lab: Lab, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    shutil.copytree(DATA / "speaker_listener", lab.folder / "runs" / "listener", dirs_exist_ok=True)
    notebook = lab.open(page, lab.write("microscope.ipynb", CELL, "(scope.t, scope.scope.picked, scope.bookmarks)"))
    panel = notebook.run(0).locator(".marlnb-microscope")
    scope = panel.locator(".marlnb-scope")
    expect(scope).to_have_attribute("data-t", "0", timeout=SLOW_MS)
    film = scope.locator(".ms-film canvas")
    expect(film).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)
    listener = scope.locator("[data-agent=listener_0]")
    expect(listener.locator(".ms-looks .ms-bar")).to_have_count(8, timeout=SLOW_MS)
    assert int(film.get_attribute("data-circles") or 0) > 0
    page.screenshot(path="/tmp/shots-micro/microscope-1.png")

    scope.focus()  # scrubbing, by keys and by the slider, paints no heat map again
    painted = listener.locator(".ms-heatmap canvas")
    before = painted.get_attribute("data-painted")
    for key, t in (("ArrowRight", 1), ("ArrowRight", 2), ("End", 24), ("ArrowLeft", 23), ("Home", 0)):
        page.keyboard.press(key)
        _at(scope, t)
    scope.locator(".ms-slider").fill("12")
    _at(scope, 12)
    expect(film).to_have_attribute("data-place", "12", timeout=20_000)
    assert painted.get_attribute("data-painted") == before
    expect(scope.locator(".ms-reading")).to_have_text("step 12 of 24")

    heatmap = listener.locator(".ms-heatmap")
    area = heatmap.bounding_box()
    assert area is not None
    heatmap.click(position={"x": area["width"] * 7.5 / 25, "y": area["height"] / 2})
    _at(scope, 7)
    unit = panel.locator(".marlnb-unit")
    expect(unit).to_contain_text("at step 7", timeout=SLOW_MS)
    expect(unit.locator("img")).to_be_visible(timeout=SLOW_MS)
    expect(unit.locator("button")).to_have_count(5, timeout=SLOW_MS)
    unit.scroll_into_view_if_needed()
    page.screenshot(path="/tmp/shots-micro/microscope-2-unit.png")

    panel.get_by_role("tab", name="Bookmarks").click()
    panel.get_by_placeholder("what is to be seen here").fill("it turns to the goal")
    panel.locator("button.marlnb-bookmark").click()
    expect(panel.locator(".marlnb-bookmarks")).to_contain_text("kept in looked-at.h5.bookmarks.json", timeout=20_000)
    kept = lab.folder / "runs" / "listener" / "recordings" / "looked-at.h5.bookmarks.json"
    assert json.loads(kept.read_text()) == [{"episode": 3, "t": 7, "note": "it turns to the goal"}]
    scope.focus()
    page.keyboard.press("End")
    _at(scope, 24)
    scope.locator(".ms-mark").click()
    _at(scope, 7)

    panel.get_by_role("tab", name="Edit").click()
    edits = panel.locator(".marlnb-edits")
    edits.get_by_placeholder("3, 17, 20-25").fill("0-63")
    edits.get_by_placeholder("3, 17, 20-25").press("Tab")
    expect(edits).to_contain_text("mnb.Ablate('listener/actor/hidden_1', units=(0, 1, 2,", timeout=20_000)
    edits.locator("button.marlnb-play-again").click()
    expect(scope).to_have_attribute("data-sides", "2", timeout=SLOW_MS)
    expect(edits).to_contain_text("return with the edit minus without", timeout=SLOW_MS)
    expect(scope.locator(".ms-film canvas").nth(1)).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)
    scope.scroll_into_view_if_needed()
    page.screenshot(path="/tmp/shots-micro/microscope-3-edited.png")
    panel.get_by_role("button", name="Back to the recording").click()
    expect(scope).to_have_attribute("data-sides", "1", timeout=SLOW_MS)
    assert not errors, errors
