"""The map of runs in the comparison page, and two runs side by side in the microscope."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel
from tests.lab.run_folders import DATA


def test_two_runs_open_where_they_differ_most(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    folder = lab.folder / "map"
    for name in ("late", "early"):
        shutil.copytree(DATA, folder / name)
    shutil.rmtree(folder / "early" / "checkpoints" / "130")  # its last checkpoint is number 90
    open_panel(lab, page).get_by_role("button", name="Table").click(timeout=SLOW_MS)
    table = page.locator(".marlnb-table:visible")
    table.get_by_label("Search runs").fill("map/")
    expect(table.locator(".marlnb-grid-row[data-state]")).to_have_count(2, timeout=SLOW_MS)
    table.locator(".marlnb-grid-group input").check()
    table.get_by_role("button", name="Compare 2").click()
    comparison = page.locator(".marlnb-page:visible")
    comparison.get_by_role("button", name="Map by hidden states").click(timeout=SLOW_MS)
    shown = comparison.get_by_role("region", name="Map by hidden states")
    expect(shown.get_by_role("button", name="late, return")).to_be_visible(timeout=SLOW_MS)
    expect(shown).to_contain_text("At speaker_0 speaker/actor/hidden_2, late and early have equal returns")
    shown.get_by_label("Units").select_option(label="listener_0 listener/actor/hidden_1")
    expect(shown).to_contain_text("At listener_0 listener/actor/hidden_1, late and early", timeout=SLOW_MS)
    keep(comparison, "map")

    place = shown.get_by_role("button", name="Open both at").inner_text()
    step = place.rpartition(" ")[2]
    shown.get_by_role("button", name="Open both at").click()
    scope = page.locator(".jp-Notebook .marlnb-microscope")
    expect(scope).to_contain_text("late, the observations of episode", timeout=SLOW_MS)
    expect(scope).to_contain_text("early, the observations of episode")
    expect(scope).to_contain_text(f"step {step}")
    keep(page, "microscope")
