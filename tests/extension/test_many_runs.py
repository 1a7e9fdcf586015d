"""1,000 runs: a bounded page, and times that are printed, with generous limits for machines that do other things."""

from __future__ import annotations

import json
import shutil
import time

from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel
from tests.lab.run_folders import write_run

N_RUNS = 1000
# milliseconds from the first answer with runs, and from each later one, to the next painted frame
PAINTS = """() => {
  window.paints = [];
  const socket = WebSocket.prototype, listen = Object.getOwnPropertyDescriptor(socket, 'onmessage').set;
  Object.defineProperty(socket, 'onmessage', { configurable: true, set(handler) {
    listen.call(this, event => {
      const start = performance.now();
      handler.call(this, event);
      setTimeout(() => requestAnimationFrame(() => setTimeout(() => window.paints.push(performance.now() - start))));
    });
  } });
}"""


def test_a_thousand_runs_scroll_in_a_bounded_page(lab: Lab, page: Page) -> None:
    folder = lab.folder / "many"
    for k in range(N_RUNS):
        write_run(folder / f"batch{k // 100}" / "jobs" / f"seed={k}", seed=k, rows=30)
    page.add_init_script(f"({PAINTS})()")
    panel = open_panel(lab, page)
    start = time.monotonic()
    expect(panel.locator(".marlnb-run-row").first).to_be_visible(timeout=SLOW_MS)
    first_s = time.monotonic() - start
    panel.get_by_role("button", name="Table").click()
    table = page.locator(".marlnb-table:visible")
    expect(table.locator(".marlnb-grid")).to_have_attribute("aria-rowcount", str(N_RUNS + 10), timeout=SLOW_MS)
    complete_s = time.monotonic() - start
    assert panel.locator(".marlnb-run-row").count() < 60 and table.locator(".marlnb-grid-row").count() < 80

    scroller = table.locator(".marlnb-virtual-list")
    frames_ms = scroller.evaluate(
        """async box => {
          const times = [];
          for (let top = 0; top < box.scrollHeight; top += 400) {
            const start = performance.now();
            box.scrollTop = top;
            await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            times.push(performance.now() - start);
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    assert table.locator(".marlnb-grid-row").count() < 80
    paints = page.evaluate("window.paints")
    status = folder / "batch3" / "jobs" / "seed=333" / "status.json"
    table.get_by_label("Search runs").fill("seed=333")
    expect(table.locator(".marlnb-grid-row[data-state=complete]")).to_have_count(1)
    changed = time.monotonic()
    status.write_text(json.dumps({"state": "failed", "error": "E: no"}))
    expect(table.locator(".marlnb-grid-row[data-state=failed]")).to_have_count(1, timeout=SLOW_MS)
    refresh_s = time.monotonic() - changed
    print(
        f"\n{N_RUNS} runs: first rows after {first_s:.2f} s (with the kernel's start), all after {complete_s:.2f} s; "
        f"paint after a message: median {sorted(paints)[len(paints) // 2]:.0f} ms, at most {max(paints):.0f} ms; "
        f"a scrolled frame: median {frames_ms[len(frames_ms) // 2]:.0f} ms; a change is shown after {refresh_s:.2f} s"
    )
    shutil.rmtree(folder)
