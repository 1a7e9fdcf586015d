"""What has the focus in an output keeps its keys, and leaves those with Ctrl to JupyterLab."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS, Lab

SHOWN = """
from IPython.display import display
import marlnb as mnb
from marlnb.widgets.core.curves import LiveCurves
curves = LiveCurves(title="returns")
curves.add({"line": ([1, 2, 3], [3, 1, 2])})
display(curves, mnb.microscope(mnb.gallery("tictactoe_league").recording))
"""


def test_letters_are_no_shortcuts_but_ctrl_s_saves(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("keys.ipynb", SHOWN))
    output = notebook.run(0)
    dirty = page.locator(".lm-TabBar-tab.lm-mod-current.jp-mod-dirty")
    for place in (".marlnb-plot", ".marlnb-scope"):
        expect(output.locator(place)).to_be_visible(timeout=SLOW_MS)
        notebook.cell(0).locator(".cm-content").click()
        page.keyboard.type(" ")
        expect(dirty).to_have_count(1, timeout=SLOW_MS)
        output.locator(place).focus()
        page.keyboard.press("b")  # of a notebook: a new cell below
        page.keyboard.press("Control+s")
        expect(dirty).to_have_count(0, timeout=SLOW_MS)
        expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(1)
