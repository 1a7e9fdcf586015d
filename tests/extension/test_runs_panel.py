"""The side panel of runs, in a JupyterLab with the installed wheel."""

from __future__ import annotations

import json
import secrets
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab, until
from tests.lab.run_folders import write_run

HOSTILE = "<img src=x onerror=window.alerts=1>"


def open_lab(lab: Lab, page: Page) -> None:
    page.goto(f"{lab.url}/lab/workspaces/{secrets.token_hex(4)}?token={lab.token}")
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=SLOW_MS)


def open_panel(lab: Lab, page: Page) -> Locator:
    open_lab(lab, page)
    page.locator("[data-id=marlnb-runs]").click()
    panel = page.locator("#marlnb-runs")
    expect(panel).to_be_visible(timeout=SLOW_MS)
    return panel


def until_saved(lab: Lab, page: Page, holds: Callable[[dict[str, Any]], object]) -> None:
    """Waits until `holds` is true of the page's layout, as JupyterLab has saved it on the server."""
    workspace = page.url.partition("/workspaces/")[2].partition("?")[0].partition("/")[0]

    def is_saved() -> object:
        try:
            with urllib.request.urlopen(f"{lab.url}/lab/api/workspaces/{workspace}?token={lab.token}") as answer:
                return holds(json.load(answer)["data"].get("layout-restorer:data", {}))
        except urllib.error.HTTPError:  # nothing is saved yet
            return False

    until(is_saved)


def run_row(panel: Locator, name: str) -> Locator:
    return panel.locator(".marlnb-run-row", has_text=name)


def test_the_panel_follows_the_folders(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    runs = lab.folder / "runs"
    write_run(runs / "first", seed=0)
    for seed in range(3):
        write_run(runs / "both" / f"seed={seed}", seed=seed)
    write_run(runs / "half", state="running", frames=40_000)  # its process is gone
    panel = open_panel(lab, page)
    expect(panel.locator(".marlnb-run-row")).to_have_count(5, timeout=SLOW_MS)
    expect(panel.locator(".marlnb-group", has_text="both")).to_contain_text("3")
    expect(run_row(panel, "half")).to_contain_text("interrupted · 40%")
    expect(run_row(panel, "first")).to_contain_text("complete · 100.0k frames")
    expect(run_row(panel, "seed=2").locator(".marlnb-score")).to_have_text("-12.55")
    expect(run_row(panel, "first").locator("polyline")).to_have_count(1)
    keep(page, "panel")

    shutil.rmtree(runs / "first")  # within seconds the panel shows what has changed
    (runs / "both" / "seed=0" / "status.json").write_text(json.dumps({"state": "failed", "error": "ValueError: no\nb"}))
    write_run(runs / HOSTILE, seed=7)
    (runs / "broken").mkdir()
    (runs / "broken" / "experiment.json").write_text("{")
    expect(run_row(panel, "broken")).to_contain_text("unreadable", timeout=SLOW_MS)
    expect(run_row(panel, HOSTILE)).to_be_visible()
    expect(run_row(panel, "seed=0")).to_contain_text("ValueError: no")
    expect(run_row(panel, "first")).to_have_count(0)
    assert page.evaluate("window.alerts") is None
    run_row(panel, "broken").click()
    page.locator(".marlnb-page:visible").get_by_role("button", name="Copy command").click(timeout=SLOW_MS)
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("experiment.json cannot be read", timeout=SLOW_MS)
    dialog.get_by_role("button").click()

    panel.get_by_label("Search runs").fill("seed=2")
    expect(panel.locator(".marlnb-run-row")).to_have_count(1)
    for folder in runs.iterdir():
        shutil.rmtree(folder)
    panel.get_by_label("Search runs").fill("")
    until(lambda: panel.locator(".marlnb-run-row").count() == 0)
    expect(panel).to_contain_text("No runs here yet")
