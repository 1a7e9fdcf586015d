"""Submitting the open notebook: what is shown is what the command prints, and the jobs run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from marlnb.batch.batch import Batch
from tests.browser.lab import SLOW_MS, Lab, until


def test_a_notebook_is_planned_and_submitted(lab: Lab, python: Path, page: Page, keep: Callable[..., None]) -> None:
    cells = ("seed = 0  # of the training", "assert seed == 3")
    lab.open(page, lab.write("a'; echo foo.ipynb", *cells, tags={0: ["parameters"]}))
    page.locator(".jp-NotebookPanel-toolbar [data-command='marlnb:submit']").click()
    shown = page.locator(".marlnb-page:visible")
    shown.get_by_label("seed").fill("3", timeout=SLOW_MS)
    expect(shown.get_by_role("button", name="Submit")).to_be_disabled()
    shown.get_by_label("time_limit").fill("1:00:00")
    shown.get_by_role("combobox").select_option("ray")  # which has no limit of time
    expect(shown.get_by_label("time_limit")).to_have_count(0)
    shown.get_by_role("combobox").select_option("local")
    expect(shown.get_by_label("time_limit")).to_have_value("")
    shown.get_by_role("button", name="Show plan and script").click()
    expect(shown.locator(".marlnb-plan")).to_contain_text("1 new", timeout=SLOW_MS)
    keep(page, "plan")
    words = [str(python), "-m", *shlex.split(shown.locator("code").inner_text())]
    printed = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, check=True).stdout
    plan = shown.locator(".marlnb-plan").evaluate("element => element.textContent")
    free = r"[\d.]+ [kMGT]B free"  # other processes write meanwhile
    assert re.sub(free, "", plan) == re.sub(free, "", printed)
    shown.get_by_role("button", name="Submit", exact=True).click()
    expect(shown).to_contain_text("The jobs run on a copy", timeout=SLOW_MS)
    job = shown.get_by_role("table", name="Jobs").locator("tr")
    expect(job).to_have_count(1, timeout=SLOW_MS)
    expect(job).to_contain_text("complete", timeout=SLOW_MS)
    job.get_by_role("button", name="Open executed notebook").click()
    expect(page.locator(".jp-NotebookPanel:visible")).to_contain_text("seed = 3", timeout=SLOW_MS)
    batch = Batch.open(lab.folder / "runs" / "a'; echo foo-batch")
    until(lambda: {status.state for status in batch.statuses().values()} == {"complete"}, 120)
    executed = json.loads((batch.jobs()[0].folder / "notebook.ipynb").read_text())
    assert "seed = 3" in "".join("".join(cell["source"]) for cell in executed["cells"])
