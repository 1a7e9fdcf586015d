"""Names that contain HTML do nothing in a browser: no page that marlnb makes of them opens an alert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Page

from marlnb.batch.job.html_page import make_page
from tests.browser.hostile_reports import benchmark_report, comparison_page
from tests.display.pages import HOSTILE, all_pages, player_page

TRAP = "window.alerts = 0; window.alert = () => { window.alerts += 1 };"
CLICK_ALL = """() => {
  const runs = event => event.target.closest("a")?.protocol === "javascript:";
  document.addEventListener("click", event => runs(event) || event.preventDefault(), true);
  for (const item of document.querySelectorAll("img, details, a, button"))
    item.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
}"""  # a link to another page would leave this one
WAIT_MS = 500


def alerts(page: Page, html: str) -> int:
    """How many alerts a page opens; a script runs while it loads, and `onerror` after its picture is missing."""
    page.goto("about:blank")
    page.set_content(html)
    page.evaluate(CLICK_ALL)
    page.wait_for_timeout(WAIT_MS)
    return int(page.evaluate("window.alerts"))


def test_no_name_acts_in_a_page(page: Page, tmp_path: Path) -> None:
    page.add_init_script(TRAP)
    assert alerts(page, f"<p>{HOSTILE}</p>") >= 2  # the trap works
    shown = all_pages(tmp_path)
    assert alerts(page, "".join(f"<div>{html}</div>" for html in shown)) == 0
    assert "alert(1)" in page.inner_text("body")
    outputs = [new_output("display_data", {"text/html": str(html)}) for html in shown]
    notebook = tmp_path / "hostile.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("", outputs=outputs)]), notebook)
    assert alerts(page, make_page(notebook)) == 0
    assert alerts(page, player_page()) == 0
    assert "alert(1)" in page.inner_text("#caption")  # its script has run


@pytest.mark.parametrize("make", [benchmark_report, comparison_page])
def test_no_name_acts_in_a_report(page: Page, tmp_path: Path, make: Callable[[Path], Path]) -> None:
    page.add_init_script(TRAP)
    report = make(tmp_path)
    assert alerts(page, report.read_text(encoding="utf-8")) == 0
    assert "alert(1)" in page.inner_text("body")
    outputs = [
        output for cell in nbformat.read(report.with_suffix(".ipynb"), 4).cells for output in cell.get("outputs", [])
    ]
    shown = "".join(output.get("data", {}).get("text/html", "") for output in outputs)  # what a notebook trusts
    assert shown and alerts(page, shown) == 0
