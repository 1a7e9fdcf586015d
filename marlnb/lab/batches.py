"""Submit a notebook: its parameters as a form, and the command `marlnb batch` itself, with and without `--dry-run`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from marlnb.batch.executor import EXECUTORS
from marlnb.batch.profile import Profile, find_profile, profiles
from marlnb.batch.sweep.parameters import read_parameters
from marlnb.errors import MarlnbError

TIMEOUT_S = 300
MAX_OUTPUT = 200_000
RESOURCES = ("time_limit", "cores", "gpus", "memory_gb", "at_once")  # keys of a profile that most jobs change


def batch_form(notebook: str) -> dict[str, Any]:
    """What can be chosen.

    Returns:
        parameters: of the notebook's cell of that tag. resources: keys of a profile, each with its help.
        profiles: by name, the values of these keys as text; none of a profile that cannot be read.
        unsupported: by profile, those of these keys that its executor does not support.
    Raises:
        ConfigError: the notebook or its parameters cannot be read.
    """
    parameters = [
        {"name": name, "takes": each.takes, "code": each.code, "help": each.help, "required": each.is_required}
        for name, each in read_parameters(Path(notebook)).items()
    ]
    keys = {each.name: each.metadata for each in fields(Profile)}
    resources = [{"name": name, "help": keys[name]["help"]} for name in RESOURCES]
    values: dict[str, dict[str, str]] = {}
    unsupported: dict[str, list[str]] = {}
    for name in sorted(profiles()):
        values[name], unsupported[name] = {}, []
        with suppress(MarlnbError, OSError):  # the plan says what is wrong with it
            profile = find_profile(name).to_json()
            values[name] = {key: str(profile[key]) for key in RESOURCES if profile[key] is not None}
            unsupported[name] = [key for key in EXECUTORS.get(profile["executor"]).unsupported if key in RESOURCES]
    return {"parameters": parameters, "resources": resources, "profiles": values, "unsupported": unsupported}


def run_batch(
    notebook: str, *, parameters: Sequence[str], on: str, settings: Sequence[str], out: str = "", submit: bool = False
) -> dict[str, Any]:
    """Runs `marlnb batch`: with `--dry-run` it checks everything and prints plan and script, else it submits.

    Args:
        notebook: its path.
        parameters: as `-p` takes them, `seed=0..4`.
        on: name of a profile.
        settings: as `--set` takes them, `time_limit=4:00:00`.
        out: the batch's folder; empty: the command's default.
        submit: start the jobs, and return at once.
    Returns:
        `command` as a person would type it, its `output`, whether it is `ok`, and the `batch`'s folder once submitted.
    """
    words = ["batch", _path(notebook), "--on", on]
    words += [word for text in parameters for word in ("-p", text)]
    words += [word for text in settings for word in ("--set", text)]
    words += ["--out", _path(out)] if out else []
    words += ["--yes", "--detach"] if submit else ["--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "marlnb", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    is_ok = done.returncode == 0
    output = done.stdout if is_ok and not submit else done.stderr + done.stdout
    folder = str(Path(done.stdout.strip().splitlines()[-1]).absolute()) if submit and is_ok else ""
    return {"command": shlex.join(["marlnb", *words]), "output": output[-MAX_OUTPUT:], "ok": is_ok, "batch": folder}


def _path(name: str) -> str:
    """A path that a command does not take for an option."""
    return f"./{name}" if name.startswith("-") else name
