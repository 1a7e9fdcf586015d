"""Profile: what a job needs and where it runs, as a small YAML file states it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from marlnb.config import option
from marlnb.errors import BatchError, unknown
from marlnb.values import validate

BUILT_IN = Path(__file__).parent / "profiles"
VARIABLE = "MARLNB_PROFILES"
_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")


@dataclass(frozen=True)
class Profile:
    """Resources of one job, and the words with which a scheduler is asked for them."""

    executor: str = option("local", help="who runs the jobs: local, slurm, or a plug-in's")
    at_once: int = option(0, help="jobs side by side; 0: as many as there is room for", unit="jobs", ge=0)
    cores: int = option(1, help="CPU cores of a job", unit="cores", ge=1)
    gpus: int = option(0, help="GPUs of a job", unit="GPUs", ge=0)
    memory_gb: float | None = option(None, help="memory of a job; none: the scheduler's default", unit="GB", gt=0)
    time_limit: str | None = option(
        None, help="wall-clock limit of one attempt, HH:MM:SS or D-HH:MM:SS; none: the scheduler's default"
    )
    partition: str | None = option(None, help="SLURM partition")
    account: str | None = option(None, help="SLURM account")
    qos: str | None = option(None, help="SLURM quality of service")
    constraint: str | None = option(None, help="SLURM node features, as v100-32g")
    gres: str | None = option(None, help="SLURM generic resources, instead of gpus, as gpu:a100:1")
    options: tuple[str, ...] = option((), help="other options of sbatch, as --exclusive")
    modules: tuple[str, ...] = option((), help="environment modules loaded on the node")
    setup: tuple[str, ...] = option((), help="lines of shell run on the node before Python")
    environment: Mapping[str, str] = option({}, help="variables set for the job")
    python: str | None = option(None, help="the Python of the jobs; none: the one that submits")
    warn_s: int = option(120, help="how long before the time limit a job is told to save", unit="s", ge=0)
    resubmits: int = option(3, help="times that a job which was killed or lost is begun again", ge=0)
    offline: bool = option(True, help="tell loggers and hubs of weights that there is no internet")
    accounting: bool | None = option(None, help="whether sacct answers; none: found out when first asked")

    def __post_init__(self) -> None:
        validate(self)
        if self.time_limit is not None and not self.time_limit_s:
            raise BatchError(
                f"profile key time_limit: {self.time_limit!r} is no time; HH:MM:SS or D-HH:MM:SS is needed, as 20:00:00"
            )

    @property
    def time_limit_s(self) -> int | None:
        """The wall-clock limit of one attempt in seconds; None without one."""
        found = _TIME.fullmatch(self.time_limit or "")
        if found is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def to_json(self) -> dict[str, Any]:
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any], *, where: str = "profile") -> Profile:
        """Raises BatchError for an unknown key, ConfigError for a wrong value."""
        known = [field.name for field in fields(Profile)]
        for key in data:
            if key not in known:
                raise BatchError(f"{where}: {unknown('key of a profile', str(key), known)}")
        if isinstance(data.get("time_limit"), int):  # 20:00:00 without quotes is the number 72000 in YAML
            raise BatchError(f'{where}: time_limit needs quotes in YAML, as "20:00:00"; got {data["time_limit"]}')
        return Profile(**data)


def find_profile(name: str, changes: Mapping[str, Any] | None = None) -> Profile:
    """The profile `<name>.yaml` of the user's folders or of marlnb's own, or a file, with some of its keys changed.

    The user's folders come first: `$MARLNB_PROFILES`, then `~/.config/marlnb/profiles`.

    Raises:
        BatchError: there is none, it cannot be read, or it has a key that profiles do not have.
    """
    path = Path(name).expanduser() if name.endswith((".yaml", ".yml")) else profiles().get(name)
    if path is None:
        raise BatchError(unknown("profile", name, profiles()))
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BatchError(f"profile {path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise BatchError(f"profile {path} holds a {type(data).__name__}; keys and values are needed, as `cores: 2`")
    return Profile.from_json({**data, **(changes or {})}, where=str(path))


def profiles() -> dict[str, Path]:
    """Every profile by name; a user's hides marlnb's of the same name."""
    own = os.environ.get(VARIABLE)
    folders = [BUILT_IN, Path("~/.config/marlnb/profiles").expanduser(), *([Path(own).expanduser()] if own else [])]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def with_changes(profile: Profile, changes: Mapping[str, Any]) -> Profile:
    """The profile with some keys changed; raises as `Profile.from_json`."""
    return Profile.from_json({**profile.to_json(), **changes}) if changes else replace(profile)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
