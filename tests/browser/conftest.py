"""One JupyterLab and one Chromium for all browser tests, a page each. Run by `make browser-test`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ASKED = os.environ.get("MARLNB_BROWSER_TESTS") == "1"
collect_ignore_glob = [] if ASKED else ["*"]

if ASKED:
    from playwright.sync_api import Browser, Locator, Page, sync_playwright

    from tests.browser.lab import ARGUMENTS, CHROMIUM, Lab, lab_on

    @pytest.fixture(scope="session")
    def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
        with lab_on(tmp_path_factory.mktemp("lab")) as served:
            yield served

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        with sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            yield opened
            opened.close()

    @pytest.fixture
    def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
        """A page whose picture is kept at the end of the test, in the folder MARLNB_SCREENSHOTS where that is set."""
        opened = browser.new_page(viewport={"width": 1300, "height": 950})
        yield opened
        _keep(opened, request.node.name)
        opened.close()

    @pytest.fixture
    def keep(request: pytest.FixtureRequest) -> Callable[..., None]:
        """`keep(page or locator, name)`: a picture in the folder MARLNB_SCREENSHOTS, where that is set."""
        return lambda shown, name: _keep(shown, f"{request.node.name}-{name}")

    def _keep(shown: Page | Locator, name: str) -> None:
        folder = os.environ.get("MARLNB_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            shown.screenshot(path=str(Path(folder) / f"{name}.png"))
