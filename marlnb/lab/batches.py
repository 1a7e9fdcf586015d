"""Submit a notebook: its parameters as a form, and the command `marlnb batch` itself, with and without `--dry-run`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marlnb.batch.profile import profiles
from marlnb.batch.sweep.parameters import read_parameters

TIMEOUT_S = 300
MAX_OUTPUT = 200_000


def batch_form(notebook: str) -> dict[str, Any]:
    """What can be chosen: `parameters` of the notebook's cell of that tag, and `profiles` by name.

    Raises:
        ConfigError: the notebook or its parameters cannot be read.
    """
    parameters = [
        {"name": name, "takes": each.takes, "code": each.code, "help": each.help, "required": each.is_required}
        for name, each in read_parameters(Path(notebook)).items()
    ]
    return {"parameters": parameters, "profiles": sorted(profiles())}


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
    words = ["batch", notebook, "--on", on]
    words += [word for text in parameters for word in ("-p", text)]
    words += [word for text in settings for word in ("--set", text)]
    words += ["--out", out] if out else []
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
