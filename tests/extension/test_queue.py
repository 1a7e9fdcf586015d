"""The queue: a failed job is explained and run again, a waiting one is cancelled."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import CellError, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from tests.batch.batches import notebook
from tests.browser.lab import SLOW_MS, Lab
from tests.extension.test_runs_panel import open_lab
from tests.extension.test_themes import expect_readable


def test_a_failed_job_is_explained_and_run_again(lab: Lab, page: Page, keep: Callable[..., None]) -> None:
    folder = lab.folder / "queue"
    folder.mkdir()
    source = notebook(folder / "a.ipynb", "print('n is', n)")
    profile = Profile(time_limit="1:00:00")
    batch = Batch.create(folder / "sweep", source, Sweep({"n": (0, 1, 2)}, {}), profile)
    error = CellError(2, "raise ValueError('<b>no</b>')", "ValueError", "<b>no</b>", "")
    batch.job("n=0").write_status(JobStatus("complete", attempt=1, seconds=65))
    batch.job("n=1").write_status(JobStatus("failed", "cell 2: ValueError: <b>no</b>", 1, 2, 2, error=error))
    open_lab(lab, page)
    page.locator("[data-id=marlnb-queue]").click()
    panel = page.locator("#marlnb-queue")
    row = panel.locator(".marlnb-batch-row", has_text="queue/sweep")
    expect(row).to_contain_text("1 complete, 1 waiting, 1 failed", timeout=SLOW_MS)
    row.click()
    panel.locator(".marlnb-job-row", has_text="n=1").click()
    shown = page.locator(".marlnb-page:visible")
    expect(shown).to_contain_text("raise ValueError('<b>no</b>')", timeout=SLOW_MS)
    expect(shown).to_contain_text(f"marlnb batch {batch.path} --only n=1")
    for width in (1300, 800):
        page.set_viewport_size({"width": width, "height": 900})
        for part in (panel, shown):
            expect_readable(part)
        keep(page, f"failed-{width}")

    shown.get_by_role("button", name="Run again").click()
    expect(shown).to_contain_text("n is 1", timeout=SLOW_MS)
    expect(panel.locator(".marlnb-job-row", has_text="n=1")).to_have_attribute(
        "data-state", "complete", timeout=SLOW_MS
    )
    panel.locator(".marlnb-job-row", has_text="n=2").click()
    panel.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(panel.locator(".marlnb-job-row", has_text="n=2")).to_have_attribute("data-state", "stopped", timeout=SLOW_MS)
