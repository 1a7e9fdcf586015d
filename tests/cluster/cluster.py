"""Cluster: a real SLURM on one machine, with a compute node that has no way out; up, asked, and taken down clean.

```python
with Cluster.up(Settings(state=Path("/run/marlnb-mine"), port=17917, node="cn7", network="10.78.0")) as cluster:
    subprocess.run(["sbatch", ...], env=cluster.environment)
```
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.cluster import accounting, network, packages
from tests.cluster.calls import Calls, write_counted
from tests.cluster.processes import TERM_THEN_KILL, bearing, described, end, inhabitants, naming, pid_in, run, until
from tests.cluster.settings import Settings, check_machine, write

READY = ("idle", "mixed", "allocated", "completing")


class Cluster:
    """A cluster that is up; made by `Cluster.up` or `Cluster.start`.

    Attributes:
        settings: names, addresses, folders. node: the compute node's name, and its network namespace's.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._mark = f"MARLNB_TEST_CLUSTER={uuid.uuid4().hex}"

    @property
    def node(self) -> str:
        return self.settings.node

    @property
    def namespace(self) -> str:
        return self.settings.namespace

    @property
    def environment(self) -> dict[str, str]:
        """For a process that talks to it: SLURM_CONF, scheduler commands that are counted first on PATH, and a mark.

        The environment of every process started from it contains the mark, which identifies remaining processes.
        """
        name, _, mark = self._mark.partition("=")
        path = f"{self.settings.folder('bin')}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}"
        return {**os.environ, "SLURM_CONF": str(self.settings.conf), "PATH": path, name: mark}

    @staticmethod
    @contextmanager
    def up(settings: Settings | None = None) -> Iterator[Cluster]:
        """A cluster while the block runs; down afterwards, also after Ctrl-C and TERM, and its state folder removed."""
        with _ending_on_term():
            cluster = Cluster.start(settings or Settings())
            try:
                yield cluster
            finally:
                cluster.down()

    @staticmethod
    def start(settings: Settings) -> Cluster:
        """Starts it and waits until its node is ready; one that is up already, or half, is taken down first.

        Raises:
            SystemExit: no root, no Linux, or packages that are not available.
            RuntimeError, TimeoutError: a daemon does not start; the ends of the logs are in the message.
        """
        check_machine()
        packages.install(accounting=settings.accounting)
        take_down(settings)
        cluster = Cluster(settings)
        try:
            write(settings)
            write_counted(settings.folder("bin"), settings.folder("log") / "calls.txt")
            settings.folder("work").mkdir(exist_ok=True)
            network.make_namespace(settings)
            network.begin_listening(settings)
            cluster._begin_munge()
            if settings.accounting:
                accounting.begin_accounting(settings)
            cluster.begin_controller()
            cluster.begin_node()
        except BaseException as error:
            take_down(settings)
            if isinstance(error, (RuntimeError, TimeoutError)):
                raise RuntimeError(f"{error}\n{_ends_of_logs(settings)}") from error
            raise
        return cluster

    def down(self) -> None:
        """Ends everything of it, what was started from `environment` included, and removes the state folder."""
        end(bearing(self._mark))
        take_down(self.settings)
        shutil.rmtree(self.settings.state, ignore_errors=True)

    def left_over(self) -> str:
        """What there still is of it: processes, namespace, link; empty when it is down and nothing is left."""
        processes = described(bearing(self._mark))
        return processes + left_over(self.settings)

    def begin_controller(self) -> None:
        """slurmctld, for which the node's name is in a file of hosts of its own."""
        hosts = self.settings.folder("hosts")
        run("unshare", "-m", "sh", "-c", f"mount --bind {hosts} /etc/hosts; exec slurmctld", env=self._conf)
        until("slurmctld answers", lambda: "is UP" in run("scontrol", "ping", check=False, env=self._conf))

    def begin_node(self) -> None:
        """slurmd in the namespace, with its own host name and name server; waits until the scheduler counts on it."""
        files = ("hosts", "resolv.conf", "nsswitch.conf")
        binds = "; ".join(f"mount --bind {self.settings.folder(name)} /etc/{name}" for name in files)
        inside = f"hostname {self.node}; {binds}; exec slurmd -N {self.node}"
        # not `ip netns exec`, which hides /sys/fs/cgroup, without which slurmd ends
        words = ("nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--uts", "-m", "sh", "-c", inside)
        run(*words, env={"SLURM_CONF": str(self.settings.conf), "PATH": self.environment["PATH"]})
        until(f"{self.node} is ready", lambda: self.node_state().rstrip("*") in READY, timeout_s=90)

    def end_node(self, *, kill: bool = False) -> None:
        """slurmd alone: its jobs run on."""
        pid = pid_in(self.settings.folder(f"slurmd-{self.node}.pid"))
        end([pid] if pid else [], signals=(signal.SIGKILL,) if kill else TERM_THEN_KILL)

    def lose_node(self) -> None:
        """As when the power goes: slurmd, its shepherds and every job at once, with no word to anybody."""
        listener = pid_in(self.settings.folder("tcpdump.pid"))
        end([pid for pid in inhabitants(self.namespace) if pid != listener], signals=(signal.SIGKILL,))
        until("the node is dark", lambda: [pid for pid in inhabitants(self.namespace) if pid != listener] == [])

    def node_state(self) -> str:
        return run("sinfo", "-h", "-N", "-p", "debug", "-o", "%T", check=False, env=self._conf).strip()

    def change(self, **changes: object) -> None:
        """Another slurm.conf from now on, as `change(warns=False)`."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        write(self.settings)
        run("scontrol", "reconfigure", env=self._conf)

    def calls(self) -> Calls:
        """Scheduler calls from now on, of every process that runs with `environment`."""
        return Calls(self.settings.folder("log") / "calls.txt")

    def packets(self) -> list[str]:
        """What processes of the node have sent so far, SLURM's own link left out; see `tests.cluster.network`."""
        return network.sent(self.settings)

    def command(self, *words: str, check: bool = True) -> str:
        """Runs a command of SLURM's, uncounted, and returns what it printed."""
        return run(*words, check=check, env=self._conf)

    @property
    def _conf(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.settings.conf)}

    def _begin_munge(self) -> None:
        state = self.settings.state
        files = {"key-file": "munge/key", "socket": "sock/munge.socket", "seed-file": "munge/seed"}
        files |= {"pid-file": "munged.pid", "log-file": "log/munged.log"}
        run("munged", *(f"--{option}={state}/{name}" for option, name in files.items()), "--num-threads=2")


