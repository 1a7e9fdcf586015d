"""Live curves draw at most twice a second, and not at all while they are not visible."""

from __future__ import annotations

import time

from playwright.sync_api import Page

from tests.browser.lab import Lab, points, until

# fifty points a second, for as long as the kernel lives
GROWING = """
import threading, time
from marlnb.widgets.core.curves import LiveCurves
curves = LiveCurves(title="grows")
def grow():
    for step in range(10_000):
        curves.add({"line": ([step], [step % 7])})
        time.sleep(0.02)
threading.Thread(target=grow, daemon=True).start()
curves
"""
COUNT = """() => {
  const before = CanvasRenderingContext2D.prototype.clearRect;
  window.drawn = 0;
  CanvasRenderingContext2D.prototype.clearRect = function (...sizes) {
    if (this.canvas.closest(".marlnb-curves")) window.drawn += 1;
    return before.apply(this, sizes);
  };
}"""


def test_new_points_are_drawn_twice_a_second_and_only_in_sight(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("curves.ipynb", GROWING))
    output = notebook.run(0)
    until(lambda: output.locator(".marlnb-live-curves").count() and points(output) > 10)
    page.evaluate(COUNT)
    start = time.monotonic()
    until(lambda: page.evaluate("window.drawn") >= 6)
    drawn = page.evaluate("window.drawn")
    assert drawn <= 2 + 2 * (time.monotonic() - start)  # a machine that is busy draws less often

    output.locator(".marlnb-live-curves").evaluate("element => element.style.display = 'none'")
    known = points(output)
    until(lambda: points(output) > known + 25)  # what was under way when it was hidden is drawn
    known, drawn = points(output), page.evaluate("window.drawn")
    until(lambda: points(output) > known + 50)
    assert page.evaluate("window.drawn") == drawn

    output.locator(".marlnb-live-curves").evaluate("element => element.style.display = ''")
    until(lambda: page.evaluate("window.drawn") > drawn, 5)
