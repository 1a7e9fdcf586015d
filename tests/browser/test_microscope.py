"""The microscope in a browser: open, scrub, click a unit, edit and play again, compare, decode, bookmark."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import marlnb as mnb
from tests.browser.lab import SLOW_MS, Lab, Notebook, until

DATA = Path(__file__).parents[2] / "data"
CELL = """
import marlnb as mnb
recording = mnb.record("runs/{run}", episodes=12, name="looked-at", exist="open", progress=False)
scope = mnb.microscope(recording, episode=3, order="cluster"{more})
scope
"""
DARK = "JupyterLab Dark"
THEMES = "@jupyterlab/apputils-extension:themes"
Keep = Callable[..., None]


@pytest.fixture
def no_errors(page: Page) -> list[str]:
    """What the page's scripts raised so far."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def _opened(lab: Lab, page: Page, name: str, more: str = "") -> tuple[Notebook, Locator]:
    """A notebook with the microscope of a run of its own, all pictures there, and its panel."""
    shutil.copytree(DATA / "speaker_listener", lab.folder / "runs" / name)
    notebook = lab.open(page, lab.write(f"{name}.ipynb", CELL.format(run=name, more=more)))
    panel = notebook.run(0).locator(".marlnb-microscope")
    _pictures(panel, 0)
    return notebook, panel


def _pictures(panel: Locator, side: int) -> None:
    film = panel.locator(".ms-film canvas").nth(side)
    expect(film).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)


def _at(panel: Locator, t: int) -> None:
    expect(panel.locator(".marlnb-scope")).to_have_attribute("data-t", str(t), timeout=SLOW_MS)


def _tab(panel: Locator, name: str) -> None:
    panel.get_by_role("tab", name=name, exact=True).click()


def _sides(panel: Locator, n: int) -> None:
    expect(panel.locator(".marlnb-scope")).to_have_attribute("data-sides", str(n), timeout=SLOW_MS)


def _status(canvas: Locator) -> str:
    return canvas.get_attribute("aria-label") or ""


def test_an_agent_that_does_not_act_takes_no_action(lab: Lab, page: Page) -> None:
    cell = "import marlnb as mnb\nmnb.microscope(mnb.gallery('tictactoe_league').recording)"
    panel = lab.open(page, lab.write("turns.ipynb", cell)).run(0).locator(".marlnb-microscope")
    bars = panel.locator(".ms-actions canvas")
    expect(bars.nth(0)).to_have_attribute("aria-label", re.compile("action 8 0.99 ▸$"), timeout=SLOW_MS)
    expect(bars.nth(1)).to_have_attribute("aria-label", re.compile("action 8 –$"), timeout=SLOW_MS)


