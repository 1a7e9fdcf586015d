"""What a cluster needs of Debian, installed by an explicit step that says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLURM = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "tcpdump": "tcpdump",
}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing(*, accounting: bool) -> list[str]:
    """Debian packages whose programs are not there."""
    wanted = {**SLURM, **(ACCOUNTING if accounting else {})}
    return [package for program, package in wanted.items() if shutil.which(program, path=_PATH) is None]


def install(*, accounting: bool) -> None:
    """Installs what is missing with apt, and says what.

    Debian starts the services of what it installs; that is disabled here, since each cluster starts its own.

    Raises:
        SystemExit: not Debian, not root, or apt failed.
    """
    packages = missing(accounting=accounting)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise SystemExit(f"{', '.join(packages)} missing, and there is no apt-get: a Debian or Ubuntu is needed")
    if os.geteuid() != 0:
        raise SystemExit(f"{', '.join(packages)} missing; as root: apt-get install {' '.join(packages)}")
    print(f"apt-get install {' '.join(packages)}", file=sys.stderr, flush=True)
    with _no_services():
        for words in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = subprocess.run(["apt-get", *words], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"apt-get {' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian's way to say that no service starts; a policy that is already there is kept."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()
