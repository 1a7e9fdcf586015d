"""Defaults for sbatch in the environment, and time limits in each of SLURM's notations."""

from __future__ import annotations

import pytest

from marlnb.batch.profile import Profile
from marlnb.batch.slurm.sbatch_defaults import seconds_of, with_sbatch_defaults
from marlnb.errors import BatchError


def test_limits_as_slurm_writes_them() -> None:
    limits = ("1-02:00:00", "1-0", "1-02:30", "02:00:00", "1:00:00", "30:00", "120:00", "120", "infinite", "n/a")
    seconds = [93600, 86400, 95400, 7200, 3600, 1800, 7200, 7200, None, None]
    assert [seconds_of(limit) for limit in limits] == seconds


def test_the_time_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in (("120", "02:00:00"), ("1-0", "24:00:00"), ("120:30", "02:00:30")):
        monkeypatch.setenv("SBATCH_TIMELIMIT", limit)
        assert with_sbatch_defaults(Profile()).time_limit == expected
    assert with_sbatch_defaults(Profile(time_limit="1:00:00")).time_limit == "1:00:00"
    for limit in ("infinite", "0", "2 h"):
        monkeypatch.setenv("SBATCH_TIMELIMIT", limit)
        with pytest.raises(BatchError, match=f"SBATCH_TIMELIMIT: .* got '{limit}'"):
            with_sbatch_defaults(Profile())