def test_an_episode_is_looked_into(lab: Lab, page: Page, no_errors: list[str], keep: Keep) -> None:
    _, panel = _opened(lab, page, "looked-into")
    scope = panel.locator(".marlnb-scope")
    listener = scope.locator("[data-agent=listener_0]")
    expect(listener.locator(".ms-looks .ms-bar-name")).to_have_count(8, timeout=SLOW_MS)
    film = scope.locator(".ms-film canvas")
    until(lambda: int(film.get_attribute("data-circles") or 0) > 0)
    keep(panel, "opened")

    scope.focus()  # scrubbing, by keys and by the slider, paints no heat map again
    painted = listener.locator(".ms-heatmap canvas")
    before = painted.get_attribute("data-painted")
    for key, t in (("ArrowRight", 1), ("ArrowRight", 2), ("End", 24), ("ArrowLeft", 23), ("Home", 0)):
        page.keyboard.press(key)
        _at(panel, t)
    scope.locator(".ms-slider").fill("12")
    _at(panel, 12)
    expect(film).to_have_attribute("data-index", "12", timeout=SLOW_MS)
    assert painted.get_attribute("data-painted") == before
    expect(scope.locator(".ms-reading")).to_have_text("step 12 of 24")
    chances = listener.locator(".ms-actions canvas")  # its label for screen readers is set once the step is reached
    expect(chances).to_have_attribute("aria-label", re.compile(r"no_op 0\.\d\d.*▸"), timeout=SLOW_MS)

    heatmap = listener.locator(".ms-heatmap")
    area = heatmap.bounding_box()
    assert area is not None
    heatmap.click(position={"x": area["width"] * 7.5 / 25, "y": area["height"] / 2})
    _at(panel, 7)
    unit = panel.locator(".marlnb-unit")
    expect(unit).to_contain_text("at step 7", timeout=SLOW_MS)
    expect(unit.locator("img")).to_be_visible(timeout=SLOW_MS)
    expect(unit.locator("button")).to_have_count(5, timeout=SLOW_MS)
    keep(unit, "unit")

    _tab(panel, "Bookmarks")
    panel.get_by_placeholder("what this step shows").fill("it turns to the goal")
    panel.locator("button.marlnb-bookmark").click()
    expect(panel.locator(".marlnb-bookmarks")).to_contain_text("stored in looked-at.h5.bookmarks.json", timeout=SLOW_MS)
    kept = lab.folder / "runs" / "looked-into" / "recordings" / "looked-at.h5.bookmarks.json"
    assert json.loads(kept.read_text()) == [{"episode": 3, "t": 7, "note": "it turns to the goal"}]
    keep(panel, "bookmarks")
    scope.focus()
    page.keyboard.press("End")
    _at(panel, 24)
    scope.locator(".ms-mark").click()
    _at(panel, 7)
    panel.get_by_title("remove this bookmark").click()
    expect(scope.locator(".ms-mark")).to_have_count(0, timeout=SLOW_MS)
    assert not no_errors, no_errors


def test_descriptions_are_of_the_shown_step_out_of_the_window(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1300, "height": 450})
    _, panel = _opened(lab, page, "described")
    panel.locator(".ms-slider").fill("12")
    _at(panel, 12)
    chances = panel.locator("[data-agent=listener_0] .ms-actions canvas")
    assert chances.evaluate("canvas => canvas.getBoundingClientRect().top") > 450 + 100  # where nothing is drawn
    recording = mnb.Recording.open(lab.folder / "runs" / "described" / "recordings" / "looked-at.h5")
    logits = recording.steps("listener", "logits").sel(episode=3).to_numpy()[12].ravel()
    expected = f" {np.exp(logits.max()) / np.exp(logits).sum():.2f}"
    until(lambda: expected in _status(chances))


def test_an_edited_episode_is_shown_with_the_original(lab: Lab, page: Page, no_errors: list[str], keep: Keep) -> None:
    _, panel = _opened(lab, page, "edited")
    _tab(panel, "Edit")
    edits = panel.locator(".marlnb-edits")
    units = edits.get_by_placeholder("3, 17, 20-25")
    units.fill("0-63")
    units.press("Tab")
    for kind, message in (
        ("clamp to the strength", "mnb.Clamp('listener/actor/hidden_1', units=(0, 1, 2,"),
        ("steer by the strength", "mnb.Steer('listener/actor/hidden_1', units=(0, 1, 2,"),
        ("ablate to zero", "mnb.Ablate('listener/actor/hidden_1', units=(0, 1, 2,"),
    ):
        edits.get_by_label("site").select_option("listener/actor/hidden_1")
        edits.get_by_label("edit", exact=True).select_option(kind)
        expect(edits).to_contain_text(message, timeout=SLOW_MS)
        keep(panel, kind.split()[0])
    units.fill("no number")
    units.press("Tab")
    expect(edits).to_contain_text("units: expected numbers and ranges", timeout=SLOW_MS)
    expect(edits.locator("button.marlnb-play-again")).to_be_disabled()
    units.fill("0-63")
    units.press("Tab")
    expect(edits.locator("button.marlnb-play-again")).to_be_enabled(timeout=SLOW_MS)
    edits.locator("button.marlnb-play-again").click()
    _sides(panel, 2)
    expect(edits).to_contain_text("return with the edit minus without", timeout=SLOW_MS)
    _pictures(panel, 1)
    panel.locator(".ms-slider").fill("20")
    for side in (0, 1):
        film = panel.locator(".ms-film canvas").nth(side)
        expect(film).to_have_attribute("data-index", "20", timeout=SLOW_MS)
    keep(panel, "edited")
    panel.get_by_role("button", name="Back to the recording").click()
    _sides(panel, 1)
    assert not no_errors, no_errors


