"""JupyterHub for real: login in Chromium, a server that SLURM runs, a training run stopped, resumed, and saved in time.

The tests of this file are one story, in this order; about five minutes, three of them the life of a short allocation.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run
from tests.cluster.hub.person import Person
from tests.cluster.hub.server import Hub
from tests.cluster.hub.trespass import trespass
from tests.cluster.processes import until

pytestmark = pytest.mark.timeout(900)

ALLOCATION = "import os\nimport marlnb as mnb\n\nmnb.allocation()"
WIDGET = "import ipywidgets\n\nipywidgets.IntSlider(description='widgets')"
TRAINING = """\
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=25", "threads=1", "frames={frames}"
)
run = mnb.train(experiment, "{run}", resume=True)
run"""
STATE = "print(run.status()['state'], os.environ['WHO'])"


def rows(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def test_a_kernel_is_installed_without_rights_in_seconds(hub: Hub) -> None:
    started = time.monotonic()
    output = hub.marlnb("hub", "install", "--env", "WHO=it's me")
    assert time.monotonic() - started < 30
    assert f"installed in {hub.data / 'kernels' / 'marlnb'}" in output
    assert "labextension @jupyter-widgets/jupyterlab-manager" in output
    theirs = subprocess.run(
        [os.environ.get("HUB_PYTHON", Path(__file__).parents[3] / ".peers/hub/bin/python"), "-c", "import marlnb"],
        cwd="/",
        capture_output=True,
    )
    assert theirs.returncode == 1, "the hub's own environment has marlnb: these tests would prove nothing"


def test_a_notebook_trains_on_the_node_that_it_was_given(hub: Hub, person: Person) -> None:
    hub.write("train.ipynb", ALLOCATION, WIDGET, TRAINING.format(run="runs/hub", frames=20_000), STATE)
    job = person.begin_server(20)
    notebook = person.open(hub.work / "train.ipynb")

    shown = notebook.run(0).locator("table")
    shown.wait_for(timeout=120_000)
    table = dict(line.split("\t") for line in shown.inner_text().splitlines())
    assert table["allocation"] == f"SLURM job {job}" and table["node"] == hub.cluster.node
    assert (table["cores"], table["GPUs"], table["memory"]) == ("2", "1: 0", "4 GiB")
    assert "19 min" in table["time left"] or "18 min" in table["time left"], table
    notebook.run(1).locator(".widget-slider").wait_for(timeout=120_000)
    person.photograph("allocation")

    notebook.run(2)
    until("it trains", lambda: rows(hub.work / "runs/hub") > 20, timeout_s=200)
    person.interrupt()
    run = Run.open(hub.work / "runs" / "hub")
    until("it is stopped", lambda: run.status()["state"] == "stopped", timeout_s=120)
    status = run.status()
    assert status["host"] == hub.cluster.node and status["reason"] == "SIGINT"
    assert 20 < status["iteration"] < 200 and run.checkpoint().iteration == status["iteration"]
    person.photograph("stopped")

    notebook.run(2)
    until("it is complete", lambda: run.status()["state"] == "complete", timeout_s=400)
    cell = notebook.run(3)
    cell.get_by_text("complete it's me").wait_for(timeout=120_000)
    assert [row["iteration"] for row in _metrics(run)] == list(range(1, 201))
    person.photograph("complete")


def test_a_training_is_saved_before_its_allocation_ends_and_continues_in_the_next(hub: Hub, person: Person) -> None:
    cell = TRAINING.format(run="runs/long", frames=100_000_000)
    hub.write("long.ipynb", ALLOCATION, cell)
    person.end_server()
    first = person.begin_server(20)
    notebook = person.open(hub.work / "long.ipynb")
    notebook.run(0).locator("table").wait_for(timeout=120_000)
    hub.leave(first, minutes=3)  # now, so that it does not depend on how long the start took
    notebook.run(1)
    path = hub.work / "runs" / "long"
    until("it trains", lambda: rows(path) > 20, timeout_s=120)
    until("it says that it stopped", lambda: Run.open(path).status()["state"] == "stopped", timeout_s=240)
    assert first in hub.jobs(), "the allocation was over before the training had ended"
    status = Run.open(path).status()
    saved = Run.open(path).checkpoint().iteration
    assert status["reason"].startswith("the allocation ends in ") and saved == status["iteration"] > 20
    notebook.output(1).get_by_text("because the allocation ends in").wait_for(timeout=30_000)
    person.photograph("allocation-ends")
    until("SLURM takes the server away", lambda: first not in hub.jobs(), timeout_s=240)

    until("the hub has seen it", lambda: _can_begin(person), timeout_s=120, every_s=3)
    second = person.begin_server(20)
    assert second != first
    notebook = person.open(hub.work / "long.ipynb")
    notebook.run(0).locator("table").wait_for(timeout=120_000)
    notebook.run(1)
    until("it continues", lambda: rows(path) > saved + 20, timeout_s=200)
    person.photograph("goes-on")
    (path / "STOP").touch()
    until("the file STOP is heeded", lambda: Run.open(path).status()["state"] == "stopped", timeout_s=120)
    assert [row["iteration"] for row in _metrics(Run.open(path))] == list(
        range(1, 1 + Run.open(path).status()["iteration"])
    )
    assert any(f"training from iteration {saved}," in line for line in Run.open(path).events())


def test_other_users_can_neither_read_a_run_nor_reach_a_kernel(hub: Hub, person: Person) -> None:
    run = hub.work / "runs" / "long"
    sockets = [path for path in (hub.data / "runtime").iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    assert len(sockets) >= 5, "the kernel's transport is not ipc"
    assert (hub.data / "runtime").stat().st_mode & 0o777 == 0o700  # jupyter adds the sticky bit
    assert run.stat().st_mode & 0o777 == 0o700
    inside = [str(path) for path in run.rglob("*")]
    assert len(inside) > 8
    launcher = str(hub.data / "kernels" / "marlnb" / "launch.sh")
    assert trespass([str(run), *inside, *(f"connect {path}" for path in sockets), launcher]) == []
    # the folders above are open, so that it is the run's own permissions that were seen at work
    assert trespass([str(hub.work), str(hub.work / "runs")]) == [str(hub.work), str(hub.work / "runs")]


def test_nothing_left_the_node_but_for_the_hub(hub: Hub, person: Person) -> None:
    person.end_server()
    towards_hub = f" > {hub.cluster.settings.login_address}."
    packets = hub.cluster.packets()
    assert any(towards_hub in line for line in packets), "the listener saw nothing at all"
    assert [line for line in packets if towards_hub not in line and " lo " not in line] == []


def test_uninstalling_leaves_nothing(hub: Hub) -> None:
    hub.marlnb("hub", "uninstall")
    assert not (hub.data / "kernels").exists() and not (hub.data / "labextensions").exists()
    assert is_run(hub.work / "runs" / "long")


def _metrics(run: Run) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def _can_begin(person: Person) -> bool:
    """Whether the hub knows that the server is gone, and offers a new one."""
    person.go("/hub/home")
    return person.page.locator("#start:has-text('Start My Server')").count() > 0
