"""Sweeps: every combination once, each with a name that no shell or file system takes amiss."""

from __future__ import annotations

import re

import pytest

from marlnb.batch.sweep.sweep import MAX_NAME_LENGTH, Sweep, job_name
from marlnb.errors import BatchError

HOSTILE = (
    *(
        "a'; echo foo",
        "$(touch pwned)",
        "`id`",
        "a\nb",
        "..",
        "../../etc",
        "-rf",
        "",
        " ",
        "🎉🎉",
        "ü" * 300,
    ),
    *("x,y", "x=y", "/", "\\", "*", "~", "a b", "a  b", '"', "1", "null", "true", "[1]", "CON", ".", "%(x)s", "{x}"),
    "a" * 300,
)


def test_combinations_in_order() -> None:
    sweep = Sweep({"algorithm": ("mappo", "ippo"), "seed": (0, 1)}, {"frames": 10})
    assert len(sweep) == 4
    assert [name for name, _ in sweep.jobs()] == [
        "algorithm=mappo,seed=0",
        "algorithm=mappo,seed=1",
        "algorithm=ippo,seed=0",
        "algorithm=ippo,seed=1",
    ]
    assert dict(sweep.jobs())["algorithm=ippo,seed=0"] == {"algorithm": "ippo", "seed": 0, "frames": 10}
    assert list(Sweep({}, {"seed": 3}).jobs()) == [("only", {"seed": 3})]
    assert Sweep.from_json(sweep.to_json()) == sweep


def test_contradictions_are_refused() -> None:
    with pytest.raises(BatchError, match="'seed' has no values"):
        Sweep({"seed": ()}, {})
    with pytest.raises(BatchError, match="'seed': 1 given twice"):
        Sweep({"seed": (1, 2, 1)}, {})
    with pytest.raises(BatchError, match="'seed' has both one value and several"):
        Sweep({"seed": (1, 2)}, {"seed": 1})


def test_names_are_harmless_and_differ() -> None:
    values = (*HOSTILE, 1, None, True, [1], 1.5, {"a": 1})
    names = [job_name({"größe": value, "b": 0}) for value in values]
    names += [job_name({"x": value}) for value in values]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+=,-]*", name) for name in names)
    assert max(map(len, names)) <= MAX_NAME_LENGTH
    assert job_name({"x": "mappo"}) == "x=mappo" and job_name({"x": 1}) == "x=1" != job_name({"x": "1"})
