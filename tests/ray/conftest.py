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

RAY = os.environ.get("MARLNB_RAY", "")  # Ray's command
TOKEN = secrets.token_hex(32)
collect_ignore_glob = [] if RAY else ["*"]


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a cluster with two cores that asks for TOKEN; it is stopped afterwards."""
    port, folder = free_port(), Path("/tmp") / f"marlnb-ray-{os.getpid()}"  # Ray's sockets need a short path
    words = ["start", "--head", "--num-cpus=2", f"--port={free_port()}", f"--dashboard-port={port}", "--block"]
    words += ["--disable-usage-stats", f"--temp-dir={folder}", "--object-store-memory=100000000"]
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    log = tmp_path_factory.mktemp("ray") / "ray.log"
    with open(log, "wb") as output:  # --block: its processes end with it
        cluster = subprocess.Popen([RAY, *words], env=environment, stdout=output, stderr=output)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        cluster.terminate()
        cluster.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
