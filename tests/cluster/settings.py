"""Settings: where a cluster keeps its files, which ports and names it takes; two that differ run side by side."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path


def _asked(name: str, default: str) -> str:
    return os.environ.get(f"MARLNB_CLUSTER_{name}", default)


@dataclass(frozen=True)
class Settings:
    """One cluster: a login node, which is this host, and a compute node in a network namespace of its own.

    MARLNB_CLUSTER_STATE, _PORT, _NODE and _NETWORK in the environment change the defaults.

    Attributes:
        state: the folder with everything of it: configuration, logs, sockets, the scheduler's memory. Munge wants it,
            and every folder above it, writable by root alone.
        port: slurmctld's; the next one is slurmd's, the one after that slurmdbd's.
        node: the compute node's name; the namespace is called `marlnb-<node>`, the link to it `v<node>`.
        network: the first three numbers of the link's addresses: .1 is the login node, .2 the compute node.
        cpus: how many the node claims to have; there may be fewer.
        accounting: whether slurmdbd and a database run, so that `sacct` answers.
        warns: whether a job that is preempted gets the signal that it asked for (`preempt_send_user_signal`).
        grace_s: between a preemption's warning and its end. kill_wait_s: between TERM and KILL.
        lost_after_s: silence after which a node counts as lost.
        forgets_after_s: how long the controller remembers jobs that have ended.
    """

    state: Path = field(default_factory=lambda: Path(_asked("STATE", "/run/marlnb-cluster")))
    port: int = field(default_factory=lambda: int(_asked("PORT", "16917")))
    node: str = field(default_factory=lambda: _asked("NODE", "cn1"))
    network: str = field(default_factory=lambda: _asked("NETWORK", "10.77.0"))
    cpus: int = 8
    accounting: bool = False
    warns: bool = True
    grace_s: int = 60
    kill_wait_s: int = 15
    lost_after_s: int = 20
    forgets_after_s: int = 600

    @property
    def namespace(self) -> str:
        return f"marlnb-{self.node}"

    @property
    def link(self) -> str:
        return f"v{self.node}"

    @property
    def login_address(self) -> str:
        return f"{self.network}.1"

    @property
    def node_address(self) -> str:
        return f"{self.network}.2"

    @property
    def conf(self) -> Path:
        return self.state / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.state / "sock" / "munge.socket"

    def folder(self, name: str) -> Path:
        return self.state / name


def write(settings: Settings) -> None:
    """Makes the folders, the key, the pretend GPUs and every configuration file."""
    for name in ("munge", "sock", "state", "log", "bin", f"spool-{settings.node}"):
        settings.folder(name).mkdir(parents=True, exist_ok=True)
    for folder in (settings.state, settings.folder("sock")):
        folder.chmod(0o755)  # whatever root's umask is: other users submit too
    settings.folder("munge").chmod(0o700)
    key = settings.folder("munge") / "key"
    if not key.exists():
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
    for number in range(2):
        device = settings.folder(f"gpu{number}")
        if not device.exists():
            os.mknod(device, 0o020666, os.makedev(1, 3))  # /dev/null under another name
    settings.folder("gres.conf").write_text(
        f"NodeName={settings.node} Name=gpu Type=fake File={settings.state}/gpu[0-1]\n"
    )
    host = socket.gethostname().split(".")[0]
    settings.folder("hosts").write_text(
        f"127.0.0.1 localhost\n{settings.login_address} {host}\n{settings.node_address} {settings.node}\n"
    )
    # the name server is behind the black hole, so that every query is seen; and no resolver outside the namespace
    settings.folder("resolv.conf").write_text("nameserver 192.0.2.53\noptions timeout:1 attempts:1\n")
    settings.folder("nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n")
    settings.conf.write_text(slurm_conf(settings, host))
    settings.conf.chmod(0o644)


def slurm_conf(settings: Settings, host: str) -> str:
    state, node = settings.state, settings.node
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10 // 2**20
    storage = "accounting_storage/none"
    if settings.accounting:
        storage = (
            f"accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={settings.port + 2}\nAccountingStoragePass={settings.munge_socket}"
        )
    controller = "SlurmctldParameters=preempt_send_user_signal\n" if settings.warns else ""
    return f"""\
ClusterName=marlnb
SlurmctldHost={host}({settings.login_address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={settings.munge_socket},cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={settings.port}
SlurmdPort={settings.port + 1}
StateSaveLocation={state}/state
SlurmdSpoolDir={state}/spool-%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd-%n.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/slurmd-%n.log
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
JobCompType=jobcomp/filetxt
JobCompLoc={state}/log/jobcomp.log
AccountingStorageType={storage}
ReturnToService=2
SlurmdTimeout={settings.lost_after_s}
KillWait={settings.kill_wait_s}
MinJobAge={settings.forgets_after_s}
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{controller}NodeName={node} NodeHostname={node} NodeAddr={settings.node_address} CPUs={settings.cpus} \
RealMemory={memory} Gres=gpu:fake:2
PartitionName=debug Nodes={node} Default=YES MaxTime=1-0 DefaultTime=10 PriorityTier=1 PreemptMode=REQUEUE \
GraceTime={settings.grace_s}
PartitionName=urgent Nodes={node} MaxTime=1-0 DefaultTime=10 PriorityTier=10 PreemptMode=OFF
"""


def check_machine() -> None:
    """Raises SystemExit where a cluster cannot be started."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise SystemExit("a cluster with a network namespace needs Linux and root; try: sudo make cluster-up")
    if shutil.which("nsenter") is None or shutil.which("unshare") is None:
        raise SystemExit("nsenter and unshare are needed (Debian: util-linux)")
