"""1,000 runs: a bounded page, and times that are printed, with generous limits for machines that do other things."""

from __future__ import annotations

import json
import time
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel
from tests.lab.run_folders import write_run

N_RUNS = 1000
# `times`: when the first answer with runs came, and when its first row was painted; milliseconds since 1970.
# `paints`: milliseconds from each message to the next painted frame. `answers`: from each request to its answer.
TIMES = r"""() => {
  window.times = {};
  window.paints = [];
  window.answers = [];
  const now = () => performance.timeOrigin + performance.now();
  const text = data => typeof data === 'string' ? data : new TextDecoder('latin1').decode(data);
  const sent = new Map();
  const socket = WebSocket.prototype, listen = Object.getOwnPropertyDescriptor(socket, 'onmessage').set;
  const send = socket.send;
  socket.send = function(data) {
    const id = /\\"id\\":(\d+),\\"verb\\":\\"runs/.exec(text(data));
    if (id) sent.set(id[1], now());
    return send.call(this, data);
  };
  Object.defineProperty(socket, 'onmessage', { configurable: true, set(handler) {
    listen.call(this, event => {
      const start = performance.now(), shown = text(event.data);
      const id = /\\"id\\": (\d+), \\"answer\\"/.exec(shown);
      if (id && sent.has(id[1])) window.answers.push(now() - sent.get(id[1]));
      if (shown.includes('\\"changed\\": [{')) window.times.answer ??= now();
      handler.call(this, event);
      setTimeout(() => requestAnimationFrame(() => setTimeout(() => window.paints.push(performance.now() - start))));
    });
  } });
  const painted = (name, selector) => {
    if (!window.times[name] && document.querySelector(selector)) {
      window.times[name] = 'pending';
      requestAnimationFrame(() => setTimeout(() => window.times[name] = now()));
    }
  };
  const observer = new MutationObserver(() => painted('row', '.marlnb-run-row'));
  observer.observe(document, { subtree: true, childList: true, attributes: true });
}"""


def test_a_thousand_runs_scroll_in_a_bounded_page(lab: Lab, page: Page) -> None:
    folder = lab.folder / "many"
    for k in range(N_RUNS):
        write_run(folder / f"batch{k // 100}" / "jobs" / f"seed={k}", seed=k, rows=30)
    page.add_init_script(f"({TIMES})()")
    panel = open_panel(lab, page)
    start = time.monotonic()
    expect(panel.locator(".marlnb-run-row").first).to_be_visible(timeout=SLOW_MS)
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
    table.get_by_label("Search runs").fill("seed=333")
    expect(table.locator(".marlnb-grid-row[data-state=complete]")).to_have_count(1)
    status = folder / "batch3" / "jobs" / "seed=333" / "status.json"
    shown_s = [_change(page, status, state) for state in ("failed", "stopped", "failed", "stopped", "failed")]
    times, paints, answers = (page.evaluate(f"window.{name}") for name in ("times", "paints", "answers"))
    print(
        f"\n{N_RUNS} runs: first row painted {times['row'] - times['answer']:.0f} ms after the first answer with runs, "
        f"all shown after {complete_s:.2f} s (with the kernel's start); a change is shown after "
        f"{_median(shown_s):.2f} s, at most {max(shown_s):.2f} s; {len(answers)} answers: "
        f"median {_median(answers):.0f} ms, at most {max(answers):.0f} ms; paint after a message: "
        f"median {_median(paints):.0f} ms, at most {max(paints):.0f} ms; "
        f"a scrolled frame: median {_median(frames_ms):.0f} ms"
    )


def _change(page: Page, status: Path, state: str) -> float:
    """Gives the only run in the table another state; returns after how many seconds the page shows it."""
    written_s = time.time()
    status.write_text(json.dumps({"state": state}))
    shown = f"() => document.querySelector('.marlnb-grid-row[data-state={state}]') && Date.now()"
    shown_ms: float = page.wait_for_function(shown, polling="raf", timeout=SLOW_MS).json_value()
    return shown_ms / 1000 - written_s


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
