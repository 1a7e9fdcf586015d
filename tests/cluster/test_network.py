"""No step of a job reaches for the network: what the node sends is counted, SLURM's own link left out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.evidence import iterations
from tests.cluster.network import by_device
from tests.cluster.sending import Sent

pytestmark = pytest.mark.timeout(600)


def test_a_training_sends_nothing_and_a_job_that_does_is_seen(cluster: Cluster) -> None:
    work = cluster.settings.folder("work") / "network"
    source = notebooks.write(work / "training.ipynb", notebooks.TRAINING)
    before = by_device(cluster.packets())
    sent = Sent.by(cluster, source, work / "sweep", "-p", "iterations=20", "-p", "loggers=wandb")
    sent.await_complete()
    assert iterations(sent.run()) == 20
    assert list(sent.run().rglob("wandb/offline-run-*")), "the logger has not run"
    after = by_device(cluster.packets())
    assert after["out"] == before["out"] == 0, cluster.packets()  # of every job in this session
    assert after["eth0"] == before["eth0"] == 0, cluster.packets()  # to the login node, other than SLURM's

    control = notebooks.write(work / "control.ipynb", notebooks.REACHING)
    Sent.by(cluster, control, work / "control").await_complete()
    lines = [line for line in cluster.packets() if line.split()[1] == "out"]
    assert any("> 203.0.113.7.80:" in line for line in lines), lines
    assert any(".53: " in line and "A? example.org" in line for line in lines), lines


def test_the_doctor_tells_a_node_without_a_way_out() -> None:
    code = "from marlnb.batch.doctor.network import has_route_out; print(has_route_out())"
    command = ["unshare", "--net", sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "False"
