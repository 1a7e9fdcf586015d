"""The extension in the oldest JupyterLab that it supports, and in Notebook 7."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.lab import SLOW_MS, Lab, lab_on
from tests.extension.test_runs_panel import open_panel, run_row
from tests.lab.run_folders import write_run


@pytest.fixture
def oldest_lab(oldest_python: Path, tmp_path: Path) -> Iterator[Lab]:
    write_run(tmp_path / "lab" / "runs" / "old")
    with lab_on(tmp_path / "lab", python=oldest_python) as served:
        yield served


def test_the_oldest_jupyterlab(oldest_lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    panel = open_panel(oldest_lab, page)
    assert page.evaluate("JSON.parse(document.getElementById('jupyter-config-data').text).appVersion")[:3] == "4.4"
    run_row(panel, "old").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    expect(shown.locator("canvas")).to_be_visible(timeout=SLOW_MS)
    keep(page, "run")
    panel.get_by_role("button", name="Table").click()
    expect(page.locator(".marlnb-table:visible .marlnb-grid-row[data-state]")).to_have_count(1, timeout=SLOW_MS)
    page.locator("[data-id=marlnb-queue]").click()
    expect(page.locator("#marlnb-queue")).to_contain_text("No batches here yet", timeout=SLOW_MS)


def test_notebook_7(lab: Lab, browser: Browser, keep: Callable[..., None]) -> None:
    """Not with the fixture `page`: Notebook 7 raises an error of its own while it loads its shortcuts."""
    write_run(lab.folder / "seven" / "mine")
    page = browser.new_page(viewport={"width": 1300, "height": 950})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error.stack)) if "marlnb" in str(error.stack) else None)
    lab.open(page, lab.write("seven.ipynb", "1"), "notebooks")
    page.locator(".lm-MenuBar-item", has_text="View").first.click()
    page.locator(".lm-Menu-item", has_text="Left Sidebar").hover()
    page.locator(".lm-Menu-item", has_text="Show Runs").click()
    run_row(page.locator("#marlnb-runs"), "mine").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    expect(shown.locator("h1")).to_have_text("mine", timeout=SLOW_MS)
    expect(shown.locator("canvas")).to_be_visible(timeout=SLOW_MS)
    box = shown.bounding_box()
    assert box is not None and box["height"] > 150
    keep(page, "run")
    page.locator(".jp-NotebookPanel-toolbar [data-command='marlnb:submit']").click()
    expect(page.locator(".lm-TabBar-tab", has_text="Submit seven.ipynb")).to_be_visible(timeout=SLOW_MS)
    assert problems == []
    page.close()
