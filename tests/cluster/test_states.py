"""What `marlnb jobs` says of a batch, where SLURM keeps accounts and where it does not, with one question at most."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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


class Report(NamedTuple):
    state: str
    reason: str


Reports = dict[str, Report]


def asked(place: Cluster, folder: Path) -> Reports:
    """State and reason by job, as `marlnb jobs` gives them, with at most one call of the scheduler."""
    calls = place.calls()
    listed = marlnb(place, "jobs", str(folder), "--json", check=False)
    assert listed.returncode in (0, 1, 75), listed.stderr
    lines = [line for line in calls.lines() if any(name in f"{line} " for name in ASKING)]
    assert len(lines) <= 1, lines
    if lines:
        assert (" sacct " in lines[0]) == place.settings.accounting, lines
    jobs = json.loads(listed.stdout)["jobs"]
    return {job["job"].removeprefix("what="): Report(job["state"], job["reason"]) for job in jobs}


def asked_until(place: Cluster, folder: Path, what: str, holds: Callable[[Reports], bool]) -> Reports:
    """Asks until `holds`: the accounting database gets changes some seconds later."""

    def ask() -> Reports:
        now = asked(place, folder)
        return now if holds(now) else {}

    return until(what, ask, timeout_s=120, every_s=2)


def test_states_and_reasons_with_one_call(place: Cluster) -> None:
    work = place.settings.folder("work") / "states"
    source = notebooks.write(work / "states.ipynb", notebooks.STATES)
    sent = Sent.by(place, source, work / "sweep", "-p", "what=ok,bad,long,slow,later,cut", "--set", "at_once=2")
    array = sent.ids()[0][0].split("_")[0]
    long_ones = ("what=long", "what=slow")
    until("both run", lambda: {sent.states()[name] for name in long_ones} == {"running"}, timeout_s=240)
    place.command("scancel", f"{array}_5")
    # neither squeue nor a database reports a waiting task as cancelled; a database still calls it pending
    reports = asked_until(
        place,
        sent.folder,
        "the cancelled one is reported",
        lambda now: "CANCELLED" in now["cut"].reason or (place.settings.accounting and now["cut"].state == "queued"),
    )
    states = {name: report.state for name, report in reports.items() if name != "cut"}
    assert states == {"ok": "complete", "bad": "failed", "long": "running", "slow": "running", "later": "queued"}
    assert "RuntimeError: bad" in reports["bad"].reason
    assert "JobArrayTaskLimit" in reports["later"].reason or place.settings.accounting

    kill_group(sent.status("what=slow").pid)
    marlnb(place, "cancel", str(sent.folder), "what=long")
    until("the last is complete", lambda: sent.states()["what=later"] == "complete", timeout_s=180)

    def ended(now: Reports) -> bool:
        killed = "signal 9" in now["slow"].reason
        killed = killed or (not place.settings.accounting and "FAILED" in now["slow"].reason)
        return killed and now["long"].state == "stopped"

    reports = asked_until(place, sent.folder, "the killed one and the cancelled one are reported", ended)
    assert (reports["long"].state, reports["slow"].state) == ("stopped", "interrupted")
    if place.settings.accounting:
        until("the controller has forgotten them", lambda: sent.ids() == [], timeout_s=240, every_s=2)
        later = asked(place, sent.folder)
        assert later["slow"] == reports["slow"]
