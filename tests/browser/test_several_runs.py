"""Several runs in one chart: curves with intervals, hover, zoom, smoothing, metrics; light, dark, narrow; a picture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.test_themes import CLIPPED, FAINT, NAMELESS, THEMES
from tests.lab.run_folders import write_run

CELL = """
import marlnb as mnb
mnb.attach(["{folder}/other", "{folder}/seed-*"], references={{"random": -39.8, "scripted oracle": -7.5}})
"""


def show(lab: Lab, page: Page, name: str) -> Locator:
    for seed in range(5):
        write_run(lab.folder / "several" / name / f"seed-{seed}", seed=seed)
    write_run(lab.folder / "several" / name / "other", seed=12)
    notebook = lab.open(page, lab.write(f"several-{name}.ipynb", CELL.format(folder=f"several/{name}")))
    panel = notebook.run(0).locator(".marlnb-several-runs")
    expect(panel.locator("canvas")).to_be_visible(timeout=SLOW_MS)
    expect(panel).to_contain_text("6 complete", timeout=SLOW_MS)
    return panel


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_readable_at_two_widths(lab: Lab, page: Page, keep: Callable[..., None], theme: str) -> None:
    lab.choose(THEMES, {"theme": "JupyterLab Dark"} if theme == "dark" else None)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    panel = show(lab, page, theme)
    lab.choose(THEMES, None)
    for width in (1300, 640):
        page.set_viewport_size({"width": width, "height": 950})
        page.wait_for_timeout(700)
        keep(panel, str(width))
        assert panel.evaluate(FAINT) == {} and panel.evaluate(CLIPPED) == []
        assert NAMELESS.findall(panel.aria_snapshot()) == []
    assert errors == []


def test_values_are_read_zoomed_smoothed_and_of_any_metric(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    panel = show(lab, page, "values")
    plot, reading = panel.locator(".u-over"), panel.locator("[role=status].marlnb-reading")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    expect(reading).to_contain_text("environment steps: several/values/other")
    expect(reading).to_contain_text("(5 runs)")
    before = reading.inner_text()
    assert " to " in before  # the ends of the interval
    keep(panel, "hover")

    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 30, steps=5)
    page.mouse.up()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    expect(reading).not_to_have_text(before)  # other steps are at this place
    keep(panel, "zoomed")
    zoomed = reading.inner_text()
    panel.get_by_label("smoothing").fill("0.9")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 31)
    expect(reading).not_to_have_text(zoomed)
    panel.get_by_label("smoothing").fill("0")
    plot.dblclick()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    expect(reading).to_have_text(before)

    panel.get_by_title("hide several/values/other").click()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    expect(reading).not_to_contain_text("values/other")
    panel.get_by_label("draw").select_option("speaker/entropy")
    expect(panel.locator("figcaption")).to_have_text("speaker/entropy", timeout=SLOW_MS)
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 30)
    expect(reading).to_contain_text("(5 runs) 0.5", timeout=SLOW_MS)


def test_a_saved_notebook_shows_a_picture_without_a_kernel(lab: Lab, page: Page, browser: Browser) -> None:
    show(lab, page, "saved")
    expect(page.locator(".jp-InputPrompt").first).to_have_text("[1]:", timeout=SLOW_MS)  # the picture is displayed too
    page.keyboard.press("Escape")
    page.keyboard.press("Control+s")
    expect(page.locator(".lm-TabBar-tab.lm-mod-current.jp-mod-dirty")).to_have_count(0, timeout=SLOW_MS)
    words = [sys.executable, "-m", "nbconvert", "--to", "html", "several-saved.ipynb"]
    subprocess.run(words, cwd=lab.folder, check=True, capture_output=True, timeout=120)
    offline = browser.new_context(offline=True)
    copy = offline.new_page()
    copy.goto((lab.folder / "several-saved.html").as_uri())
    picture = copy.locator("img").first
    expect(picture).to_be_visible(timeout=SLOW_MS)
    assert picture.evaluate("image => image.naturalWidth") > 300
    offline.close()
