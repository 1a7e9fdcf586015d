"""What `marlnb jobs` says of a batch, where SLURM keeps accounts and where it does not, with one question at most."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.processes import until
from tests.cluster.sending import Sent, kill_group, marlnb
from tests.cluster.settings import Settings

pytestmark = pytest.mark.timeout(600)
ASKING = (" squeue ", " sacct ", " scontrol ", " sinfo ")


@pytest.fixture(scope="module")
def keeping_accounts() -> Iterator[Cluster]:
    """A second cluster, with a database, whose controller forgets ended jobs within a minute."""
    usual = Settings()
    *first, last = usual.network.split(".")
    other = replace(
        usual,
        state=usual.state.with_name(f"{usual.state.name}-accounts"),
        port=usual.port + 5,
        node=f"{usual.node}a",
        network=".".join([*first, str(int(last) + 100)]),
        accounting=True,
        forgets_after_s=5,
    )
    with Cluster.up(other) as cluster:
        yield cluster
    assert cluster.left_over() == ""


@pytest.fixture(params=["without accounting", "with accounting"])
def place(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("keeping_accounts" if request.param == "with accounting" else "cluster")


def asked(place: Cluster, folder: Path) -> dict[str, tuple[str, str]]:
    """State and reason by job, as `marlnb jobs` tells them, with at most one call of the scheduler."""
    calls = place.calls()
    told = marlnb(place, "jobs", str(folder), "--json", check=False)
    assert told.returncode in (0, 1, 75), told.stderr
    lines = [line for line in calls.lines() if any(name in f"{line} " for name in ASKING)]
    assert len(lines) <= 1, lines
    if lines:
        assert (" sacct " in lines[0]) == place.settings.accounting, lines
    return {job["job"].removeprefix("what="): (job["state"], job["reason"]) for job in json.loads(told.stdout)["jobs"]}


def test_states_and_reasons_with_one_call(place: Cluster) -> None:
    work = place.settings.folder("work") / "states"
    source = notebooks.write(work / "states.ipynb", notebooks.STATES)
    sent = Sent.by(place, source, work / "sweep", "-p", "what=ok,bad,long,slow,later,cut", "--set", "at_once=2")
    ids = {
        name: f"{sent.ids()[0][0].split('_')[0]}_{k}"
        for k, name in enumerate(("ok", "bad", "long", "slow", "later", "cut"))
    }
    until(
        "two are running",
        lambda: [sent.states()[f"what={name}"] for name in ("long", "slow")] == ["running"] * 2,
        timeout_s=240,
    )
    place.command("scancel", ids["cut"])

    def settled() -> dict[str, tuple[str, str]]:
        now = asked(place, sent.folder)  # a database hears of what happened some seconds later
        return now if "CANCELLED" in now["cut"][1] else {}

    found = until("the cancelled one is told", settled, timeout_s=90, every_s=2)
    assert {name: state for name, (state, _) in found.items()} == {
        "ok": "complete", "bad": "failed", "long": "running", "slow": "running", "later": "queued", "cut": "waiting",
    }  # fmt: skip
    assert "RuntimeError: bad" in found["bad"][1]
    assert "JobArrayTaskLimit" in found["later"][1] or place.settings.accounting
    assert found["cut"][1].startswith("CANCELLED")

    kill_group(sent.status("what=slow").pid)
    marlnb(place, "cancel", str(sent.folder), "what=long")
    until("the last is complete", lambda: sent.states()["what=later"] == "complete", timeout_s=180)

    def told() -> dict[str, tuple[str, str]]:
        now = asked(place, sent.folder)
        return now if now["slow"][0] == "interrupted" and now["slow"][1] != "" else {}

    found = until("the killed one is told", told, timeout_s=90, every_s=2)
    assert found["long"][0] == "stopped"
    print(found)
    if place.settings.accounting:
        until("the controller has forgotten them", lambda: sent.ids() == [], timeout_s=240, every_s=2)
        later = asked(place, sent.folder)
        assert later["slow"] == found["slow"] and later["cut"][1].startswith("CANCELLED")
