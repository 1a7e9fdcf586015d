"""Call SLURM's commands in an environment that does not change their meaning, and add advice to their errors."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from marlnb.batch.executor import NoSchedulerError
from marlnb.errors import BatchError

TIMEOUT_S = 120.0  # a busy controller can delay a command by a minute
_SLURM_PREFIXES = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_")
_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")

SINFO = ("sinfo", "--noheader")
SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "show")
ADVICE: tuple[tuple[str, str, Sequence[str]], ...] = (
    (r"invalid partition", "the profile's key `partition`; partitions here are: ", (*SINFO, "--format=%R")),
    (
        r"invalid account",
        "the profile's key `account` (or the partition is not open to it); yours are: ",
        (*SACCTMGR, "associations", "where", "user={user}", "format=account"),
    ),
    (r"invalid qos", "the profile's key `qos`; those here are: ", (*SACCTMGR, "qos", "format=name")),
    (
        r"time limit is invalid|TimeLimit",
        "the profile's key `time_limit`; partitions and their limits here: ",
        (*SINFO, "--format=%R %l"),
    ),
    (r"invalid feature", "the profile's key `constraint`; features of nodes here are: ", (*SINFO, "--format=%f")),
    (
        r"generic resource|invalid gres",
        "the profile's keys `gpus` and `gres`; nodes here have: ",
        (*SINFO, "--format=%R %G"),
    ),
    (
        r"node configuration is not available|memory specification",
        "the profile's keys `cores`, `memory_gb`, `gpus`: no node has as much; partition, cores, MB and GPUs here: ",
        (*SINFO, "--format=%R %c %m %G"),
    ),
    (
        r"submit limit|MaxSubmit|violates accounting",
        "the site limits how many jobs one person may have waiting: submit fewer, or wait until some have ended",
        (),
    ),
    (
        r"unable to contact|connection refused|socket timed out|establish a configuration source|resolve_ctls",
        "check with `scontrol ping` that this is a login node of the cluster and that its controller runs",
        (),
    ),
)

NO_CLUSTER = re.compile(r"establish a configuration source|resolve_ctls")
"""What the commands say on a machine that has them and belongs to no cluster."""


def call(*words: str, cwd: Path | None = None) -> str:
    """Calls a SLURM command and returns its output.

    The variables of an allocation around this process, and the user's defaults for these commands, are removed: with
    them `squeue` would hide jobs, and a job would inherit its submitter's resources.

    Args:
        words: the command and its arguments.
        cwd: working folder; None: the present one.
    Raises:
        NoSchedulerError: no such command, or the machine belongs to no cluster.
        BatchError: no answer, or an error; with SLURM's own words, and advice.
    """
    if shutil.which(words[0]) is None:
        raise NoSchedulerError(
            f"{words[0]} was not found on this machine; SLURM's commands are on a cluster's login nodes. `--on local` "
            f"runs jobs here, `--dry-run` shows the script"
        )
    try:
        process = subprocess.run(words, cwd=cwd, env=_environment(), capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        problem = f"{words[0]} did not answer within {TIMEOUT_S:.0f} s: is SLURM's controller running?"
        raise BatchError(problem) from None
    message = process.stderr.decode(errors="replace").strip()
    if process.returncode:
        problem = message or f"exit code {process.returncode}"
        kind = NoSchedulerError if NO_CLUSTER.search(message) else BatchError
        raise kind(f"{shlex.join(words[:6])} failed: {problem}{advice(message)}")
    return process.stdout.decode(errors="replace")


def _environment() -> dict[str, str]:
    kept = [name for name in os.environ if name in _KEPT_VARIABLES or not name.startswith(_SLURM_PREFIXES)]
    return {**{name: os.environ[name] for name in kept}, "SLURM_BITSTR_LEN": "0"}  # do not shorten lists of tasks


def advice(message: str) -> str:
    """What to change after an error of SLURM, with the valid values here; empty for an unknown error."""
    for pattern, hint, command in ADVICE:
        if re.search(pattern, message, re.IGNORECASE):
            return f"\ncheck {hint}{_valid_values(command)}" if command else f"\n{hint}"
    return ""


def _valid_values(command: Sequence[str]) -> str:
    """The valid values that a command of the cluster lists; "(unknown)" if it fails."""
    words = [word.format(user=os.environ.get("USER", "")) for word in command]
    try:
        process = subprocess.run(words, env=_environment(), capture_output=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return "(unknown)"
    values = dict.fromkeys(line.strip() for line in process.stdout.decode(errors="replace").splitlines())
    return ", ".join(line for line in values if line not in ("", "(null)")) or "(none)"
