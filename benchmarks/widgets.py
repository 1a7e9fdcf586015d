"""The cost of a panel: how soon it answers a click during a training run at full speed, and how much it slows training.

    python -m benchmarks.widgets [--part page slowdown kernel] [--clicks 30] [--pairs 20] [--window 4]

It runs in a real JupyterLab and Chromium (`make browser-test` installs what they need). A training run of native MPE
runs in a thread of the notebook's kernel and holds Python's lock most of the time.

- *page*: seconds in the page from a click on Checkpoint or Pause until the panel's text changes; the growth of the
  kernel's resident memory from the first panel, imports included; the page's heap.
- *kernel*: the same training with and without a panel, in pairs of short windows (see `benchmarks.drivers.windows`),
  with the kernel on one core. A process on the other core discards the kernel's messages to the page, as with a hub,
  where the browser runs on another machine.
- *slowdown*: the same with a Jupyter server and a page in Chromium: these first run on a core of their own, then share
  both cores with the kernel. The table shows their share of a core too, since two cores may not be independent.

The saved picture below a panel takes at most 0.2% of the time to draw, and is not drawn within these windows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from playwright.sync_api import Locator, expect, sync_playwright

from benchmarks.drivers.kernel import kernel_in
from benchmarks.drivers.windows import Pair, Window, in_pairs, interval, place, watch
from benchmarks.table import Row, report
from marlnb.training.runs.files import METRICS, read_lines
from marlnb.training.runs.run import Run
from tests.browser.lab import ARGUMENTS, CHROMIUM, SLOW_MS, Notebook, lab_on, until

TRAINING = """
import os, marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_spread", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "frames=1_000_000_000", "threads=1",
    "keep_checkpoints=1", "tuned=false")
training = mnb.start(experiment, "run")
"""
THREAD = "import threading\nprint([one.native_id for one in threading.enumerate() if one.name == 'training run'][0])"
WHO = f"{THREAD}\nprint('process', os.getpid())"
MEMORY = """
with open("/proc/self/statm") as file:
    print("resident", int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""
SHOW = "from marlnb.widgets import attach\npanel = attach('run')\npanel"
HIDE = "panel.close()\nimport ipywidgets\nipywidgets.Widget.close_all()\nprint('hidden')"
SETTLE_S = 2.0
SHORTLY_S = 1.0  # after a panel was shown or removed
WARM_ITERATIONS = 20
PARTS = ("kernel", "page", "slowdown")
# clicks, and waits until the panel says so
ANSWERED = """([panel, name, words]) => new Promise((answer, refuse) => {
  const button = [...panel.querySelectorAll("button")].find(b => b.textContent.trim() === name);
  const began = performance.now();
  const look = new MutationObserver(() => {
    if (!panel.textContent.includes(words)) return;
    look.disconnect();
    answer((performance.now() - began) / 1000);
  });
  look.observe(panel, { subtree: true, childList: true, characterData: true });
  setTimeout(() => refuse(new Error(`${name}: no answer in 30 s`)), 30000);
  button.click();
})"""


@contextmanager
def training_notebook() -> Iterator[tuple[Notebook, Run]]:
    """A notebook whose kernel trains; cells 1 to 4: print the memory, show a panel, remove it, print the thread."""
    with tempfile.TemporaryDirectory() as folder, lab_on(Path(folder)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1300, "height": 950})
        notebook = lab.open(page, lab.write("bench.ipynb", TRAINING, MEMORY, SHOW, HIDE, WHO))
        notebook.run(0)
        yield notebook, _warm(lab.folder / "run")
        browser.close()


def clicks(panel: Locator, run: Run, number: int) -> dict[str, list[float]]:
    """Seconds until each click is answered, by button."""
    waits: dict[str, list[float]] = {"Checkpoint": [], "Pause": []}
    for _ in range(number):
        waits["Checkpoint"].append(_click(panel, "Checkpoint", "saving after"))
        time.sleep(0.5)  # a person does not click faster; the training reaches full speed again
    for _ in range(number):
        waits["Pause"].append(_click(panel, "Pause", "Continue"))
        until(lambda: run.status()["state"] == "paused")
        _click(panel, "Continue", "Pause")
        until(lambda: run.status()["state"] == "running")
        time.sleep(0.5)
    return waits


def panel_on(notebook: Notebook) -> Callable[[bool], None]:
    """Shows a panel on the page, or removes it."""

    def switch(shown: bool) -> None:
        if shown:
            show(notebook)
        else:
            expect(notebook.run(3)).to_contain_text("hidden", timeout=SLOW_MS)

    return switch


def who(notebook: Notebook) -> tuple[int, int]:
    """The training's thread, and the kernel's process."""
    output = notebook.run(4)
    expect(output).to_contain_text("process", timeout=SLOW_MS)
    thread, _, process = output.inner_text().split()[-3:]
    return int(thread), int(process)


def show(notebook: Notebook) -> Locator:
    panel = notebook.run(2).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    return panel


