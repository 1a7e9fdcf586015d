"""A notebook that was executed without a page and opened later: its panel works from the saved state."""

from __future__ import annotations

import os
import subprocess
import sys

from playwright.sync_api import Browser, Page, expect

from marlnb.training.runs.run import Run
from tests.browser.lab import ROOT, SLOW_MS, Lab, points

PARAMETERS = 'run = ""'
PANEL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
experiment = mnb.Experiment.compose(
    "env=mpe/simple_tag", "algorithm=ippo", "n_envs=4", "rollout_steps=25", "frames=1000", "threads=1")
panel = TrainingPanel(experiment, run)
panel
"""


def test_an_executed_notebook_shows_its_panel_and_its_page_a_picture(lab: Lab, page: Page, browser: Browser) -> None:
    source = lab.write("job.ipynb", PARAMETERS, PANEL, "await panel.train()", tags={0: ["parameters"]})
    words = [
        sys.executable,
        "-m",
        "marlnb.batch.job.execute",
        str(lab.folder / source),
        "--out",
        str(lab.folder / "job"),
    ]
    settings = {"JUPYTER_DATA_DIR": str(lab.data), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(words, env={**os.environ, **settings}, cwd=lab.folder, check=True, capture_output=True, timeout=240)
    iterations = Run.open(lab.folder / "job").status()["iteration"]

    lab.show(page, "job/notebook.ipynb")
    panel = page.locator(".marlnb-training")
    expect(panel).to_contain_text("complete, 1.0k of 1.0k frames", timeout=SLOW_MS)  # it is signed, hence trusted
    expect(panel.locator(".marlnb-live-curves").first).to_have_attribute("data-points", str(iterations))
    assert points(panel) == iterations == 10
    expect(panel.locator(".marlnb-field-frames input")).to_have_value("1000")
    expect(page.locator(".jp-RenderedImage img")).to_be_hidden()

    offline = browser.new_context(offline=True)
    copy = offline.new_page()
    copy.goto((lab.folder / "job" / "notebook.html").as_uri())
    picture = copy.locator(".jp-RenderedImage img").first
    expect(picture).to_be_visible(timeout=SLOW_MS)
    assert picture.evaluate("image => image.naturalWidth") > 300
    offline.close()
