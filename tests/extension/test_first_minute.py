"""What a person meets first: the launcher, completion in an experiment's text, and the status bar."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from marlnb.training.runs.lock import RunLock
from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_lab, open_panel, until_saved
from tests.lab.run_folders import write_run


def test_the_launcher_opens_a_training_cell(lab: Lab, page: Page) -> None:
    open_lab(lab, page)
    section = page.locator(".jp-Launcher-section", has_text="marlnb")
    for name in ("Train agents", "Gallery", "First hour", "Runs", "Submit a batch"):
        expect(section.locator(".jp-LauncherCard", has_text=name)).to_be_visible(timeout=SLOW_MS)
    section.locator(".jp-LauncherCard", has_text="Train agents").click()
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_contain_text("TrainingPanel()", timeout=SLOW_MS)


def test_the_first_hour_needs_no_clone(lab: Lab, page: Page) -> None:
    open_lab(lab, page)
    page.locator(".jp-LauncherCard", has_text="First hour").click(timeout=SLOW_MS)
    shown = page.locator(".jp-MarkdownViewer:visible")
    expect(shown).to_contain_text("Two agents learn to communicate", timeout=SLOW_MS)
    shown.get_by_role("link", name="Two agents learn to communicate").click()
    expect(page.locator(".jp-NotebookPanel:visible")).to_contain_text("import marlnb as mnb", timeout=SLOW_MS)
    assert (lab.folder / "first-hour" / "does_the_listener_listen.ipynb").is_file()


def test_names_are_completed_inside_an_experiment(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("complete.ipynb", 'mnb.Experiment.compose("env=mpe/simple_sp'))
    cell = notebook.cell(0).locator(".cm-content")
    item = page.locator(".jp-Completer .jp-Completer-item", has_text="mpe/simple_speaker_listener")
    for _ in range(10):  # the first answer starts a kernel, and the completer does not wait for it
        cell.click()
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        page.wait_for_timeout(3000)
        if item.count():
            break
        page.keyboard.press("Escape")
    expect(item).to_be_visible()
    item.click()
    expect(cell).to_contain_text('"env=mpe/simple_speaker_listener')


def test_the_status_bar_counts_trainings(lab: Lab, page: Page) -> None:
    run = write_run(lab.folder / "status" / "alive", state="running", frames=40_000)
    with RunLock(run / "lock"):
        open_panel(lab, page)
        item = page.locator(".marlnb-status")
        expect(item).to_contain_text("1 training run", timeout=SLOW_MS)
        page.locator("[data-id=marlnb-runs]").click()  # the panel is closed, and still the runs are read
        until_saved(lab, page, lambda layout: layout.get("left", {}).get("collapsed"))
        page.reload()
        expect(item).to_contain_text("1 training run", timeout=SLOW_MS)
    expect(item).to_have_text("", timeout=SLOW_MS)