def memory_mb(notebook: Notebook) -> float:
    """The kernel's resident memory."""
    output = notebook.run(1)
    expect(output).to_contain_text("resident", timeout=SLOW_MS)
    time.sleep(SETTLE_S)
    return int(output.inner_text().split()[-1]) / 1e6


def _warm(folder: Path) -> Run:
    until(lambda: len(read_lines(folder / METRICS)) >= WARM_ITERATIONS if (folder / METRICS).exists() else False, 300)
    return Run.open(folder)


def _click(panel: Locator, name: str, words: str) -> float:
    expect(panel).not_to_contain_text(words, timeout=SLOW_MS)
    return float(panel.page.evaluate(ANSWERED, [panel.element_handle(), name, words]))


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]


def page_rows(n_clicks: int) -> list[Row]:
    with training_notebook() as (notebook, run):
        before = memory_mb(notebook)
        panel = show(notebook)
        time.sleep(SETTLE_S)
        gained = memory_mb(notebook) - before
        heap = notebook.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        answers = clicks(panel, run, n_clicks)
    return [
        *(Row(f"a click on {name}", tuple(seconds), "s") for name, seconds in answers.items()),
        *(Row(f"… 95th percentile, {name}", (_p95(v),), "s", target=0.3, at_most=True) for name, v in answers.items()),
        Row("the kernel's memory, gained by a panel", (gained,), "MB"),
        Row("heap of the page", (heap,), "MB"),
    ]


def kernel_rows(n_pairs: int, window_s: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, kernel_in(Path(folder)) as kernel:
        kernel.ask(TRAINING)
        run, thread = _warm(Path(folder) / "run"), int(kernel.ask(THREAD))

        def switch(shown: bool) -> None:
            kernel.ask(SHOW if shown else HIDE)

        return pair_rows("no browser", pairs(switch, run, (thread, kernel.pid), n_pairs, window_s, *cores()))


def slowdown_rows(n_pairs: int, window_s: float) -> list[Row]:
    apart, both = cores(), set.union(*cores())
    with training_notebook() as (notebook, run):
        settings = (panel_on(notebook), run, who(notebook), n_pairs, window_s)
        return pair_rows("a browser apart", pairs(*settings, *apart)) + pair_rows(
            "all on both", pairs(*settings, both, both)
        )


def cores() -> tuple[set[int], set[int]]:
    """One core for the kernel and one for all else; the same one where there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others[:1]) or {first}


def pairs(
    switch: Callable[[bool], None],
    run: Run,
    thread_and_kernel: tuple[int, int],
    n: int,
    window_s: float,
    of_kernel: set[int],
    of_others: set[int],
) -> list[Pair]:
    """Windows without and with a panel; the kernel and all else run on these cores."""
    thread, kernel = thread_and_kernel
    everywhere = os.sched_getaffinity(0)
    place(kernel, of_kernel, of_others)
    try:
        return in_pairs(n, switch, lambda: watch(run, kernel, thread, window_s), settle_s=SHORTLY_S)
    finally:
        place(kernel, everywhere, everywhere)


def pair_rows(where: str, pairs: list[Pair]) -> list[Row]:
    """Frames per second with a panel over those without, by pair, and the causes of the difference."""

    def ratios(what: str, of: Callable[[Window], float], **target: Any) -> list[Row]:
        values = tuple(of(pair.loaded) / of(pair.plain) for pair in pairs)
        low, high = interval(values)
        return [
            Row(f"{where}: {what}, with a panel over without", values, "×", **target),
            Row(f"{where}: … its median and the 95% interval of that", (low, median(values), high), "×"),
        ]

    def shares(what: str, of: Callable[[Window], float], **target: Any) -> list[Row]:
        return [
            Row(f"{where}: {what}, no panel", _percent(of(pair.plain) for pair in pairs), "%"),
            Row(f"{where}: {what}, a panel", _percent(of(pair.loaded) for pair in pairs), "%", **target),
        ]

    return [
        Row(f"{where}: training, no panel", tuple(pair.plain.per_s for pair in pairs), "frames/s"),
        *ratios("frames a second", lambda window: window.per_s, target=0.98),
        *ratios("frames a second on a core", lambda window: window.per_cpu_s),
        *ratios("time on a core", lambda window: window.on_core),
        *shares("training delayed", lambda window: window.slept, target=1.0, at_most=True),
        *shares("training waits for a core", lambda window: window.waited_s / window.wall_s),
        *shares("a core for the kernel's other threads", lambda window: window.others_s / window.wall_s),
        *shares("a core for other processes", lambda window: window.outside_s / window.wall_s),
    ]


def _percent(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(100 * share for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--clicks", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=20, help="of windows")
    parser.add_argument("--window", type=float, default=4.0, help="seconds of training in one window")
    arguments = parser.parse_args()
    rows = []
    if "kernel" in arguments.part:
        rows += kernel_rows(arguments.pairs, arguments.window)
    if "page" in arguments.part:
        rows += page_rows(arguments.clicks)
    if "slowdown" in arguments.part:
        rows += slowdown_rows(arguments.pairs, arguments.window)
    report("widgets", "A run's panel in JupyterLab while it trains", rows)


if __name__ == "__main__":
    main()
