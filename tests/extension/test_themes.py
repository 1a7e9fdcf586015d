"""The panel, the table and a run's page in both themes at two widths: contrast, clipped controls, names of controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.test_themes import CLIPPED, FAINT, NAMELESS, THEMES
from tests.extension.test_runs_panel import open_panel, run_row
from tests.lab.run_folders import write_run


def expect_readable(part: Locator) -> None:
    """No faint text, no clipped control and none without a name, as soon as the charts have the window's width."""
    for _ in range(40):
        problems = (part.evaluate(FAINT), part.evaluate(CLIPPED), NAMELESS.findall(part.aria_snapshot()))
        if not any(problems):
            break
        part.page.wait_for_timeout(250)
    assert problems == ({}, [], [])


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_it_is_readable_in_both_themes_at_two_widths(
    lab: Lab, page: Page, keep: Callable[..., None], theme: str
) -> None:
    folder = lab.folder / "themes"
    for state in ("complete", "failed", "paused", "created"):
        write_run(folder / "sweep" / state, state=state)
    lab.choose(THEMES, {"theme": theme})
    try:
        panel = open_panel(lab, page)
        run_row(panel, "complete").first.click(timeout=SLOW_MS)
        shown = page.locator(".marlnb-page:visible")
        expect(shown.locator("canvas")).to_be_visible(timeout=SLOW_MS)
        for width in (1300, 800):
            page.set_viewport_size({"width": width, "height": 900})
            for part in (panel, shown):
                expect_readable(part)
            keep(page, f"page-{width}")
        panel.get_by_role("button", name="Table").click()
        table = page.locator(".marlnb-table:visible")
        expect(table.locator(".marlnb-grid-row[data-state]").first).to_be_visible(timeout=SLOW_MS)
        keep(page, "table")
        assert table.evaluate(FAINT) == {} and NAMELESS.findall(table.aria_snapshot()) == []
        names = table.locator("[role=gridcell][data-column=name]")
        left = names.first.evaluate("name => name.getBoundingClientRect().left")
        table.locator(".marlnb-virtual-list").evaluate("list => list.scrollLeft = 400")
        assert names.first.evaluate("name => name.getBoundingClientRect().left") == left  # names stay in view
        keep(page, "table-scrolled")
    finally:
        lab.choose(THEMES, None)
