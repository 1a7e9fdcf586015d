"""The extension on a real JupyterHub, whose own environment has no marlnb, under a prefix and a strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import SLOW_MS
from tests.extension.hub import CSP, Hub, hub_on
from tests.extension.test_runs_panel import run_row
from tests.lab.run_folders import write_run


@pytest.fixture
def hub(python: Path, tmp_path: Path) -> Iterator[Hub]:
    with hub_on(tmp_path / "hub", python) as started:
        write_run(started.work / "runs" / "mine")
        yield started


@pytest.mark.timeout(900)
def test_the_panel_opens_on_a_hub(hub: Hub, page: Page) -> None:
    requested: list[str] = []
    policies: set[str] = set()
    problems: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if "marlnb" in message.text else None)
    page.on("response", lambda answer: policies.add(answer.headers.get("content-security-policy", "")))
    hub.log_in(page)
    page.locator("[data-id=marlnb-runs]").click(timeout=SLOW_MS)
    run_row(page.locator("#marlnb-runs"), "mine").click(timeout=SLOW_MS)
    shown = page.locator(".marlnb-page:visible")
    expect(shown.locator("h1")).to_have_text("mine", timeout=SLOW_MS)
    expect(shown.locator(".marlnb-plot canvas")).to_be_visible()
    assert any(CSP in policy for policy in policies)
    assert [url for url in requested if not url.startswith((hub.url, "data:", "blob:"))] == []
    assert problems == []
