"""A page that stays open: what it holds after garbage collection must not grow.

MARLNB_LEAK_MINUTES says for how long it is used; `make extension-leak` sets an hour. Each cycle of about two seconds
opens and closes the pages that a person would, while ten runs change every second.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import CDPSession, Page, expect

from marlnb.training.runs.lock import RunLock
from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel, run_row
from tests.lab.run_folders import write_run

MINUTES = float(os.environ.get("MARLNB_LEAK_MINUTES", "1"))
WARM_UP_CYCLES = 5
N_ALIVE = 10
MAX_GROWTH = {"heap_mb": 5.0, "listeners": 200, "kernel_mb": 15.0}  # beyond the first third
MAX_DETACHED = 200  # nodes of marlnb outside of the document


@pytest.mark.timeout(int(60 * MINUTES) + 600)
def test_a_page_that_stays_open_does_not_grow(lab: Lab, page: Page) -> None:
    folder = lab.folder / "leak"
    for seed in range(40):
        write_run(folder / "sweep" / f"seed={seed}", seed=seed)
    alive = [write_run(folder / "alive" / f"live-{k}", state="running", frames=40_000) for k in range(N_ALIVE)]
    locks = [RunLock(run / "lock") for run in alive]
    ended = threading.Event()
    writer = threading.Thread(target=_train, args=(alive, ended), daemon=True)
    panel = open_panel(lab, page)
    session = page.context.new_cdp_session(page)
    samples: list[dict[str, float]] = []
    for lock in locks:
        lock.__enter__()
    writer.start()
    try:
        expect(run_row(panel, "live-0")).to_be_visible(timeout=SLOW_MS)  # then the table's first drawing has rows
        panel.get_by_role("button", name="Table").click(timeout=SLOW_MS)
        expect(page.locator(".marlnb-table:visible .marlnb-grid-row[data-state]").first).to_be_visible(timeout=SLOW_MS)
        end, cycles = time.monotonic() + 60 * MINUTES, 0
        while time.monotonic() < end or cycles < 3 * WARM_UP_CYCLES:
            _look_around(page, f"live-{cycles % N_ALIVE}")
            cycles += 1
            if cycles >= WARM_UP_CYCLES:
                minute = MINUTES - (end - time.monotonic()) / 60
                samples.append({"minute": minute, **_sample(session, lab)})
    finally:
        ended.set()
        writer.join()
        for lock in locks:
            lock.__exit__(None, None, None)
    detached = _detached(session)
    print("\nnodes that are in no document any more:", *list(detached.items())[:8], sep="\n  ", end="")
    print("\nalong the way:")
    for sample in samples[:: max(1, len(samples) // 12)]:
        print("  " + ", ".join(f"{name} {value:.1f}" for name, value in sample.items()))
    third = max(1, len(samples) // 3)
    growth = {}
    for name in MAX_GROWTH:
        first, last = (
            sorted(sample[name] for sample in part)[third // 2] for part in (samples[:third], samples[-third:])
        )
        growth[name] = last - first
        print(f"\n{name}: {first:.1f} in the first third, {last:.1f} in the last of {cycles} cycles", end="")
    print()
    assert {name: value for name, value in growth.items() if value > MAX_GROWTH[name]} == {}
    assert sum(count for name, count in detached.items() if "marlnb" in name) < MAX_DETACHED


def _look_around(page: Page, alive: str) -> None:
    """Opens a run's page and a comparison, looks at the queue and the table, and closes what it opened."""
    panel = page.locator("#marlnb-runs")
    run_row(panel, alive).click()
    expect(page.locator(".marlnb-page:visible canvas").first).to_be_visible(timeout=SLOW_MS)
    page.locator("[data-id=marlnb-queue]").click()
    expect(page.locator("#marlnb-queue")).to_be_visible(timeout=SLOW_MS)
    page.locator("[data-id=marlnb-runs]").click()
    _close_tab(page, alive)
    table = page.locator(".marlnb-table:visible")
    table.get_by_label("Search runs").fill("sweep")
    boxes = table.locator(".marlnb-grid-row[data-state] input")
    for box in boxes.all()[:2]:
        box.check()
    table.get_by_role("button", name="Compare 2").click()
    expect(page.locator(".marlnb-page:visible canvas").first).to_be_visible(timeout=SLOW_MS)
    _close_tab(page, "Compare 2")
    for box in boxes.all()[:2]:
        box.uncheck()
    table.get_by_label("Search runs").fill("")


def _close_tab(page: Page, name: str) -> None:
    tab = page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text=name)
    tab.locator(".lm-TabBar-tabCloseIcon").click()
    expect(tab).to_have_count(0, timeout=SLOW_MS)


def _train(runs: list[Path], ended: threading.Event) -> None:
    """Changes each run every second, as a training run does, without letting it grow."""
    frames = 40_000
    while not ended.wait(1):
        frames += 10
        for run in runs:
            status = {"state": "running", "frames": frames, "frames_total": 10_000_000, "updated": time.time()}
            (run / "status.json").write_text(json.dumps(status))


def _sample(session: CDPSession, lab: Lab) -> dict[str, float]:
    """What the page holds after garbage collection, and the memory of the panel's kernel."""
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    return {
        "heap_mb": metrics["JSHeapUsedSize"] / 1e6,
        "nodes": metrics["Nodes"],
        "listeners": metrics["JSEventListeners"],
        "kernel_mb": _kernel_mb(lab),
    }


DETACHED = """function() {
  const counts = {};
  for (const node of this) {
    if (Object.hasOwn(node, 'constructor') || node.isConnected) continue;  // a prototype is no node
    let root = node;
    while (root.parentNode) root = root.parentNode;
    const name = `${root.nodeName} ${root.className?.baseVal ?? root.className ?? ''}`.trim().slice(0, 60);
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return Object.fromEntries(Object.entries(counts).sort((a, b) => b[1] - a[1]));
}"""


def _detached(session: CDPSession) -> dict[str, int]:
    """What a page may not free: by name and class of the root, how many nodes are outside of the document."""
    session.send("HeapProfiler.collectGarbage")
    prototype = session.send("Runtime.evaluate", {"expression": "Node.prototype"})["result"]["objectId"]
    nodes = session.send("Runtime.queryObjects", {"prototypeObjectId": prototype})["objects"]["objectId"]
    call = {"functionDeclaration": DETACHED, "objectId": nodes, "returnByValue": True}
    counts: dict[str, int] = session.send("Runtime.callFunctionOn", call)["result"]["value"]
    return counts


def _kernel_mb(lab: Lab) -> float:
    with urllib.request.urlopen(f"{lab.url}/api/sessions?token={lab.token}", timeout=30) as answer:
        (kernel,) = [each["kernel"]["id"] for each in json.load(answer) if each["name"] == "marlnb panel"]
    (process,) = [each for each in psutil.process_iter(["cmdline"]) if kernel in " ".join(each.info["cmdline"] or [])]
    return process.memory_info().rss / 1e6
