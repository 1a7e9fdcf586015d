"""Hub: a real JupyterHub on the login node, whose servers are SLURM jobs on the compute node."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from tests.cluster.cluster import Cluster
from tests.cluster.hub import environment
from tests.cluster.processes import end, until

PORT = 18400
CONFIG = Path(__file__).parent / "jupyterhub_config.py"


@dataclass(frozen=True)
class Hub:
    """Attributes: the cluster; state: the hub's folder, with the home of the one person who uses it in it."""

    cluster: Cluster
    state: Path
    password: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{PORT}"

    @property
    def data(self) -> Path:
        """The person's own share/jupyter."""
        return self.state / "home" / "data"

    @property
    def work(self) -> Path:
        """Where the person's notebooks and runs are."""
        return self.state / "home" / "work"

    def marlnb(self, *words: str) -> str:
        """The command, as the person calls it in a terminal."""
        command = [str(Path(sys.executable).parent / "marlnb"), *words]
        mine = {**self.cluster.environment, "JUPYTER_DATA_DIR": str(self.data)}
        done = subprocess.run(command, env=mine, cwd=self.work, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, name: str, *cells: str) -> Path:
        """A notebook of code cells for the kernel `marlnb`."""
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {"name": "marlnb", "display_name": "marlnb", "language": "python"}
        nbformat.write(made, self.work / name)
        return self.work / name

    def jobs(self) -> list[str]:
        """Ids of the servers that SLURM runs now."""
        return self.cluster.command("squeue", "-h", "-n", "jupyter", "-t", "running", "-o", "%i").split()

    def leave(self, job: str, *, minutes: int) -> None:
        """Has SLURM end a server about so much later, whatever it was given at first."""
        parts = self.cluster.command("squeue", "-h", "-j", job, "-o", "%M").strip().split(":")
        spent = sum(int(part) * 60**power for power, part in enumerate(reversed(parts))) // 60
        self.cluster.command("scontrol", "update", f"JobId={job}", f"TimeLimit={spent + minutes}")

    def story(self) -> str:
        """The ends of the logs, for a scenario that failed."""
        files = [self.state / "hub.log", *sorted(self.state.glob("server_*.log"))]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-2500:]}" for file in files)


@contextmanager
def hub_on(cluster: Cluster) -> Iterator[Hub]:
    """A hub, ready for people to log in; ended with its proxy and its servers afterwards."""
    hub = Hub(cluster, cluster.settings.folder("hub"))
    hub.work.mkdir(parents=True)
    lab = hub.state / "home" / "config" / "labconfig"
    lab.mkdir(parents=True)
    asks = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}  # whether to fetch news
    (lab / "page_config.json").write_text(json.dumps(asks))
    settings = {
        "HUB_STATE": str(hub.state),
        "HUB_BIN": str(environment.HUB / "bin"),
        "HUB_PROXY": str(environment.proxy()),
        "HUB_ADDRESS": cluster.settings.login_address,
        "HUB_NODE_ADDRESS": cluster.settings.node_address,
        "HUB_PORT": str(PORT),
        "HUB_PASSWORD": hub.password,
    }
    words = [str(environment.HUB / "bin" / "jupyterhub"), "--config", str(CONFIG)]
    variables = {**cluster.environment, **settings}
    with open(hub.state / "hub.log", "wb") as log:
        process = subprocess.Popen(words, env=variables, cwd=hub.state, stdout=log, stderr=log, start_new_session=True)
    try:
        until("the hub answers", lambda: process.poll() is not None or _answers(hub), timeout_s=90)
        assert process.poll() is None, hub.story()
        yield hub
    finally:
        end([process.pid], patience_s=30)  # the hub cancels its servers' jobs, and ends its proxy
        process.wait()
        for job in hub.jobs():
            cluster.command("scancel", job)
        until("its jobs are gone", lambda: not hub.jobs(), timeout_s=60)


def _answers(hub: Hub) -> bool:
    try:
        with urllib.request.urlopen(f"{hub.url}/hub/api", timeout=5) as answer:
            return "version" in json.load(answer)
    except (urllib.error.URLError, OSError, ValueError):
        return False
