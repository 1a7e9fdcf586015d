"""The training cell in a browser: fill the form, train, see a problem, resume."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab

CELL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
panel = TrainingPanel(mnb.Experiment.compose("env=mpe/simple_tag", "algorithm=ippo", "n_envs=8", "frames=20_000"))
panel
"""


def test_a_person_chooses_trains_and_reads_the_code(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    notebook = lab.open(page, lab.write("training.ipynb", CELL, "panel.run"))
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel).to_contain_text("mpe/simple_tag: episodes of at most 25 steps", timeout=SLOW_MS)
    expect(panel.locator(".marlnb-environment img")).to_be_visible(timeout=SLOW_MS)
    keep(page, "1-environment")
    search = panel.get_by_placeholder("search").first
    search.fill("walker")  # a search chooses nothing
    expect(panel).to_contain_text("mpe/simple_tag is still chosen", timeout=SLOW_MS)
    search.fill("")
    expect(panel.get_by_label("environment", exact=True)).to_have_value("mpe/simple_tag", timeout=SLOW_MS)
    panel.get_by_role("button", name="Random episode").click()
    expect(panel).to_contain_text("returns of random actions:", timeout=SLOW_MS)

    panel.get_by_role("tab", name="Algorithm").click()
    expect(panel.locator(".marlnb-algorithm")).to_contain_text("parameters in 2 policies", timeout=SLOW_MS)
    keep(page, "2-algorithm")
    panel.locator(".marlnb-algorithm select").first.select_option("iql")

    panel.get_by_role("tab", name="Length").click()
    frames = panel.locator(".marlnb-field-frames input")
    frames.fill("lots")
    expect(panel.locator(".marlnb-field-frames [role=alert]")).to_contain_text("whole number", timeout=SLOW_MS)
    keep(page, "3-problem")
    expect(panel.locator("button.marlnb-train")).to_be_disabled()
    panel.get_by_role("tab", name="As code").click()  # where no code stands that would do something else
    expect(panel.locator("[role=alert]:visible").first).to_contain_text("whole number", timeout=SLOW_MS)
    expect(panel.locator("pre:visible")).to_have_count(0)
    panel.get_by_role("tab", name="Length").click()
    frames.fill("6_000")
    panel.get_by_role("tab", name="As code").click()
    expect(panel).to_contain_text("frames=6000", timeout=SLOW_MS)
    expect(panel).to_contain_text("algorithm=iql", timeout=SLOW_MS)
    panel.get_by_placeholder("runs/<env>").fill("runs/chosen")
    panel.locator("button.marlnb-train").click()
    expect(panel.locator(".marlnb-run")).to_contain_text("complete", timeout=SLOW_MS)
    keep(page, "4-trained")
    run = Run.open(lab.folder / "runs" / "chosen")
    assert run.experiment.algorithm.name == "iql" and run.status()["state"] == "complete"
