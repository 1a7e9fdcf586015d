"""Makes training-cell.png and training-cell-dark.png: `make browser-setup`, then `python -m docs.images.training_cell`.

A real JupyterLab in Chromium trains simple_speaker_listener for a while; the pictures are of its panel.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.lab import ARGUMENTS, CHROMIUM, SLOW_MS, Lab, lab_on

CELL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "frames=2_000_000", "threads=1")
TrainingPanel(experiment, "{run}", references={{"random": -39.8, "scripted oracle": -7.5}})
"""
THEMES = "@jupyterlab/apputils-extension:themes"
TRAINED_S = 20
COLOURS = 128  # a palette keeps the files small


def picture(lab: Lab, browser: Browser, name: str, tab: str) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 1700})
    cell = lab.open(page, lab.write(f"{name}.ipynb", CELL.format(run=f"runs/{name}"))).run(0)
    panel = cell.locator(".marlnb-training")
    expect(panel.locator(".marlnb-environment img")).to_be_visible(timeout=SLOW_MS)
    panel.get_by_role("tab", name=tab).click()
    panel.locator("button.marlnb-train").click()
    expect(panel.locator(".marlnb-run")).to_contain_text("frames a second", timeout=SLOW_MS)
    time.sleep(TRAINED_S)
    path = Path(__file__).with_name(f"{name}.png")
    panel.screenshot(path=str(path))
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    panel.locator("button.marlnb-stop").click()
    page.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lab_on(Path(folder)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        picture(lab, browser, "training-cell", "Algorithm")
        lab.choose(THEMES, {"theme": "JupyterLab Dark"})
        picture(lab, browser, "training-cell-dark", "As code")
        browser.close()


if __name__ == "__main__":
    main()
