"""What is refused before SLURM is asked: options that marlnb states itself, words and paths that sbatch cannot take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from marlnb.batch.profile import Profile
from marlnb.errors import BatchError

_WORD = re.compile(r"[^\s'\"\\#]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
WORDS = ("partition", "account", "qos", "constraint", "gres", "time_limit")
OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "cores": ("--cpus-per-task", "-c"),
    "memory_gb": ("--mem", "--mem-per-cpu"),
    "gpus": ("--gpus", "-G", "--gpus-per-node", "--gpus-per-task"),
    "gres": ("--gres",),
    "time_limit": ("--time", "-t"),
    "partition": ("--partition", "-p"),
    "account": ("--account", "-A"),
    "qos": ("--qos", "-q"),
    "constraint": ("--constraint", "-C"),
    "warn_s": ("--signal",),
}
STATED = (
    *("--array", "-a", "--output", "-o", "--open-mode", "--dependency", "-d", "--kill-on-invalid-dep"),
    *("--parsable", "--wrap", "--chdir", "-D", "--wait", "-W", "--no-requeue", "--ntasks", "-n", "--nodes", "-N"),
)


def check_profile(profile: Profile) -> None:
    """Raises BatchError for a key that SLURM could not take, with what is needed instead."""
    for key in WORDS:
        value = getattr(profile, key)
        if value is not None and not _WORD.fullmatch(value):
            raise BatchError(f"profile key {key}: {value!r} holds what sbatch cannot take: one plain word is needed")
    limit = profile.time_limit_s
    if limit is not None and limit <= profile.warn_s:
        raise BatchError(
            f"profile key time_limit: {profile.time_limit} is no longer than warn_s, {profile.warn_s} s before its "
            f"end a job is told to save; give more time, or a smaller warn_s"
        )
    for option in profile.options:
        _check_option(option)
    for name, value in profile.environment.items():
        if not _VARIABLE.fullmatch(name):
            raise BatchError(f"profile key environment: {name!r} is no name of a variable")
        if "\x00" in value:
            raise BatchError(f"profile key environment: {name} holds a zero byte, which no variable can")
    for module in profile.modules:
        if _CONTROL.search(module):
            raise BatchError(f"profile key modules: {module!r} is no name of a module")


def check_path(*paths: Path) -> None:
    """Raises BatchError for a path that cannot stand in a script or with which sbatch would do something else."""
    for path in paths:
        text = str(path)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BatchError(f"{text!r} is no text in UTF-8: SLURM needs another folder; give --out") from None
        found = _CONTROL.search(text)
        if found:
            raise BatchError(
                f"{text!r} has the character {found[0]!r}, which sbatch cannot take in a path: "
                f"SLURM needs another folder; give --out"
            )


def _check_option(option: str) -> None:
    name = re.split(r"[=\s]", option, maxsplit=1)[0]
    if not name.startswith("-") or "\n" in option or "\r" in option:
        raise BatchError(f"profile key options: {option!r} is no option of sbatch; one a line, as --exclusive")
    for key, names in OWN_KEYS.items():
        if name in names:
            raise BatchError(f"profile key options: {option!r}: the key `{key}` states that")
    if name in STATED:
        raise BatchError(f"profile key options: {option!r}: marlnb states {name} itself, and relies on it")
