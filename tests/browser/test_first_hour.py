"""A user's first hour: opens each notebook in JupyterLab, runs all cells, and checks what the page shows afterwards.

Parameters are small, in the parameters cell of the copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import ROOT, Lab
from tests.notebooks.small import SMALL

DONE_MS = 400_000
PANELS = {  # what of widgets is to be seen, by notebook, and words in it
    "own_environments": (".marlnb-environment", "walker_0, walker_1 (2)"),
    "choose_and_compare": (".marlnb-training", "complete, 8.2k of 8.2k frames"),
    "look_inside": (".marlnb-microscope .marlnb-scope", "step 8 of 24"),
}


@pytest.fixture(scope="module")
def folder(lab: Lab) -> Path:
    """A user's copy of the notebooks, with the files that they open."""
    copy = lab.folder / "first-hour"
    copy.mkdir()
    for name, small in SMALL.items():
        made = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
        (given,) = (cell for cell in made.cells if "parameters" in cell.metadata.get("tags", []))
        given.source += "".join(f"\n{key} = {value!r}" for key, value in small.items())
        nbformat.write(made, copy / f"{name}.ipynb")
    shutil.copytree(ROOT / "data" / "speaker_listener", copy / "data" / "speaker_listener")
    return copy


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SMALL)
def test_run_all_gets_to_the_end(name: str, folder: Path, lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    notebook = lab.open(page, f"first-hour/{name}.ipynb")
    last = sum(cell.cell_type == "code" for cell in nbformat.read(folder / f"{name}.ipynb", 4).cells)
    notebook.menu("Run", "Run All Cells")
    _wait_for_the_end(page)
    notebook.save()
    cells = [cell for cell in nbformat.read(folder / f"{name}.ipynb", 4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output.traceback for output in outputs if output.output_type == "error"] == []
    assert [cell.execution_count for cell in cells] == list(range(1, last + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs) or name == "own_environments"
    if name in PANELS:
        place, words = PANELS[name]
        panel = page.locator(place).first
        expect(panel).to_contain_text(words, timeout=60_000)
        expect(panel.locator(".marlnb-problem:visible")).to_have_count(0)
        panel.scroll_into_view_if_needed()
        keep(page, "panel")
    assert faults == []
    notebook.shut_down()


def _wait_for_the_end(page: Page) -> None:
    """Until every cell has run, or one has raised, after which those below it are not run."""
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    expect(prompts.last).to_have_text("[*]:", timeout=60_000)
    expect(prompts.last).not_to_have_text("[*]:", timeout=DONE_MS)
