"""Sent: a batch that a scenario sent with the command line, and what can be seen of it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from tests.cluster.cluster import Cluster
from tests.cluster.evidence import iterations
from tests.cluster.processes import until

MARLNB = Path(sys.executable).parent / "marlnb"
ENDED = ("complete", "failed", "stopped")


@dataclass(frozen=True)
class Sent:
    """Attributes: the cluster that runs it; the batch's folder; the words of the command that sent it."""

    cluster: Cluster
    folder: Path
    words: tuple[str, ...]

    @staticmethod
    def by(cluster: Cluster, notebook: Path, folder: Path, *words: str, profile: str = "slurm") -> Sent:
        """`marlnb batch`, which returns once the scheduler has it."""
        sent = Sent(cluster, folder, ("batch", str(notebook), "--on", profile, "--out", str(folder), "--yes", *words))
        sent.again()
        return sent

    def again(self) -> str:
        """The same command once more: what is missing is completed. Returns what it said."""
        return marlnb(self.cluster, *self.words).stderr

    def status(self, job: str = "only") -> JobStatus:
        return Batch.open(self.folder).job(job).status()

    def states(self) -> dict[str, str]:
        return {name: status.state for name, status in Batch.open(self.folder).statuses().items()}

    def report_state(self) -> str:
        return Batch.open(self.folder).report_job().status().state

    def run(self, job: str = "only") -> Path:
        return self.folder / "jobs" / job

    def ids(self) -> list[tuple[str, str]]:
        """Id and state, in the scheduler's own words, of every job and task that it knows of this batch."""
        text = self.cluster.command("squeue", "-t", "all", "-h", "-r", "-o", "%i %T %Z %o")
        return [(line.split()[0], line.split()[1]) for line in text.splitlines() if str(self.folder) in line]

    def running_id(self, job: str = "only") -> str:
        """The scheduler's id of a job that is being executed."""
        until(f"{job} is executed", lambda: self.status(job).state == "running" and self.status(job).scheduler_id)
        return self.status(job).scheduler_id

    def await_iterations(self, number: int, job: str = "only", *, timeout_s: float = 240) -> None:
        until(
            f"{job} has {number} iterations",
            lambda: iterations(self.run(job)) >= number or self._dead(job),
            timeout_s=timeout_s,
        )
        assert iterations(self.run(job)) >= number, self.story(job)

    def await_states(self, *wanted: str, timeout_s: float = 180) -> dict[str, str]:
        """Waits until every job is in one of these states, and returns them all."""
        until(
            f"all of {wanted}",
            lambda: set(self.states().values()) <= set(wanted) or self._failed(wanted),
            timeout_s=timeout_s,
        )
        states = self.states()
        assert set(states.values()) <= set(wanted), "\n".join(self.story(name) for name in states)
        return states

    def await_complete(self, *, timeout_s: float = 240) -> None:
        self.await_states("complete", timeout_s=timeout_s)

    def events(self) -> str:
        file = self.folder / "events.log"
        return file.read_text() if file.exists() else ""

    def story(self, job: str = "only") -> str:
        """Everything there is to tell when a scenario fails."""
        log = self.run(job) / "output.log"
        tail = log.read_text(errors="replace")[-1500:] if log.exists() else "(no log)"
        return f"{job}: {self.status(job)}\nscheduler: {self.ids()}\n{self.events()}\n{tail}"

    def _dead(self, job: str) -> bool:
        return self.status(job).state in ("failed", "stopped")

    def _failed(self, wanted: tuple[str, ...]) -> bool:
        return any(state in ENDED and state not in wanted for state in self.states().values())


def marlnb(cluster: Cluster, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command `marlnb` on the login node; with `check`, a failure raises an error with the command's output."""
    done = subprocess.run(
        [str(MARLNB), *words],
        env=cluster.environment,
        cwd=cluster.settings.state,
        capture_output=True,
        text=True,
        timeout=420,
        stdin=subprocess.DEVNULL,
    )
    assert not check or done.returncode == 0, f"marlnb {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def jobs_json(cluster: Cluster, folder: Path) -> Any:
    return json.loads(marlnb(cluster, "jobs", str(folder), "--json", check=False).stdout)


def kill_group(pid: int) -> None:
    """SIGKILL to a process's whole group: nothing of it can say a word."""
    os.killpg(os.getpgid(pid), signal.SIGKILL)
