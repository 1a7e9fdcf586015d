"""A real SLURM: submission, pending reasons, time left, cancel, run again, and how often SLURM is called."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from marlnb.batch.batch import Batch
from tests.browser.lab import SLOW_MS, Lab, lab_on, until
from tests.cluster import packages
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Settings

SETTINGS = Settings(state=Path("/run/marlnb-extension"), port=17937, node="cn9", network="10.79.0")
CELLS = (
    'run = "runs/x"\nwhat = "quick"',
    "import time\nfrom pathlib import Path\n\n"
    "mended = Path(run).parents[1] / 'mended'\n"
    "if what == 'bad' and not mended.exists():\n    raise ValueError('<b>not mended</b>')\n"
    "if what == 'long':\n    time.sleep(1000)\n"
    "print('what is', what)",
)
WATCHED_S = 65  # two intervals of 30 s
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        os.geteuid() != 0 or bool(packages.missing(accounting=False)),
        reason="needs root, and SLURM's programs: `make cluster-up` installs them",
    ),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster that JupyterLab's kernels see."""
    with Cluster.up(SETTINGS) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started
    assert started.left_over() == ""


@pytest.fixture
def slurm_lab(cluster: Cluster, python: Path, tmp_path: Path) -> Iterator[Lab]:
    with lab_on(tmp_path / "lab", python=python) as served:
        yield served


def asked(cluster: Cluster, seconds: int, page: Page) -> list[str]:
    """Calls that ask SLURM for the state of jobs within some seconds."""
    calls = cluster.calls()
    page.wait_for_timeout(1000 * seconds)
    return [line for line in calls.lines() if re.search(r" (squeue|sacct|scontrol|sinfo) ", f"{line} ")]


def test_jobs_of_slurm_are_submitted_watched_cancelled_and_run_again(
    slurm_lab: Lab, cluster: Cluster, python: Path, page: Page, keep: Callable[..., None]
) -> None:
    lab = slurm_lab
    lab.show(page, lab.write("jobs.ipynb", *CELLS, tags={0: ["parameters"]}))
    page.locator(".jp-NotebookPanel-toolbar [data-command='marlnb:submit']").click(timeout=SLOW_MS)
    form = page.locator(".marlnb-page:visible")
    form.get_by_label("what").fill("bad,long,quick", timeout=SLOW_MS)
    form.get_by_role("combobox", name="Profile").select_option("slurm")
    form.get_by_label("time_limit").fill("0:20:00")
    form.get_by_label("at_once").fill("1")
    form.get_by_role("button", name="Show plan and script").click()
    plan = form.locator(".marlnb-plan")
    expect(plan).to_contain_text("#SBATCH --array=0-2%1", timeout=SLOW_MS)
    keep(page, "plan")
    words = [str(python), "-m", *shlex.split(form.locator("code").inner_text())]
    printed = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, check=True).stdout
    free = r"[\d.]+ [kMGT]B free"  # other processes write meanwhile
    assert re.sub(free, "", plan.evaluate("element => element.textContent")) == re.sub(free, "", printed)

    form.get_by_role("button", name="Submit", exact=True).click()
    submitted = form.get_by_role("table", name="Jobs")
    expect(submitted).to_contain_text("what=quick", timeout=SLOW_MS)
    form.get_by_role("button", name="Show the queue").click()
    queue = page.locator("#marlnb-queue")
    row = {name: queue.locator(".marlnb-job-row", has_text=f"what={name}") for name in ("bad", "long", "quick")}
    running = re.compile(f"running · {SETTINGS.node} · 1\\d:\\d\\d until its limit")
    expect(row["long"]).to_contain_text(running, timeout=SLOW_MS)
    expect(row["quick"]).to_contain_text("queued · JobArrayTaskLimit", timeout=SLOW_MS)
    keep(page, "queue")

    row["bad"].click()
    job = page.locator(".marlnb-page:visible")
    expect(job).to_contain_text("ValueError: <b>not mended</b>", timeout=SLOW_MS)
    batch = Batch.open(lab.folder / "runs" / "jobs-batch")
    expect(job).to_contain_text(f"marlnb batch {batch.path} --only what=bad")
    keep(page, "failed")
    calls = asked(cluster, WATCHED_S, page)  # the panel and a job's page
    assert 1 <= len(calls) <= 3, calls

    row["long"].click()
    queue.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(row["long"]).to_have_attribute("data-state", "stopped", timeout=SLOW_MS)
    (batch.path / "mended").touch()
    row["bad"].click()
    job.get_by_role("button", name="Run again").click()
    expect(row["bad"]).to_have_attribute("data-state", "complete", timeout=SLOW_MS)
    expect(row["quick"]).to_have_attribute("data-state", "complete", timeout=SLOW_MS)
    expect(job).to_contain_text("what is bad", timeout=SLOW_MS)

    page.locator(".lm-TabBar-tab", has_text="Submit jobs").click()
    quick = submitted.locator("tr", has_text="what=quick")
    quick.get_by_role("button", name="Open executed notebook").click(timeout=SLOW_MS)
    expect(page.locator(".jp-NotebookPanel:visible")).to_contain_text("what is quick", timeout=SLOW_MS)
    keep(page, "executed")


def test_slurm_is_not_called_while_nothing_shows_its_jobs(
    slurm_lab: Lab, cluster: Cluster, python: Path, page: Page
) -> None:
    lab = slurm_lab
    lab.show(page, lab.write("hidden.ipynb", *CELLS, tags={0: ["parameters"]}))
    words = ["batch", "hidden.ipynb", "-p", "what=long", "--on", "slurm", "--yes", "--detach"]
    subprocess.run([str(python), "-m", "marlnb", *words], cwd=lab.folder, check=True)
    page.locator("[data-id=marlnb-queue]").click(timeout=SLOW_MS)
    queue = page.locator("#marlnb-queue")
    expect(queue.locator(".marlnb-job-row")).to_contain_text("running", timeout=SLOW_MS)
    page.locator("[data-id=marlnb-queue]").click()
    expect(queue).to_be_hidden()
    page.wait_for_timeout(2000)  # the last reading ends
    assert asked(cluster, WATCHED_S, page) == []
    subprocess.run([str(python), "-m", "marlnb", "cancel", "runs/hidden-batch"], cwd=lab.folder, check=True)
    batch = Batch.open(lab.folder / "runs" / "hidden-batch")
    until(lambda: {status.state for status in batch.statuses().values()} == {"stopped"}, 120)
