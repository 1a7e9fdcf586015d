"""The microscope in a real JupyterLab in Chromium: seconds until it is drawn, and frames a second while scrubbing.

    python -m benchmarks.microscope [--repetitions 3] [--steps 1000] [--agents 8] [--units 256]

An untrained policy plays one episode of simple_spread. The opening time runs from the cell's first line, with modules
loaded, until the browser has drawn everything but the pictures and attributions, which arrive later. Scrubbing starts
when all have arrived: it moves the slider at every animation frame, over the whole episode, with the microscope as
large as the window. A frame's work on the page's main thread is processor time, which other load does not change.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import CDPSession, Page, expect, sync_playwright

import marlnb as mnb
from benchmarks.table import Row, report
from tests.browser.lab import ARGUMENTS, CHROMIUM, Lab, lab_on

FRAMES = 300
SLOW_MS = 180_000
PREPARE = """
import time
import marlnb as mnb
import marlnb.widgets.microscope.microscope
recording = mnb.Recording.open({path!r})
print("ready")
"""
OPEN = """
began = time.time()
scope = mnb.microscope(recording)
print("began", began)
scope
"""
SCRUB = """async ([root, n]) => {
  const slider = root.querySelector(".ms-slider"), last = Number(slider.max), times = [];
  const drawn = () => new Promise((go) => requestAnimationFrame((time) => go(time)));
  let before = await drawn();
  for (let k = 0; k < n; k++) {
    slider.value = String(Math.round((k / (n - 1)) * last));
    slider.dispatchEvent(new Event("input"));
    await drawn();
    const now = performance.now();
    times.push(now - before);
    before = now;
  }
  return [times, root.dataset.t];
}"""
KINDS = {"ScriptDuration": "scripting", "RecalcStyleDuration": "style", "LayoutDuration": "layout"}
WORK = {"TaskDuration": "all", **KINDS}


@dataclass(frozen=True)
class Opened:
    """Attributes: seconds: until drawn. frames_ms: of each frame. work_ms: of the main thread a frame, by kind."""

    seconds: float
    frames_ms: list[float]
    work_ms: dict[str, float]

    @property
    def rate(self) -> float:
        return _rate(self.frames_ms)

    @property
    def slowest(self) -> float:
        return _rate(sorted(self.frames_ms)[-max(1, len(self.frames_ms) // 20) :])


def _rate(frames_ms: list[float]) -> float:
    return 1000 * len(frames_ms) / sum(frames_ms)


def made_recording(folder: Path, steps: int, agents: int, units: int) -> Path:
    experiment = mnb.Experiment.compose(
        "env=mpe/simple_spread", f"env.N={agents}", f"env.max_cycles={steps}", "algorithm=ippo",
        f"model.hidden=[{units}]", "n_envs=1", "rollout_steps=32", "frames=32", "threads=1",
    )  # fmt: skip
    run = mnb.train(experiment, run=folder / "run", progress=False)
    with mnb.record(run, episodes=1, sites="agent/actor/hidden_1", progress=False) as recording:
        return recording.path.absolute()


def opened(page: Page, lab: Lab, path: Path, number: int) -> Opened:
    notebook = lab.open(page, lab.write(f"open-{number}.ipynb", PREPARE.format(path=str(path)), OPEN))
    expect(notebook.run(0)).to_contain_text("ready", timeout=SLOW_MS)
    output = notebook.run(1)
    scope = output.locator(".marlnb-scope")
    scope.wait_for(timeout=SLOW_MS)
    expect(output).to_contain_text("began", timeout=SLOW_MS)
    start = float(output.inner_text().split("began", 1)[1].split()[0])
    seconds = float(scope.get_attribute("data-opened") or "nan") / 1000 - start
    steps = page.evaluate("(root) => root.querySelector('.ms-slider').max", scope.element_handle())
    film = scope.locator(".ms-film canvas")
    expect(film).to_have_attribute("data-pictures", str(int(steps) + 1), timeout=SLOW_MS)
    scope.locator(".ms-looks .ms-bar-name").first.wait_for(timeout=SLOW_MS)
    scope.evaluate("(root) => root.scrollIntoView()")
    clock = page.context.new_cdp_session(page)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _worked_ms(clock)
    times, at = page.evaluate(SCRUB, [scope.element_handle(), FRAMES])
    after = _worked_ms(clock)
    assert at == steps, f"the scope is at step {at}, not at {steps}"
    return Opened(seconds, times, {kind: (after[kind] - before[kind]) / FRAMES for kind in after})


def _worked_ms(clock: CDPSession) -> dict[str, float]:
    """Processor time of the page's main thread so far."""
    metrics = {one["name"]: 1000 * one["value"] for one in clock.send("Performance.getMetrics")["metrics"]}
    return {kind: metrics[name] for name, kind in WORK.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("repetitions", 3), ("steps", 1000), ("agents", 8), ("units", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    pages = []
    with tempfile.TemporaryDirectory(prefix="marlnb-microscope-") as made:
        folder = Path(made)
        path = made_recording(folder, arguments.steps, arguments.agents, arguments.units)
        with lab_on(folder / "lab") as lab, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            for number in range(arguments.repetitions):
                page = browser.new_page(viewport={"width": 1300, "height": 950})
                pages.append(opened(page, lab, path, number))
                page.close()
            browser.close()
    size = f"{arguments.steps} steps × {arguments.agents} agents × {arguments.units} units"
    rows = [
        Row("opening", tuple(one.seconds for one in pages), "s", target=2.0, at_most=True),
        Row("scrubbing", tuple(one.rate for one in pages), "frames/s", target=30.0),
        Row("… the slowest twentieth", tuple(one.slowest for one in pages), "frames/s", target=30.0),
        Row("main thread, a frame", tuple(one.work_ms["all"] for one in pages), "ms", target=10.0, at_most=True),
        *(Row(f"… {kind}", tuple(one.work_ms[kind] for one in pages), "ms") for kind in KINDS.values()),
    ]
    report("microscope", f"The microscope: {size}", rows)


if __name__ == "__main__":
    main()
