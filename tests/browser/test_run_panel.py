"""The run panel in a browser: train, pause, resume, save, reload the page, attach elsewhere, stop."""

from __future__ import annotations

import time

from playwright.sync_api import Browser, Page, expect

from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab, button, points, until

BEGIN = """
import marlnb as mnb
from marlnb.widgets.runs.attach import attach
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "frames=200_000_000",
    "threads=1", "tuned=false")
training = mnb.start(experiment, "{run}")
panel = attach(training.run, references={{"random": -39.8, "scripted oracle": -7.5}})
panel
"""


def test_a_training_is_watched_paused_saved_and_stopped(lab: Lab, page: Page) -> None:
    name = lab.write("panel.ipynb", BEGIN.format(run="runs/panel"), "attach('runs/panel')")
    notebook = lab.open(page, name)
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    run = Run.open(lab.folder / "runs" / "panel")
    before = points(panel)
    until(lambda: points(panel) > before)

    button(panel, "Pause").click()
    expect(panel).to_contain_text("paused", timeout=SLOW_MS)
    iteration = run.status()["iteration"]
    time.sleep(0.5)
    assert run.status()["state"] == "paused" and run.status()["iteration"] == iteration

    button(panel, "Checkpoint").click()
    until(lambda: bool(run.checkpoints))
    button(panel, "Continue").click()
    until(lambda: run.status()["iteration"] > iteration)

    page.reload()  # the browser is closed and opened again: the kernel has continued
    notebook.connected()
    again = notebook.run(1).locator(".marlnb-run")
    expect(again).to_contain_text("frames a second", timeout=SLOW_MS)
    assert points(again) > before
    button(again, "Stop").click()
    expect(again).to_contain_text("stopped: resume from the last checkpoint", timeout=SLOW_MS)
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == run.status()["iteration"]
    button(again, "Resume").click()
    expect(again).to_contain_text("frames a second", timeout=SLOW_MS)
    button(again, "Stop").click()
    expect(again).to_contain_text("stopped: resume", timeout=SLOW_MS)


def test_two_pages_show_one_panel(lab: Lab, page: Page, browser: Browser) -> None:
    name = lab.write("twice.ipynb", BEGIN.format(run="runs/twice"))
    notebook = lab.open(page, name)
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: points(panel) > 5)
    notebook.save()

    with browser.new_page(viewport={"width": 1300, "height": 950}) as other:
        second = lab.open(other, name)  # the same notebook, the same kernel: nothing is run
        there = second.output(0).locator(".marlnb-run")
        expect(there).to_contain_text("frames a second", timeout=SLOW_MS)
        before = points(there)
        until(lambda: points(there) > before)

        button(there, "Pause").click()
        for shown in (panel, there):
            expect(shown).to_contain_text("paused", timeout=SLOW_MS)
            expect(button(shown, "Continue")).to_be_visible(timeout=SLOW_MS)
        until(lambda: points(panel) == points(there))
        there.get_by_role("tab", name="Checkpoints").click()
        expect(panel.get_by_role("tab", name="Checkpoints")).to_have_attribute("aria-selected", "true", timeout=SLOW_MS)
        button(panel, "Checkpoint").click()
        for shown in (panel, there):
            expect(shown.locator(".marlnb-choice tbody tr")).to_have_count(1, timeout=SLOW_MS)
        there.get_by_title("hide speaker", exact=True).click()
        expect(panel.get_by_title("show speaker", exact=True)).to_be_visible(timeout=SLOW_MS)

        button(panel, "Continue").click()
        paused_at = points(there)
        until(lambda: points(there) > paused_at and points(panel) > paused_at)
        button(there, "Stop").click()
        for shown in (panel, there):
            expect(shown).to_contain_text("stopped: resume from the last checkpoint", timeout=SLOW_MS)
    button(panel, "Resume").click()  # one page is closed: the other lives
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    button(panel, "Stop").click()
    expect(panel).to_contain_text("stopped: resume", timeout=SLOW_MS)
