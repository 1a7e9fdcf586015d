"""A real Ray cluster on this machine. Run by `make ray-test`, which installs Ray in `.peers/ray`."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from marlnb.batch.ray.cluster import RayCluster
from marlnb.errors import BatchError
from tests.batch.batches import wait_until

RAY = os.environ.get("MARLNB_RAY", "")  # Ray's command
collect_ignore_glob = [] if RAY else ["*"]


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a cluster with two cores, in the environment with its token; it is stopped afterwards."""
    port, folder = free_port(), Path("/tmp") / f"marlnb-ray-{os.getpid()}"  # Ray's sockets need a short path
    words = ["start", "--head", "--num-cpus=2", f"--port={free_port()}", f"--dashboard-port={port}", "--block"]
    words += ["--disable-usage-stats", f"--temp-dir={folder}", "--object-store-memory=100000000"]
    log = tmp_path_factory.mktemp("ray") / "ray.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{port}")
        with open(log, "wb") as output:  # --block: its processes end with it
            cluster = subprocess.Popen([RAY, *words], stdout=output, stderr=output)
        try:
            wait_until(lambda: has_started() or cluster.poll() is not None)
            assert cluster.poll() is None, f"Ray did not start, and waits 30 s at most: {log.read_text()[-2000:]}"
            yield RayCluster.find().address
        finally:
            cluster.terminate()
            cluster.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


def has_started() -> bool:
    try:
        return RayCluster.find().largest_node()["CPU"] == 2
    except BatchError:
        return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
