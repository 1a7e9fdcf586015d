"""Makes microscope.png: `make browser-setup`, then `python -m docs.images.microscope`.

A real JupyterLab in Chromium opens the agents of data/speaker_listener in the microscope.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.lab import ARGUMENTS, CHROMIUM, ROOT, SLOW_MS, lab_on

CELL = """
import marlnb as mnb
recording = mnb.record("runs/listener", episodes=80, name="looked-at", progress=False)
goal = mnb.decode(recording, site="listener/actor/hidden_2", label="goal", n_shuffles=19, progress=False)
scope = mnb.microscope(recording, episode=1, t=6, layer="actor/hidden_2", order="cluster", concepts=[goal])
scope
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lab_on(Path(folder)) as lab, sync_playwright() as playwright:
        shutil.copytree(ROOT / "data" / "speaker_listener", lab.folder / "runs" / "listener")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1400, "height": 1500})
        notebook = lab.open(page, lab.write("microscope.ipynb", CELL))
        scope = notebook.run(0).locator(".marlnb-scope")
        expect(scope).to_have_attribute("data-t", "6", timeout=SLOW_MS)
        expect(scope.locator("[data-agent=listener_0] .ms-looks .ms-bar-name")).to_have_count(8, timeout=SLOW_MS)
        expect(scope.locator(".ms-film canvas")).to_have_attribute("data-pictures", "25", timeout=SLOW_MS)
        scope.get_by_label("colours").select_option(label="one range for all units")
        path = Path(__file__).with_name("microscope.png")
        scope.screenshot(path=str(path))
        Image.open(path).convert("RGB").save(path, optimize=True)  # whole: a palette loses the landmarks' colours
        browser.close()


if __name__ == "__main__":
    main()
