"""Every text that the extension shows by itself passes through JupyterLab's translation, which marks it here."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_panel, run_row
from tests.lab.run_folders import write_run

LANGUAGE = "@jupyterlab/translation-extension:plugin"
MARK = "‡"
# texts and descriptions with words and without the mark
UNMARKED = """(root, mark) => {
  const texts = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (element.checkVisibility() && !element.closest("pre, code")) texts.push(element.textContent);
  }
  for (const element of root.querySelectorAll("*")) {
    for (const name of ["aria-label", "title", "placeholder"]) texts.push(element.getAttribute(name) ?? "");
  }
  return [...new Set(texts)].filter(text => /[A-Za-z]{2}/.test(text) && !text.includes(mark));
}"""
# of the runs, and messages of the kernel, which are not translated
DATA = ("words", "mpe/simple_speaker_listener", "mappo", "node7", "speaker", "listener", "seed=", "the training failed")


def unmarked(part: Locator) -> list[str]:
    """Texts that are no data of the runs: names, settings, paths, numbers."""
    texts = part.evaluate(f"root => ({UNMARKED})(root, {MARK!r})")
    return [text for text in texts if not any(word in text for word in DATA)]


@pytest.fixture
def runs(lab: Lab) -> Path:
    folder = lab.folder / "words"
    states = ("complete", "failed", "paused", "created", "stopped", "running")
    for seed, state in enumerate(states):
        write_run(folder / "sweep" / f"seed={seed}", state=state, seed=seed)
    return folder


def test_every_text_is_translated(lab: Lab, page: Page, runs: Path) -> None:
    lab.choose(LANGUAGE, {"stringsPrefix": MARK, "displayStringsPrefix": True})
    try:
        panel = open_panel(lab, page)
        run_row(panel, "seed=0").click(timeout=SLOW_MS)
        shown = page.locator(".marlnb-page:visible")
        expect(shown.locator("canvas")).to_be_visible(timeout=SLOW_MS)
        assert MARK in panel.inner_text()
        assert unmarked(panel) == []
        settings = shown.locator("details", has_text="env.name").locator("td, th").all_inner_texts()
        assert [text for text in unmarked(shown) if text not in settings] == []
        panel.get_by_role("button", name="Table").click()
        table = page.locator(".marlnb-table:visible")
        expect(table.locator(".marlnb-grid-row[data-state]").first).to_be_visible(timeout=SLOW_MS)
        assert unmarked(table) == []
        for box in table.locator(".marlnb-grid-row[data-state] input").all()[:3]:
            box.check()
        table.get_by_role("button", name="Compare").click()
        expect(shown.locator("canvas")).to_be_visible(timeout=SLOW_MS)
        assert [text for text in unmarked(shown) if text != "seed"] == []  # the setting that differs
        page.locator("[data-id=marlnb-queue]").click()
        queue = page.locator("#marlnb-queue")
        expect(queue).to_contain_text("No batches here yet", timeout=SLOW_MS)
        assert unmarked(queue) == []
    finally:
        lab.choose(LANGUAGE, None)
