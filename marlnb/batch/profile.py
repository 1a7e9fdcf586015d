"""Profile: what a job needs and where it runs, read from a small YAML file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from marlnb.codec import to_json
from marlnb.config import option
from marlnb.errors import BatchError, ConfigError, unknown
from marlnb.paths import expanded
from marlnb.text_files import read_yaml
from marlnb.values import validate

BUILT_IN_FOLDER = Path(__file__).parent / "profiles"
FOLDER_VARIABLE = "MARLNB_PROFILES"
_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")


@dataclass(frozen=True)
class Profile:
    """Resources of one job, and how a scheduler is asked for them."""

    executor: str = option("local", help="what runs the jobs: local, slurm, ray, or a registered executor")
    at_once: int = option(0, help="jobs in parallel; 0: as many as the machine has room for", unit="jobs", ge=0)
    cores: int = option(1, help="CPU cores per job", unit="cores", ge=1)
    gpus: int = option(0, help="GPUs per job", unit="GPUs", ge=0)
    memory_gb: float | None = option(None, help="memory per job; none: the scheduler's default", unit="GB", gt=0)
    time_limit: str | None = option(
        None, help="wall-clock limit of one attempt, HH:MM:SS or D-HH:MM:SS; none: the scheduler's default"
    )
    partition: str | None = option(None, help="SLURM partition")
    account: str | None = option(None, help="SLURM account")
    qos: str | None = option(None, help="SLURM quality of service")
    constraint: str | None = option(None, help="SLURM node features, e.g. v100-32g")
    gres: str | None = option(None, help="SLURM generic resources instead of gpus, e.g. gpu:a100:1")
    options: tuple[str, ...] = option((), help="other options of sbatch, e.g. --exclusive")
    modules: tuple[str, ...] = option((), help="environment modules to load on the node")
    setup: tuple[str, ...] = option((), help="shell lines to run on the node before Python")
    environment: Mapping[str, str] = option({}, help="environment variables of the job")
    python: str | None = option(None, help="path of the Python that runs the jobs; none: the one that submits them")
    warn_s: int = option(120, help="time before the time limit at which a job is asked to save", unit="s", ge=0)
    resubmits: int = option(3, help="how often a job that was killed or lost is restarted", ge=0)
    offline: bool = option(True, help="tell loggers and model hubs that there is no internet")
    accounting: bool | None = option(None, help="whether sacct works; none: detected at the first query")

    def __post_init__(self) -> None:
        validate(self)
        if self.time_limit is not None and not self.time_limit_s:
            raise BatchError(
                f"profile key time_limit: expected HH:MM:SS or D-HH:MM:SS, e.g. 20:00:00; got {self.time_limit!r}"
            )

    @property
    def time_limit_s(self) -> int | None:
        """The wall-clock limit of one attempt in seconds; None without one."""
        match = _TIME.fullmatch(self.time_limit or "")
        if match is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    @property
    def interpreter(self) -> str:
        """Path of the Python that runs the jobs."""
        return os.path.expanduser(self.python or sys.executable)

    def to_json(self) -> dict[str, Any]:
        return dict(to_json(self))

    @staticmethod
    def from_json(data: Mapping[str, Any], *, where: str = "profile") -> Profile:
        """A profile from its keys.

        Args:
            where: where the keys come from, for messages.
        Raises:
            BatchError: an unknown key.
            ConfigError: an invalid value.
        """
        names = [field.name for field in fields(Profile)]
        for key in data:
            if key not in names:
                raise BatchError(f"{where}: {unknown('key of a profile', str(key), names)}")
        if isinstance(data.get("time_limit"), int):
            raise BatchError(
                f"{where}: time_limit: expected HH:MM:SS or D-HH:MM:SS; got the number {data['time_limit']}. In YAML "
                'it needs quotes, as in "20:00:00", or is read as a number of seconds'
            )
        return Profile(**data)


def find_profile(name: str) -> Profile:
    """A profile by name, from the user's folders or marlnb's own, or from a YAML file.

    The user's folders come first: `$MARLNB_PROFILES`, then `~/.config/marlnb/profiles`.

    Args:
        name: name of the profile, or path of a file that ends in .yaml.
    Raises:
        BatchError: no such profile, it cannot be read, or it has an unknown key or no keys.
    """
    path = expanded(name) if name.endswith((".yaml", ".yml")) else profiles().get(name)
    if path is None:
        raise BatchError(unknown("profile", name, profiles()))
    try:
        data = read_yaml(path)
    except ConfigError as error:
        raise BatchError(f"profile {error}") from error
    if not isinstance(data, dict) or not data:
        got = "no keys" if not data else f"a {type(data).__name__}"
        raise BatchError(f"profile {path}: expected keys and values, e.g. `cores: 2`; got {got}")
    return Profile.from_json(data, where=str(path))


def profiles() -> dict[str, Path]:
    """The file of every profile by name; a user's profile hides marlnb's of the same name.

    Empty files do not count: the shell makes one before `marlnb profiles slurm > .../slurm.yaml` begins.
    """
    folders = [BUILT_IN_FOLDER, Path("~/.config/marlnb/profiles").expanduser()]
    if FOLDER_VARIABLE in os.environ:
        folders.append(expanded(os.environ[FOLDER_VARIABLE]))
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    return {path.stem: path for path in paths if not path.is_file() or path.stat().st_size}


def with_changes(profile: Profile, changes: Mapping[str, Any]) -> Profile:
    """The profile of a submission, with other values of some keys; raises as `Profile.from_json`.

    A relative path of its Python becomes absolute, since the jobs are started in other folders.
    """
    changed = Profile.from_json({**profile.to_json(), **changes})
    if changed.python is not None and os.sep in changed.python and not changed.python.startswith("~"):
        changed = replace(changed, python=os.path.join(os.getcwd(), changed.python))
    return changed
