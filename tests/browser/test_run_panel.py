"""The run panel as a person uses it: train, pause, resume, save, reload the page, attach elsewhere, stop."""

from __future__ import annotations

import time

from playwright.sync_api import Locator, Page, expect

from marlnb.training.run import Run
from tests.browser.lab import SLOW_MS, Lab

BEGIN = """
import marlnb as mnb
from marlnb.widgets.run_panel import attach
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "frames=200_000_000",
    "threads=1")
training = mnb.start(experiment, "{run}")
panel = attach(training.run, references={{"random": -39.8, "scripted oracle": -7.5}})
panel
"""


def _button(panel: Locator, name: str) -> Locator:
    return panel.locator("button", has_text=name).first


def _points(panel: Locator) -> int:
    return int(panel.locator("canvas").first.get_attribute("data-points") or 0)


def test_a_training_is_watched_paused_saved_and_stopped(lab: Lab, page: Page) -> None:
    name = lab.write("panel.ipynb", BEGIN.format(run="runs/panel"), "attach('runs/panel')")
    notebook = lab.open(page, name)
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    run = Run.open(lab.folder / "runs" / "panel")
    before = _points(panel)
    _until(lambda: _points(panel) > before)

    _button(panel, "Pause").click()
    expect(panel).to_contain_text("paused", timeout=20_000)
    iteration = run.status()["iteration"]
    time.sleep(0.5)
    assert run.status()["state"] == "paused" and run.status()["iteration"] == iteration

    _button(panel, "Checkpoint").click()
    _until(lambda: bool(run.checkpoints))
    _button(panel, "Resume").click()
    _until(lambda: run.status()["iteration"] > iteration)

    page.reload()  # the browser is closed and opened again: the kernel has gone on
    notebook.connected()
    again = notebook.run(1).locator(".marlnb-run")
    expect(again).to_contain_text("frames a second", timeout=SLOW_MS)
    assert _points(again) > before
    _button(again, "Stop").click()
    expect(again).to_contain_text("stopped: go on from the last checkpoint", timeout=20_000)
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == run.status()["iteration"]
    _button(again, "Go on").click()
    expect(again).to_contain_text("frames a second", timeout=20_000)
    _button(again, "Stop").click()
    expect(again).to_contain_text("stopped: go on", timeout=20_000)


def _until(holds: object, deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
