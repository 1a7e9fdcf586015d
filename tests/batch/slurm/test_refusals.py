"""Keys that SLURM could not take are refused before it is asked, and the message says what is needed."""

from __future__ import annotations

from typing import Any

import pytest

from marlnb.batch.profile import Profile, find_profile, profiles
from marlnb.batch.slurm.refusals import check_profile
from marlnb.errors import BatchError


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"partition": "gpu; rm"}, "partition: expected one word"),
        ({"account": "a\n#SBATCH --wrap"}, "account"),
        ({"constraint": 'a"b'}, "constraint"),
        ({"qos": ""}, "qos"),
        ({"time_limit": "00:01:00"}, "time_limit: 00:01:00 must be longer than warn_s, 120 s"),
        ({"options": ("exclusive",)}, "'exclusive' is not an option of sbatch"),
        ({"options": ("--exclusive\n--wrap=ls",)}, "is not an option of sbatch"),
        ({"options": ("--partition=gpu",)}, "set the key `partition` instead"),
        ({"options": ("-t 10",)}, "set the key `time_limit` instead"),
        ({"options": ("--array=0-3",)}, "marlnb sets --array itself"),
        ({"environment": {"A B": "c"}}, "'A B' is not a valid name of a variable"),
        ({"environment": {"A": "\0"}}, "the value of A contains a zero byte"),
        ({"modules": ("a\nb",)}, "is not a valid name of a module"),
    ],
)
def test_each_invalid_profile_is_an_error(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(BatchError, match=message.replace("`", ".").replace("(", ".")):
        check_profile(Profile(executor="slurm", **keys))


def test_profiles_of_marlnb_pass() -> None:
    names = [name for name in profiles() if find_profile(name).executor == "slurm"]
    assert {"slurm", "slurm-gpu", "jean-zay"} <= set(names)
    for name in names:
        check_profile(find_profile(name))
    check_profile(Profile(constraint="(a100|h100)&nvlink*2", options=("--exclusive", "--export=ALL")))
