"""A league on a real SLURM: a job of an array for each learning player. They meet only through files."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.training.runs.run import Run
from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.sending import Sent

PLAYERS = ("main_0", "main_exploiter_0")

pytestmark = pytest.mark.timeout(600)


def test_one_array_trains_a_league_and_a_lost_job_delays_only_its_player(cluster: Cluster, work: Path) -> None:
    source = notebooks.write(work / "league.ipynb", notebooks.LEAGUE)
    calls = cluster.calls()
    words = ("-p", f"learner={','.join(PLAYERS)}", "-p", "iterations=60", "-p", "pace_s=0.3")
    sent = Sent.by(cluster, source, work / "league", *words)
    assert sum(" sbatch --parsable" in line for line in calls.lines()) == 1, calls.lines()
    main, exploiter = (f"learner={player}" for player in PLAYERS)
    sent.await_iterations(10, exploiter)
    cluster.command("scancel", sent.running_id(exploiter))
    sent.await_states("complete", "interrupted", timeout_s=300)
    assert sent.states()[main] == "complete"
    met = {match.learner for match in Run.open(sent.run(main)).league.matches()}
    assert met == set(PLAYERS)  # it read what the lost player had done
    sent.again()
    assert sent.await_states("complete") == {main: "complete", exploiter: "complete"}
    run = Run.open(sent.run(exploiter))
    assert {match.learner for match in run.league.matches()} == set(PLAYERS)
    assert run.status()["frames"] == 128 * 60
