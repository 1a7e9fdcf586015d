"""SLURM's commands: called one way, in an environment that cannot bend what was asked; their errors with advice."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from marlnb.errors import BatchError

ANSWER_S = 120.0
"""A controller that is busy can let a command wait for a minute."""
_OURS = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")

ADVICE: tuple[tuple[str, str, Sequence[str]], ...] = (
    (
        r"invalid partition",
        "the profile's key `partition`; partitions here are: ",
        ("sinfo", "--noheader", "--format=%R"),
    ),
    (
        r"invalid account",
        "the profile's key `account` (or the partition is not open to it); yours are: ",
        ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "where", "user={user}", "format=account"),
    ),
    (
        r"invalid qos",
        "the profile's key `qos`; those here are: ",
        ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name"),
    ),
    (
        r"time limit is invalid|TimeLimit",
        "the profile's key `time_limit`; partitions and their limits here: ",
        ("sinfo", "--noheader", "--format=%R %l"),
    ),
    (
        r"invalid feature",
        "the profile's key `constraint`; features of nodes here are: ",
        ("sinfo", "--noheader", "--format=%f"),
    ),
    (
        r"generic resource|invalid gres",
        "the profile's keys `gpus` and `gres`; nodes here have: ",
        ("sinfo", "--noheader", "--format=%R %G"),
    ),
    (
        r"node configuration is not available|memory specification",
        "the profile's keys `cores`, `memory_gb`, `gpus`: no node has as much; partition, cores, MB and GPUs here: ",
        ("sinfo", "--noheader", "--format=%R %c %m %G"),
    ),
    (
        r"submit limit|MaxSubmit|violates accounting",
        "the site limits how many jobs one person may have waiting: submit fewer, or wait until some have ended",
        (),
    ),
    (
        r"unable to contact|connection refused|socket timed out|establish a configuration source|resolve_ctls",
        "is this a login node of the cluster, and is its controller up? `scontrol ping` tells",
        (),
    ),
)


def call(*words: str, cwd: Path | None = None) -> str:
    """What a command of SLURM prints.

    Variables of an allocation that this process lives in, and the user's defaults for other uses of the commands,
    are left out: with them `squeue` would not tell everything, and a job would take over its submitter's resources.

    Raises:
        BatchError: there is no such command, it does not answer, or it refuses; with its own words, and advice.
    """
    if shutil.which(words[0]) is None:
        raise BatchError(
            f"no {words[0]} on this machine: SLURM's commands are on a cluster's login nodes; "
            f"`--on local` runs jobs here, `--dry-run` shows the script"
        )
    try:
        done = subprocess.run(words, cwd=cwd, env=_environment(), capture_output=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BatchError(f"{words[0]} did not answer within {ANSWER_S:.0f} s: is SLURM's controller up?") from error
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise BatchError(f"{shlex.join(words[:6])} failed: {said or f'exit code {done.returncode}'}{advice(said)}")
    return done.stdout.decode(errors="replace")


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS) or key in _KEPT}
    return {**kept, "SLURM_BITSTR_LEN": "0"}  # lists of tasks whole, however long


def advice(said: str) -> str:
    """What to look at after an error of SLURM, with what is valid here; empty for one that is not known."""
    for pattern, hint, asking in ADVICE:
        if re.search(pattern, said, re.IGNORECASE):
            return f"\nsee {hint}{_valid(asking)}" if asking else f"\n{hint}"
    return ""


def _valid(asking: Sequence[str]) -> str:
    """What a cluster has, asked of it; "(cannot be told here)" where it does not say."""
    words = [word.format(user=os.environ.get("USER", "")) for word in asking]
    try:
        done = subprocess.run(words, env=_environment(), capture_output=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return "(cannot be told here)"
    found = dict.fromkeys(line.strip() for line in done.stdout.decode(errors="replace").splitlines())
    return ", ".join(line for line in found if line not in ("", "(null)")) or "(none)"
