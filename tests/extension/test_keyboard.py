"""The extension without a mouse: the panel, a run's page, the table and a comparison."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel
from tests.lab.run_folders import write_run

FOCUSED = """(e => e === document.body ? '' : `${e.textContent} ${e.getAttribute('aria-label')} ${e.placeholder}`)(
  document.activeElement)"""


def press_until(page: Page, key: str, name: str) -> None:
    """Moves the focus until a control of this name has it."""
    for _ in range(25):
        if name in page.evaluate(FOCUSED):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} does not lead to {name}; it led to {page.evaluate(FOCUSED)}")


@pytest.fixture
def runs(lab: Lab) -> None:
    for seed in range(3):
        write_run(lab.folder / "keys" / "sweep" / f"seed={seed}", seed=seed)


def test_runs_are_opened_and_compared_with_keys(lab: Lab, runs: None, page: Page) -> None:
    panel = open_panel(lab, page)
    expect(panel.locator(".marlnb-run-row")).to_have_count(3, timeout=SLOW_MS)
    expect(page.locator(".jp-LauncherCard").first).to_be_visible(timeout=SLOW_MS)  # it takes the focus once
    panel.get_by_label("Search runs").focus()
    press_until(page, "Tab", "seed=0")  # the list of runs, whose text has all names
    page.keyboard.press("ArrowDown")
    expect(panel.locator(".marlnb-group[aria-selected=true]")).to_have_count(1)
    page.keyboard.press("Enter")  # closes the group
    expect(panel.locator(".marlnb-run-row")).to_have_count(0)
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    expect(panel.locator(".marlnb-run-row[aria-selected=true]")).to_have_count(1)
    name = panel.locator(".marlnb-run-row[aria-selected=true] .marlnb-name").inner_text()
    page.keyboard.press("Enter")
    shown = page.locator(".marlnb-page:visible")
    expect(shown.locator("h1")).to_contain_text(name, timeout=SLOW_MS)

    shown.get_by_role("button", name="Attach in notebook").focus()
    press_until(page, "Tab", "Mean return of one agent:")
    reading = shown.locator("[role=status].marlnb-reading").first
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(reading).to_contain_text("frames: ")
    before = reading.inner_text()
    page.keyboard.press("+")  # zooms around what is read
    page.keyboard.press("ArrowLeft")
    expect(reading).not_to_have_text(before)
    page.keyboard.press("Escape")
    expect(reading).to_have_text("")

    panel.get_by_role("button", name="Table").focus()
    page.keyboard.press("Enter")
    table = page.locator(".marlnb-table:visible")
    expect(table.locator(".marlnb-grid-row[data-state]")).to_have_count(3, timeout=SLOW_MS)
    table.get_by_role("grid").focus()
    for key in ("Home", "Space"):  # the group: all its runs
        page.keyboard.press(key)
    expect(table.locator("input:checked")).to_have_count(5)  # all, the group, three runs
    compare = table.get_by_role("button", name="Compare 3")
    compare.focus()
    page.keyboard.press("Enter")
    expect(shown.locator("h1")).to_have_text("3 runs", timeout=SLOW_MS)
    expect(shown.locator(".marlnb-legend button")).to_have_count(1)
    legend = shown.locator(".marlnb-legend button")
    legend.focus()
    page.keyboard.press("Space")
    expect(legend).to_have_attribute("aria-pressed", "false")
