"""The user's defaults for sbatch, `SBATCH_ACCOUNT` and similar, and time limits as SLURM writes them."""

from __future__ import annotations

import os
import re

from marlnb.batch.profile import Profile, with_changes
from marlnb.errors import BatchError

TIME_LIMIT = "SBATCH_TIMELIMIT"
VARIABLES = {key: f"SBATCH_{key.upper()}" for key in ("partition", "account", "qos", "constraint")}
VARIABLES["time_limit"] = TIME_LIMIT


def with_sbatch_defaults(profile: Profile) -> Profile:
    """The profile with the user's defaults for keys that it does not set.

    Raises:
        BatchError: the default time limit is not one.
    """
    defaults = {key: os.environ.get(name) for key, name in VARIABLES.items() if getattr(profile, key) is None}
    if limit := defaults.get("time_limit"):
        defaults["time_limit"] = _time_limit(limit)
    return with_changes(profile, {key: value for key, value in defaults.items() if value})


def _time_limit(limit: str) -> str:
    """The limit of `SBATCH_TIMELIMIT` as a profile has it, `HH:MM:SS`."""
    limit_s = seconds_of(limit)
    if not limit_s:
        raise BatchError(
            f"the environment variable {TIME_LIMIT}: expected minutes or another time of SLURM's, as 90, 20:00:00 or "
            f"1-12; got {limit!r}. Change it, unset it, or set time_limit in the profile"
        )
    minutes, seconds = divmod(limit_s, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def seconds_of(limit: str) -> int | None:
    """Seconds of SLURM's `1-02:00:00`, `1-02`, `02:00:00`, `30:00`, and `90` (minutes); None for `infinite`."""
    if not re.fullmatch(r"(?:\d+-)?\d+(?::\d+){0,2}", limit, re.ASCII):
        return None
    days, _, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:  # from hours on
        parts += [0] * (3 - len(parts))
    elif len(parts) == 1:
        parts = [0, *parts, 0]
    else:
        parts = [*[0] * (3 - len(parts)), *parts]
    return int(days or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
