"""A run's page, the table and the comparison, in a JupyterLab with the installed wheel."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import marlnb as mnb
from marlnb.training.control import is_requested
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab, Notebook, until
from tests.extension.test_runs_panel import open_panel, run_row, until_saved
from tests.lab.run_folders import DATA, write_run


@pytest.fixture
def runs(lab: Lab) -> Path:
    folder = lab.folder / "pages"
    algorithm = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    for seed in range(3):
        write_run(folder / "sweep" / f"lr=0.1,seed={seed}", seed=seed, algorithm=algorithm | {"lr": 0.1})
        write_run(folder / "sweep" / f"lr=0.2,seed={seed}", seed=seed + 3, algorithm=algorithm | {"lr": 0.2})
    shutil.copytree(DATA / "checkpoints", folder / "sweep" / "lr=0.1,seed=0" / "checkpoints")
    return folder


def test_a_page_shows_a_run_and_acts_on_it(lab: Lab, runs: Path, page: Page, keep: Callable[..., None]) -> None:
    run = write_run(runs / "alive", state="running", frames=40_000)
    (run / "recordings").mkdir()
    (run / "recordings" / "it's.h5").write_bytes(b"1" * 2500)
    panel = open_panel(lab, page)
    with RunLock(run / "lock"):
        run_row(panel, "alive").click(timeout=SLOW_MS)
        shown = page.locator(".marlnb-page:visible")
        expect(shown.locator("h1")).to_have_text("alive", timeout=SLOW_MS)
        expect(shown).to_contain_text("training · 40%")
        expect(shown.locator(".marlnb-legend")).to_contain_text("speaker -10.55")
        keep(page, "run")
        shown.get_by_role("button", name="Pause").click()
        until(lambda: is_requested(run, "pause"))
        shown.get_by_role("button", name="Continue").click()
        until(lambda: not is_requested(run, "pause"))
        shown.get_by_role("button", name="Stop").click()
        until(lambda: is_requested(run, "stop"))
    expect(shown).to_contain_text("interrupted", timeout=SLOW_MS)
    shown.get_by_label("Tags").fill("good, <b>")
    shown.get_by_label("Tags").press("Tab")
    until(lambda: (run / "notes.json").exists())
    assert json.loads((run / "notes.json").read_text())["tags"] == ["good", "<b>"]
    expect(shown).to_contain_text("2.5 kB")

    shown.get_by_role("button", name="Open in the microscope").click()
    cell = page.locator(".jp-Notebook .jp-CodeCell").last
    expect(cell).to_contain_text("mnb.microscope(", timeout=SLOW_MS)
    expect(cell).to_contain_text("it's.h5")
    page.locator(".lm-TabBar-tab", has_text="alive").first.click()
    shown.get_by_role("button", name="Delete…").click()
    page.locator(".jp-Dialog button.jp-mod-warn").click()
    until(lambda: not run.exists())
    expect(page.locator(".lm-TabBar-tab", has_text="alive")).to_have_count(0)


def test_attaching_shows_the_run_live_in_a_notebook(lab: Lab, runs: Path, page: Page) -> None:
    panel = open_panel(lab, page)
    run_row(panel, "lr=0.1,seed=0").click(timeout=SLOW_MS)
    page.locator(".marlnb-page:visible").get_by_role("button", name="Attach in notebook").click(timeout=SLOW_MS)
    cell = page.locator(".jp-Notebook .jp-CodeCell").last
    expect(cell).to_contain_text("mnb.attach(", timeout=SLOW_MS)
    Notebook(page).connected()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".marlnb-run")).to_contain_text("complete", timeout=SLOW_MS)


def test_a_run_without_recordings_is_recorded_for_the_microscope(lab: Lab, runs: Path, page: Page) -> None:
    panel = open_panel(lab, page)
    run_row(panel, "lr=0.1,seed=0").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    shown.get_by_role("button", name="Record and open in the microscope").click(timeout=SLOW_MS)
    cell = page.locator(".jp-Notebook .jp-CodeCell").last
    expect(cell).to_contain_text("mnb.record(", timeout=SLOW_MS)
    Notebook(page).connected()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".jp-Notebook .marlnb-microscope")).to_be_visible(timeout=SLOW_MS)


def test_a_run_is_copied_shown_in_the_file_browser_and_started(lab: Lab, page: Page) -> None:
    small = ("n_envs=4", "rollout_steps=25", "model.hidden=[8]", "threads=1", "frames=200", "algorithm.epochs=1")
    experiment = mnb.Experiment.compose("env=mpe/simple_spread", *small, "evaluate_every=0")
    Run.create(lab.folder / "start" / "fresh", experiment)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    run_row(open_panel(lab, page), "fresh").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    for button, text in (("Copy command", "marlnb train"), ("Copy code", "Experiment.compose(")):
        shown.get_by_role("button", name=button).click(timeout=SLOW_MS)
        until(lambda text=text: text in page.evaluate("navigator.clipboard.readText()"))  # type: ignore[misc]
    shown.get_by_role("button", name="Start").click()
    expect(shown).to_contain_text("complete", timeout=SLOW_MS)
    shown.get_by_role("button", name="Show folder").click()
    expect(page.locator(".jp-DirListing:visible")).to_contain_text("experiment.json", timeout=SLOW_MS)


def test_a_new_notebook_is_in_no_run_and_a_deletion_says_what_it_deletes(lab: Lab, page: Page) -> None:
    run = write_run(lab.folder / "pages" / "browsed")
    run_row(open_panel(lab, page), "browsed").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    shown.get_by_role("button", name="Show folder").click(timeout=SLOW_MS)
    expect(page.locator(".jp-DirListing:visible")).to_contain_text("experiment.json", timeout=SLOW_MS)
    shown.get_by_role("button", name="Attach in notebook").click()
    until((lab.folder / "pages" / "Untitled.ipynb").exists)
    assert not list(run.glob("*.ipynb"))
    page.locator(".lm-TabBar-tab", has_text="browsed").first.click()
    shown.get_by_role("button", name="Delete…").click()
    expect(page.locator(".jp-Dialog")).to_contain_text("All files in this folder are deleted for good")
    page.locator(".jp-Dialog button.jp-mod-reject").click()
    assert run.exists()


def test_a_selection_is_compared_and_restored(lab: Lab, runs: Path, page: Page, keep: Callable[..., None]) -> None:
    panel = open_panel(lab, page)
    panel.get_by_role("button", name="Table").click(timeout=SLOW_MS)
    table = page.locator(".marlnb-table:visible")
    table.get_by_label("Search runs").fill("sweep")
    expect(table.locator(".marlnb-grid-row[data-state]")).to_have_count(6, timeout=SLOW_MS)
    table.get_by_role("button", name="Exploring return").click()
    scores = table.locator("[role=gridcell][data-column=score]")
    expect(scores.first).to_have_text("-15.55")
    keep(page, "table")
    table.locator(".marlnb-grid-group input").check()
    table.get_by_role("button", name="Compare 6").click()
    comparison = page.locator(".marlnb-page:visible")
    expect(comparison.locator("h1")).to_have_text("6 runs", timeout=SLOW_MS)
    legend = comparison.locator(".marlnb-legend")
    expect(legend).to_contain_text("algorithm.lr=0.1 (3 runs)", timeout=SLOW_MS)
    # by hand: the IQM of three runs is their mean: -11 and -14, less the common 30 exp(-4)
    expect(legend).to_contain_text("-11.55")
    expect(legend).to_contain_text("-14.55")
    comparison.get_by_label("average over algorithm.lr").check()
    expect(legend.locator("button")).to_have_count(1, timeout=SLOW_MS)
    keep(page, "compare")

    until_saved(lab, page, lambda layout: '"marlnb-compare:' in json.dumps(layout.get("main")))
    page.reload()
    expect(page.locator(".marlnb-page:visible h1")).to_have_text("6 runs", timeout=SLOW_MS)
    page.locator(".lm-TabBar-tab", has_text="Runs").first.click()
    expect(page.locator(".marlnb-table:visible").get_by_label("Search runs")).to_have_value("sweep", timeout=SLOW_MS)

    page.locator(".lm-TabBar-tab", has_text="Compare 6").click()
    page.get_by_role("button", name="Open as a notebook").click()
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_contain_text("lr=0.1,seed=0", timeout=SLOW_MS)
    Notebook(page).connected().menu("Run", "Run All Cells")
    expect(page.locator(".jp-Notebook .jp-OutputArea img")).to_be_visible(timeout=SLOW_MS)
    keep(page, "notebook")
