"""A population on a real SLURM: a job of an array for each member. They meet only through files."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.training.runs.run import Run
from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.sending import Sent

MEMBERS = (0, 1, 2)

pytestmark = pytest.mark.timeout(600)


def test_one_array_trains_a_population_and_a_lost_job_delays_only_its_member(cluster: Cluster, work: Path) -> None:
    source = notebooks.write(work / "population.ipynb", notebooks.POPULATION)
    calls = cluster.calls()
    words = ("-p", f"member={','.join(map(str, MEMBERS))}", "-p", "iterations=60", "-p", "pace_s=0.3")
    sent = Sent.by(cluster, source, work / "population", *words)
    assert sum(" sbatch --parsable" in line for line in calls.lines()) == 1, calls.lines()
    lost, *others = (f"member={member}" for member in MEMBERS)
    sent.await_iterations(8, lost)
    cluster.command("scancel", sent.running_id(lost))
    sent.await_states("complete", "interrupted", timeout_s=300)
    assert {sent.states()[name] for name in others} == {"complete"}
    sent.again()
    assert set(sent.await_states("complete")) == {lost, *others}
    population = Run.open(sent.run(lost)).population
    rows = population.lineage()
    assert {row.member for row in rows} == set(MEMBERS)
    assert any(row.parent not in (None, row.member) for row in rows)  # they continued each other
    assert {Run.open(sent.run(name)).population.best.id for name in (lost, *others)} == {population.best.id}
