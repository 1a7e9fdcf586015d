"""The life of a notebook: reloads, a second notebook, Run All, restarts, interrupts, faults, a closed kernel."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab, button, points, until

BEGIN = """
import marlnb as mnb
from marlnb.widgets import attach
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "frames=200_000_000",
    "threads=1")
training = mnb.start(experiment, "{run}")
attach(training.run)
"""
PANEL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
experiment = mnb.Experiment.compose(
    "env={env}", "algorithm=ippo", "n_envs=8", "rollout_steps=25", "frames=200_000_000", "threads=1")
panel = TrainingPanel(experiment, "{run}")
panel
"""
AWAITED = "run = await panel.train()"
AFTERWARDS = "print('then:', run.status()['state'], len(run.checkpoints) > 0)"
BROKEN = """
from pathlib import Path
from mpe2 import simple_spread_v3
from pettingzoo.utils import BaseParallelWrapper

class Broken(BaseParallelWrapper):
    steps = 0
    def step(self, actions):
        self.steps += 1
        if self.steps > 60 and not Path("mended").exists():
            raise ValueError("the door is stuck")
        return super().step(actions)

def make():
    return Broken(simple_spread_v3.parallel_env(max_cycles=25))
"""


def test_a_reloaded_page_comes_back_with_every_point_and_others_join(lab: Lab, page: Page, browser: Browser) -> None:
    notebook = lab.open(page, lab.write("life.ipynb", BEGIN.format(run="runs/life"), BEGIN.format(run="runs/second")))
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: points(panel) > 5)
    notebook.save()
    before = points(panel)

    page.reload()
    notebook.connected()  # no cell is run: the panel that was displayed lives again
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: points(panel) > before)
    second = notebook.run(1).locator(".marlnb-run")  # and another training run at the same time
    expect(second).to_contain_text("frames a second", timeout=SLOW_MS)

    other = browser.new_page(viewport={"width": 1300, "height": 950})
    joined = lab.open(other, lab.write("other.ipynb", "from marlnb.widgets import attach\nattach('runs/life')"))
    there = joined.run(0).locator(".marlnb-run")
    expect(there).to_contain_text("frames a second", timeout=SLOW_MS)
    button(there, "Stop").click()
    for shown in (there, panel):
        expect(shown).to_contain_text("stopped: resume from the last checkpoint", timeout=SLOW_MS)
    rows = Run.open(lab.folder / "runs" / "life").metrics()
    n_returns = int(rows["returns/listener"].notna().sum())
    until(lambda: points(panel) == points(there) == n_returns)
    expect(second).to_contain_text("frames a second")  # the other training run does not care
    button(second, "Stop").click()
    expect(second).to_contain_text("stopped: resume", timeout=SLOW_MS)
    other.close()


def test_run_all_restart_and_an_interrupt(lab: Lab, page: Page) -> None:
    cells = (PANEL.format(env="mpe/simple_spread", run="runs/all"), AWAITED, AFTERWARDS)
    notebook = lab.open(page, lab.write("all.ipynb", *cells))
    panel = notebook.output(0).locator(".marlnb-run")
    notebook.menu("Run", "Run All Cells")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    button(panel, "Pause").click()  # buttons answer while the cell waits
    expect(panel).to_contain_text("paused", timeout=SLOW_MS)
    expect(notebook.output(2)).to_be_empty()
    button(panel, "Continue").click()
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    button(panel, "Stop").click()
    expect(notebook.output(2)).to_contain_text("then: stopped True", timeout=SLOW_MS)
    run = Run.open(lab.folder / "runs" / "all")
    iteration = run.status()["iteration"]

    notebook.menu("Run", "Restart Kernel and Run All")  # a dialog asks, and is answered with yes
    expect(notebook.output(2)).to_be_empty(timeout=SLOW_MS)
    until(lambda: run.status()["state"] == "running" and run.status()["iteration"] > iteration, SLOW_MS / 1000)
    expect(notebook.output(2)).to_be_empty()
    notebook.menu("Kernel", "Interrupt Kernel")
    expect(notebook.output(1)).to_contain_text("StoppedError: the cell was interrupted", timeout=SLOW_MS)
    expect(notebook.output(1)).to_contain_text("Run the cell again to resume.")
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == run.status()["iteration"]
    iteration = run.status()["iteration"]
    notebook.run(1)
    until(lambda: run.status()["iteration"] > iteration)
    button(panel, "Stop").click()
    expect(panel).to_contain_text("stopped: resume", timeout=SLOW_MS)


def test_an_environment_that_raises_while_it_trains(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    (lab.folder / "broken.py").write_text(BROKEN)
    cell = PANEL.format(env="pettingzoo/custom", run="runs/broken")
    cell = cell.replace('"algorithm', '"env.entry_point=broken:make", "checkpoint_every=1", "algorithm')
    notebook = lab.open(page, lab.write("broken.ipynb", cell))
    form = notebook.run(0).locator(".marlnb-training")
    form.locator("button.marlnb-train").click(timeout=SLOW_MS)
    panel = form.locator(".marlnb-run")
    expect(panel.get_by_role("alert")).to_contain_text("the door is stuck", timeout=SLOW_MS)
    expect(panel.get_by_role("alert")).to_contain_text("broken.py")  # and where in it
    run = Run.open(lab.folder / "runs" / "broken")
    assert run.status()["state"] == "failed" and run.checkpoint().iteration > 0
    keep(panel, "failed")
    iteration = run.status()["iteration"]
    (lab.folder / "mended").touch()
    button(panel, "Resume").click()
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: run.status()["iteration"] > iteration + 2)
    expect(panel.get_by_role("alert")).to_have_count(0)
    button(panel, "Stop").click()
    expect(panel).to_contain_text("stopped: resume", timeout=SLOW_MS)
