"""What a panel costs: how soon a click is answered while training runs flat out, and how much slower training gets.

    python -m benchmarks.widgets [--part page kernel] [--clicks 30] [--repetitions 5] [--period 15]

A real JupyterLab and Chromium (`make browser-test` installs what that needs), and a training of native MPE in a thread
of the notebook's kernel, which holds Python's lock most of the time.

- *a click*: seconds in the page from a click on Checkpoint, or Pause, until the panel's words have changed.
- *frames*: of the same training, frames a second in periods in turns with a panel on the page and without one; the
  training's own clock. Browser, server and kernel share the machine's cores.
- *memory*: what the kernel's resident memory gains by the first panel, imports included, and the page's heap.
- *kernel*: without a browser, the time that the kernel's threads other than the training's spend on a core, and the
  time that the training's thread sleeps, waiting for Python's lock or for files; as Linux counts them, so that they
  hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from playwright.sync_api import Locator, expect, sync_playwright

from benchmarks.drivers.kernel import Shares, kernel_in
from benchmarks.table import Row, report
from marlnb.training.run import METRICS, Run, read_lines
from tests.browser.lab import ARGUMENTS, CHROMIUM, SLOW_MS, Notebook, lab_on, until

TRAINING = """
import os, marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_spread", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "frames=1_000_000_000", "threads=1",
    "keep_checkpoints=1")
training = mnb.start(experiment, "run")
"""
THREAD = "import threading\nprint([one.native_id for one in threading.enumerate() if one.name == 'training run'][0])"
MEMORY = """
with open("/proc/self/statm") as file:
    print("resident", int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""
SHOW = "from marlnb.widgets import attach\npanel = attach('run')\npanel"
HIDE = "panel.close()\npanel.widget.close()\nprint('hidden')"
SETTLE_S = 2.0
WARM_ITERATIONS = 20
KERNEL_PERIOD_S = 8.0
PARTS = ("kernel", "page")
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
    """A notebook whose kernel trains; its cells 1 to 3 tell the memory, show a panel and take it away."""
    with tempfile.TemporaryDirectory() as folder, lab_on(Path(folder)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1300, "height": 950})
        notebook = lab.open(page, lab.write("bench.ipynb", TRAINING, MEMORY, SHOW, HIDE))
        notebook.run(0)
        yield notebook, _warm(lab.folder / "run")
        browser.close()


def clicks(panel: Locator, run: Run, number: int) -> dict[str, list[float]]:
    """Seconds until each click is answered, by button."""
    found: dict[str, list[float]] = {"Checkpoint": [], "Pause": []}
    for _ in range(number):
        found["Checkpoint"].append(_click(panel, "Checkpoint", "saving after"))
        time.sleep(0.5)  # a person does not click faster, and the training runs flat out again
    for _ in range(number):
        found["Pause"].append(_click(panel, "Pause", "Resume"))
        until(lambda: run.status()["state"] == "paused")
        _click(panel, "Resume", "Pause")
        until(lambda: run.status()["state"] == "running")
        time.sleep(0.5)
    return found


def rates(notebook: Notebook, run: Run, repetitions: int, period_s: float) -> dict[str, list[float]]:
    """Frames a second with a panel and without, in turns, one way round and the other."""
    found: dict[str, list[float]] = {"no panel": [], "a panel": []}
    for repetition in range(repetitions):
        for what in ("no panel", "a panel") if repetition % 2 else ("a panel", "no panel"):
            if what == "a panel":
                show(notebook)
            time.sleep(SETTLE_S)
            found[what].append(_rate(run, period_s))
            if what == "a panel":
                expect(notebook.run(3)).to_contain_text("hidden", timeout=SLOW_MS)
    return found


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


def shares(repetitions: int, period_s: float) -> dict[str, list[Shares]]:
    """What the threads of a kernel without a page do with their time, with a panel and without, in turns."""
    found: dict[str, list[Shares]] = {"no panel": [], "a panel": []}
    with tempfile.TemporaryDirectory() as folder, kernel_in(Path(folder)) as kernel:
        kernel.ask(TRAINING)
        thread = int(kernel.ask(THREAD))
        _warm(Path(folder) / "run")
        for _ in range(repetitions):
            found["no panel"].append(kernel.shares(thread, period_s))
            kernel.ask(SHOW)
            time.sleep(SETTLE_S)
            found["a panel"].append(kernel.shares(thread, period_s))
            kernel.ask(HIDE)
            time.sleep(SETTLE_S)
    return found


def _warm(folder: Path) -> Run:
    until(lambda: len(read_lines(folder / METRICS)) >= WARM_ITERATIONS if (folder / METRICS).exists() else False, 300)
    return Run.open(folder)


def _click(panel: Locator, name: str, words: str) -> float:
    expect(panel).not_to_contain_text(words, timeout=SLOW_MS)
    return float(panel.page.evaluate(ANSWERED, [panel.element_handle(), name, words]))


def _rate(run: Run, period_s: float) -> float:
    """Frames a second by the clock of the training, over the iterations of the next so many seconds."""
    before = len(read_lines(run.path / METRICS)) - 1
    time.sleep(period_s)
    rows = read_lines(run.path / METRICS)
    first, last = rows[before], rows[-1]
    return float((last["frames"] - first["frames"]) / (last["seconds"] - first["seconds"]))


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]


def page_rows(n_clicks: int, repetitions: int, period_s: float) -> list[Row]:
    with training_notebook() as (notebook, run):
        before = memory_mb(notebook)
        panel = show(notebook)
        time.sleep(SETTLE_S)
        gained = memory_mb(notebook) - before
        heap = notebook.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        answers = clicks(panel, run, n_clicks)
        expect(notebook.run(3)).to_contain_text("hidden", timeout=SLOW_MS)
        trained = rates(notebook, run, repetitions, period_s)
    # the machine's speed wanders by more than 2% within minutes, and by less from one period to the next
    in_turns = tuple(a / b for a, b in zip(trained["a panel"], trained["no panel"]))
    return [
        *(Row(f"a click on {name}", tuple(found), "s") for name, found in answers.items()),
        *(Row(f"… 95th percentile, {name}", (_p95(v),), "s", target=0.3, at_most=True) for name, v in answers.items()),
        Row("training, no panel", tuple(trained["no panel"]), "frames/s"),
        Row("training, a panel", tuple(trained["a panel"]), "frames/s", against="training, no panel"),
        Row("… with a panel over without, turn by turn", in_turns, "×", target=0.98),
        Row("the kernel's memory, gained by a panel", (gained,), "MB"),
        Row("heap of the page", (heap,), "MB"),
    ]


def kernel_rows(repetitions: int, period_s: float) -> list[Row]:
    found = shares(repetitions, period_s)
    target: dict[str, Any] = {"no panel": {}, "a panel": {"target": 1.0, "at_most": True}}
    return [
        row
        for what, values in found.items()
        for row in (
            Row(f"the kernel beside its training, {what}", _percent(v.others for v in values), "%", **target[what]),
            Row(f"training held up, {what}", _percent(v.held_up for v in values), "%", **target[what]),
        )
    ]


def _percent(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(100 * share for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--clicks", type=int, default=30)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--period", type=float, default=15.0, help="seconds of training in one measurement")
    asked = parser.parse_args()
    rows = []
    if "kernel" in asked.part:
        rows += kernel_rows(asked.repetitions, min(asked.period, KERNEL_PERIOD_S))
    if "page" in asked.part:
        rows += page_rows(asked.clicks, asked.repetitions, asked.period)
    report("widgets", "A run's panel in JupyterLab while it trains", rows)


if __name__ == "__main__":
    main()
