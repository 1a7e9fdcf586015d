"""A cluster leaves nothing, however it ends: neither processes, nor a namespace, nor files."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import left_over
from tests.cluster.processes import inhabitants, until
from tests.cluster.settings import Settings

HOLD = """
import subprocess, sys, time
from dataclasses import replace
from pathlib import Path
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Settings
state, port, node, network = sys.argv[1:]
with Cluster.up(replace(Settings(), state=Path(state), port=int(port), node=node, network=network)) as cluster:
    words = ["sbatch", "-o", "/dev/null", "--wrap", "sleep 1000 & sleep 1000"]
    subprocess.run(words, env=cluster.environment, check=True)
    subprocess.Popen(["sleep", "1000"], env=cluster.environment, start_new_session=True)
    time.sleep(1000)
"""


@pytest.fixture
def settings() -> Settings:
    usual = Settings()
    *first, last = usual.network.split(".")
    network = ".".join([*first, str(int(last) + 50)])
    return replace(
        usual,
        state=usual.state.with_name(f"{usual.state.name}-ends"),
        port=usual.port + 8,
        node=f"{usual.node}e",
        network=network,
    )


def hold(settings: Settings) -> subprocess.Popen[bytes]:
    """A process that holds a cluster with a job on it."""
    words = [str(settings.state), str(settings.port), settings.node, settings.network]
    process = subprocess.Popen([sys.executable, "-c", HOLD, *words], cwd=Path(__file__).parents[2])
    names = ["slurmd", "sleep"]
    until(
        "a job runs",
        lambda: all(any(name in _comm(pid) for pid in inhabitants(settings.namespace)) for name in names),
        timeout_s=90,
    )
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_takes_everything_down(settings: Settings, number: signal.Signals) -> None:
    process = hold(settings)
    assert left_over(settings)
    process.send_signal(number)
    process.wait(timeout=60)
    assert left_over(settings) == ""
    assert not settings.state.exists()


def test_what_a_kill_left_is_taken_down_by_the_command(settings: Settings) -> None:
    process = hold(settings)
    process.kill()
    process.wait()
    assert left_over(settings)
    words = ["--state", str(settings.state), "--port", str(settings.port), "--node", settings.node]
    done = subprocess.run([sys.executable, "-m", "tests.cluster", "down", *words], capture_output=True, text=True)
    assert done.returncode == 0 and "nothing is left" in done.stdout, done.stdout + done.stderr
    assert left_over(settings) == ""
    assert not settings.state.exists()


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
