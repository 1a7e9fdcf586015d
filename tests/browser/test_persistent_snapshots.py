"""The picture below a panel in the notebook's file, in JupyterLab and in Notebook 7: it is the newest one, also after
the page was reloaded, and it is shown when there is no kernel any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import ROOT, SLOW_MS, Application, Lab, Notebook, button, points, until

TRAIN = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
experiment = mnb.Experiment.compose(
    "env=mpe/simple_tag", "algorithm=ippo", "n_envs=8", "rollout_steps=25", "frames=200_000_000", "threads=1")
panel = TrainingPanel(experiment, "{run}")
training = panel.start()
panel
"""
LOOK = """
import marlnb as mnb
recording = mnb.record("runs/{run}", episodes=3, name="kept", exist="open", progress=False)
mnb.microscope(recording)
"""
APPLICATIONS = pytest.mark.parametrize("application", ["lab", "notebooks"])


@APPLICATIONS
def test_of_a_training(application: Application, lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    name = lab.write(f"kept-training-{application}.ipynb", TRAIN.format(run=f"runs/kept-training-{application}"))
    notebook = lab.open(page, name, application)
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: points(panel) > 5)
    before = _saved_picture(lab, notebook, name, ": training")

    page.reload()
    notebook.connected()
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    button(panel, "Stop").click()
    expect(panel).to_contain_text("stopped: resume", timeout=SLOW_MS)
    assert _saved_picture(lab, notebook, name, "stopped: resume") != before
    _is_seen_without_a_kernel(notebook, keep)


@APPLICATIONS
def test_of_the_microscope(application: Application, lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    run = f"kept-scope-{application}"
    shutil.copytree(ROOT / "data" / "speaker_listener", lab.folder / "runs" / run)
    name = lab.write(f"{run}.ipynb", LOOK.format(run=run))
    notebook = lab.open(page, name, application)
    panel = notebook.run(0).locator(".marlnb-microscope")
    _all_pictures(panel)
    before = _saved_picture(lab, notebook, name, "step 0;")

    page.reload()
    notebook.connected()
    _all_pictures(panel)
    panel.locator(".ms-slider").fill("12")
    assert _saved_picture(lab, notebook, name, "step 12;") != before
    _is_seen_without_a_kernel(notebook, keep)


def _all_pictures(panel: Locator) -> None:
    expect(panel.locator(".ms-film canvas").first).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)


def _is_seen_without_a_kernel(notebook: Notebook, keep: Callable[..., None]) -> None:
    picture = notebook.output(0).locator(".jp-RenderedImage img")
    expect(picture).to_have_count(1)
    expect(picture).to_be_hidden()  # while the panel lives
    notebook.shut_down()
    notebook.page.reload()
    expect(picture).to_be_visible(timeout=SLOW_MS)
    expect(notebook.output(0).locator(".marlnb-live")).to_have_count(0)
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 300
    keep(notebook.page, "without-a-kernel")


def _saved_picture(lab: Lab, notebook: Notebook, name: str, text: str) -> str:
    """The picture below the panel in the notebook's file, once its text contains this."""
    pictures: list[str] = []

    def is_saved() -> bool:
        with notebook.page.expect_response(lambda answer: answer.url.split("?")[0].endswith(f"{name}/checkpoints")):
            notebook.menu("File", "Save Notebook")  # which ends with that
        try:
            outputs = nbformat.read(lab.folder / name, 4).cells[0].outputs
        except nbformat.reader.NotJSONError:  # an automatic save is writing it
            return False
        shown = [output.data for output in outputs if "image/png" in output.get("data", {})]
        pictures[:] = [data["image/png"] for data in shown if text in data["text/plain"]]
        return bool(pictures)

    until(is_saved, 120)
    return pictures[0]
