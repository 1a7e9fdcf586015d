"""`marlnb lab` as a newcomer meets it: the start page, its links, a notebook's first cells, what a student sees."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import ROOT, SLOW_MS, Lab, Notebook, start_page_on

HEADING = ".jp-MarkdownViewer h1"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """What a clone holds that the start page leads to, served by `marlnb lab`."""
    folder = tmp_path_factory.mktemp("start") / "clone"
    for part in ("notebooks", "docs", "data/speaker_listener"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("runs", ".ipynb_checkpoints"))
    shutil.copy(ROOT / "README.md", folder)
    with start_page_on(folder) as served:
        yield served


def test_the_first_minutes(clone: Lab, page: Page, keep: Callable[..., None]) -> None:
    page.goto(f"{clone.url}/?token={clone.token}")
    expect(page.locator(HEADING)).to_contain_text("Start here", timeout=SLOW_MS)
    expect(page.get_by_text("Would you like")).to_have_count(0)  # no question before the first page
    keep(page, "start")

    page.locator(".jp-MarkdownViewer").get_by_role("link", name="Two agents learn to communicate").click()
    notebook = Notebook(page).connected()
    keep(page, "notebook")
    for index in (0, 1):
        expect(notebook.run(index)).to_have_count(1)
        expect(notebook.cell(index).locator(".jp-InputPrompt")).to_have_text(f"[{index + 1}]:", timeout=SLOW_MS)
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("simple_speaker_listener", timeout=SLOW_MS)
    keep(page, "cells")

    # from a notebook to the next one, and to a page of the documentation, which is rendered
    page.locator(".jp-Notebook").get_by_role("link", name="choose and compare").first.click()
    opened = page.locator(".lm-TabBar-tab.lm-mod-current", has_text="choose_and_compare.ipynb")
    expect(opened).to_be_visible(timeout=SLOW_MS)
    page.locator(".lm-TabBar-tabLabel", has_text="README.md").first.click()
    page.locator(".jp-MarkdownViewer:visible").get_by_role("link", name="documentation", exact=True).click()
    expect(page.locator(f"{HEADING}:visible")).to_contain_text("marlnb's documentation", timeout=SLOW_MS)
    keep(page, "documentation")


def test_a_student_sees_exercises_and_no_solutions(clone: Lab, page: Page, keep: Callable[..., None]) -> None:
    clone.show(page, "notebooks/README.md")
    link = page.locator(".jp-MarkdownViewer").get_by_role("link", name="1. what an agent sees")
    link.click(timeout=SLOW_MS)
    notebook = Notebook(page).connected()
    page.locator(".jp-DirListing-item", has_text="teaching").dblclick()
    expect(page.locator(".jp-DirListing-item", has_text="4_intervene")).to_be_visible(timeout=SLOW_MS)
    assert sorted(page.locator(".jp-DirListing-itemName").all_inner_texts()) == sorted(
        path.name for path in (ROOT / "notebooks" / "teaching").glob("*.ipynb")
    )
    keep(page, "exercises")
    notebook.shut_down()
