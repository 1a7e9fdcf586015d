"""Check a profile and paths before calling SLURM: options that marlnb sets itself, texts that sbatch cannot read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from marlnb.batch.profile import Profile
from marlnb.errors import BatchError

_WORD = re.compile(r"[^\s'\"\\#]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
WORD_KEYS = ("partition", "account", "qos", "constraint", "gres", "time_limit")
OPTIONS_OF_KEYS: Mapping[str, tuple[str, ...]] = {
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
MARLNB_OPTIONS = (
    *("--array", "-a", "--output", "-o", "--open-mode", "--dependency", "-d", "--kill-on-invalid-dep"),
    *("--parsable", "--wrap", "--chdir", "-D", "--wait", "-W", "--no-requeue", "--ntasks", "-n", "--nodes", "-N"),
)


def check_profile(profile: Profile) -> None:
    """Checks the keys that are written into the script.

    Raises:
        BatchError: SLURM could not read a key; the message says what is valid.
    """
    for key in WORD_KEYS:
        value = getattr(profile, key)
        if value is not None and not _WORD.fullmatch(value):
            raise BatchError(
                f"profile key {key}: expected one word without spaces, quotes, # or backslashes; got {value!r}"
            )
    limit = profile.time_limit_s
    if limit is not None and limit <= profile.warn_s:
        raise BatchError(
            f"profile key time_limit: {profile.time_limit} must be longer than warn_s, {profile.warn_s} s: a job is "
            f"asked to save that long before the limit; raise time_limit or lower warn_s"
        )
    for option in profile.options:
        _check_option(option)
    for name, value in profile.environment.items():
        if not _VARIABLE.fullmatch(name):
            raise BatchError(
                f"profile key environment: {name!r} is not a valid name of a variable; letters, digits and _ are valid"
            )
        if "\x00" in value:
            raise BatchError(f"profile key environment: the value of {name} contains a zero byte; remove it")
    for module in profile.modules:
        if _CONTROL.search(module):
            raise BatchError(f"profile key modules: {module!r} is not a valid name of a module, e.g. cuda/12.4")


def check_path(*paths: Path) -> None:
    """Checks paths that are written into a script.

    Raises:
        BatchError: a script cannot contain the path, or sbatch would misread it.
    """
    for path in paths:
        text = str(path)
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = f"the path {text!r} is not valid UTF-8, which SLURM needs; give --out another folder"
            raise BatchError(problem) from None
        if match := _CONTROL.search(text):
            raise BatchError(
                f"the path {text!r} contains the character {match[0]!r}, which sbatch does not accept; "
                f"give --out another folder"
            )


def _check_option(option: str) -> None:
    name = re.split(r"[=\s]", option, maxsplit=1)[0]
    if not name.startswith("-") or "\n" in option or "\r" in option:
        raise BatchError(
            f"profile key options: {option!r} is not an option of sbatch; write one per line, e.g. --exclusive"
        )
    for key, names in OPTIONS_OF_KEYS.items():
        if name in names:
            raise BatchError(f"profile key options: {option!r}: set the key `{key}` instead")
    if name in MARLNB_OPTIONS:
        raise BatchError(f"profile key options: {option!r}: marlnb sets {name} itself; remove it")
