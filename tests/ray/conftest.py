"""A real Ray cluster on this machine. Run by `make ray-test`, which installs Ray in `.peers/ray`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import free_port

RAY = os.environ.get("MARLNB_RAY", "")  # Ray's command
collect_ignore_glob = [] if RAY else ["*"]


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a cluster with two cores, which is stopped afterwards."""
    port, folder = free_port(), Path("/tmp") / f"marlnb-ray-{os.getpid()}"  # Ray's sockets need a short path
    words = ["start", "--head", "--num-cpus=2", f"--port={free_port()}", f"--dashboard-port={port}", "--block"]
    words += ["--disable-usage-stats", f"--temp-dir={folder}", "--object-store-memory=100000000"]
    log = tmp_path_factory.mktemp("ray") / "ray.log"
    with open(log, "wb") as output:
        cluster = subprocess.Popen([RAY, *words], stdout=output, stderr=output)  # --block: its processes end with it
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        cluster.terminate()
        cluster.wait(60)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