def take_down(settings: Settings) -> None:
    """Ends the daemons and every process of the namespace, and removes it; safe at any time, in any state, twice."""
    for name in (f"slurmd-{settings.node}", "slurmctld"):
        pid = pid_in(settings.folder(f"{name}.pid"))
        end([pid] if pid else [], patience_s=5)
    ours = settings.folder("namespace").exists()  # and not one of the same name that another program made
    end(inhabitants(settings.namespace) if ours else [], patience_s=5)
    accounting.end_accounting(settings)
    for name in ("munged", "tcpdump"):
        pid = pid_in(settings.folder(f"{name}.pid"))
        end([pid] if pid else [], patience_s=5)
    if ours:
        network.remove_namespace(settings)


def left_over(settings: Settings) -> str:
    """What there still is of a cluster that was taken down; empty when nothing is."""
    processes = described(sorted({*inhabitants(settings.namespace), *naming(settings.state)}))
    names = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    link = f"link {settings.link}\n" if f" {settings.link}@" in names else ""
    space = f"namespace {settings.namespace}\n" if os.path.exists(f"/run/netns/{settings.namespace}") else ""
    return processes + link + space


@contextmanager
def _ending_on_term() -> Iterator[None]:
    """TERM ends Python at once, with what it began still there; here it ends it as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ends_of_logs(settings: Settings) -> str:
    files = sorted(settings.folder("log").glob("*.log"))
    return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-600:]}" for file in files)