def test_agents_and_checkpoints_are_compared(lab: Lab, page: Page, no_errors: list[str], keep: Keep) -> None:
    _, panel = _opened(lab, page, "compared")
    _tab(panel, "Compare")
    compare = panel.locator(".marlnb-compare")
    compare.get_by_label("agents").select_option("listener_0")
    expect(panel.locator(".ms-card:visible")).to_have_count(1, timeout=SLOW_MS)
    compare.get_by_label("agents").select_option(["speaker_0", "listener_0"])
    expect(panel.locator(".ms-card:visible")).to_have_count(2, timeout=SLOW_MS)
    compare.get_by_label("checkpoint").select_option("10")
    compare.get_by_role("button", name="Play and compare").click()
    _sides(panel, 2)
    expect(panel.locator(".ms-side-title").nth(1)).to_have_text("checkpoint 10, the same seed", timeout=SLOW_MS)
    _pictures(panel, 1)
    expect(panel.locator(".ms-looks .ms-bar-name")).to_have_count(22, timeout=SLOW_MS)
    panel.locator(".ms-slider").fill("12")
    expect(panel.locator(".ms-film canvas").nth(1)).to_have_attribute("data-index", "12", timeout=SLOW_MS)
    keep(panel, "checkpoints")
    compare.get_by_placeholder("path of an .h5 file").fill("runs/nothing.h5")
    compare.get_by_role("button", name="Open and compare").click()
    expect(compare.get_by_role("alert")).to_contain_text("nothing.h5", timeout=SLOW_MS)
    compare.get_by_role("button", name="Show one alone").click()
    _sides(panel, 1)
    assert not no_errors, no_errors


def test_a_concept_is_decoded_and_steered_along(lab: Lab, page: Page, no_errors: list[str], keep: Keep) -> None:
    lab.choose(THEMES, {"theme": DARK})
    try:
        _, panel = _opened(lab, page, "decoded")
    finally:
        lab.choose(THEMES, None)
    _tab(panel, "Concepts")
    concepts = panel.locator(".marlnb-concepts")
    concepts.get_by_label("decode").select_option("goal")
    concepts.get_by_label("from").select_option("listener/actor/hidden_1")
    concepts.get_by_role("button", name="Decode").click()
    reads = panel.locator("[data-agent=listener_0] .ms-reads")
    expect(reads.locator(".ms-bar-name")).to_have_text(["red", "green", "blue"], timeout=SLOW_MS)
    expect(reads).to_contain_text("true value: ", timeout=SLOW_MS)
    expect(concepts).to_contain_text("balanced", timeout=SLOW_MS)
    panel.locator(".ms-slider").fill("20")
    expect(reads.locator("canvas")).to_have_attribute("aria-label", re.compile("✓"), timeout=SLOW_MS)
    truth = (reads.locator(".ms-truth").text_content() or "").removeprefix("true value: ")
    assert re.search(rf"{truth} [\d.]+ ✓", _status(reads.locator("canvas")))
    keep(panel, "concepts-dark")
    _tab(panel, "Edit")
    edits = panel.locator(".marlnb-edits")
    edits.get_by_label("site").select_option("listener/actor/hidden_1")
    edits.get_by_label("edit", exact=True).select_option("steer by the strength")
    edits.get_by_label("along").select_option(label="goal = red (listener_0)")
    expect(edits).to_contain_text("direction=mnb.Direction(", timeout=SLOW_MS)
    keep(panel, "steer-dark")
    assert not no_errors, no_errors
