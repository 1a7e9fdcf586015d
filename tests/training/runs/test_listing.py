"""The list of runs: what a row says, what a change costs, and folders that are broken or hostile."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marlnb.cli import main
from marlnb.errors import RunError
from marlnb.training.runs import listing
from marlnb.training.runs.files import EXPERIMENT, METRICS, STATUS
from marlnb.training.runs.listing import RunListing, list_runs, sampled_rows
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_notes import write_notes
from tests.lab.run_folders import write_run
from tests.training.another_user import shared_folder, without_root
from tests.training.toys import count_experiment


def test_a_row_says_what_is_trained_and_how_far_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "sweep" / "seed=3", state="running", seed=3, frames=40_000)
    with RunLock(tmp_path / "sweep" / "seed=3" / "lock"):
        (run,) = list_runs(tmp_path)
    assert (run.name, run.group, run.state) == ("sweep/seed=3", "sweep", "running")
    assert (run.env, run.algorithm, run.seed, run.host) == ("mpe/simple_speaker_listener", "mappo", 3, "node7")
    assert (run.frames, run.frames_total) == (40_000, 100_000)
    # write_run's formula at its last and its first row
    assert run.score == pytest.approx(-13 - 30 * math.exp(-4))
    assert run.curve[0] == pytest.approx(-13 - 30 * math.exp(-4 / 50)) and len(run.curve) == listing.N_SAMPLES
    assert list_runs(tmp_path)[0].state == "interrupted"  # the lock is free again


def test_only_what_has_changed_is_read_again(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / f"{seed}", seed=seed)
    runs = RunListing([tmp_path])
    assert len(runs.read().changed) == 3
    assert runs.read().changed == []
    write_notes(tmp_path / "1", tags=["good", " good", ""], note="see page 3")
    (changed,) = runs.read().changed
    assert (changed.name, changed.tags, changed.note) == ("1", ["good"], "see page 3")


def test_a_killed_training_is_noticed_though_no_file_changes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", state="running")
    lock, runs = RunLock(run / "lock"), RunListing([tmp_path])
    assert runs.read().changed[0].state == "running"
    lock.release()
    assert [each.state for each in runs.read().changed] == ["interrupted"]


def test_new_and_deleted_runs_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RESCAN_S", 0.0)
    monkeypatch.setattr(listing, "RESCAN_FACTOR", 0)
    first, runs = write_run(tmp_path / "first"), RunListing([tmp_path])
    runs.read()
    shutil.rmtree(first)
    write_run(tmp_path / "second")
    changes = runs.read()
    assert changes.removed == [str(first)] and [run.name for run in changes.changed] == ["second"]


def test_a_deleted_run_is_gone_before_the_next_search(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", state="running")
    listed = RunListing([tmp_path])
    listed.read()
    shutil.rmtree(run)
    changes = listed.read()
    assert (changes.changed, changes.removed) == ([], [str(run)])
    assert listed.read().removed == []


def test_a_reading_in_parts_looks_at_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        write_run(tmp_path / f"{seed}", seed=seed, rows=2)
    calls, stat = [0], listing._stat
    monkeypatch.setattr(listing, "_stat", lambda path: calls.__setitem__(0, calls[0] + 1) or stat(path))
    runs, n_parts = RunListing([tmp_path]), 1
    while not runs.read(0.0).is_complete:
        n_parts += 1
    assert n_parts >= 20 and calls[0] <= 2 * 4 * 20  # each file of each run before it is read, and for the first time
    calls[0] = 0
    while not runs.read(0.0).is_complete:
        pass
    assert calls[0] == 2 * 20  # of a run that has ended only what can change


def test_a_resumed_run_is_read_again(tmp_path: Path) -> None:
    run, runs = write_run(tmp_path / "run"), RunListing([tmp_path])
    assert runs.read().changed[0].state == "complete"
    (run / STATUS).write_text(json.dumps({"state": "stopped", "frames": 1_000}))
    assert [each.state for each in runs.read().changed] == ["stopped"]


def test_a_budget_of_time_ends_a_reading_and_the_next_one_continues(tmp_path: Path) -> None:
    for seed in range(5):
        write_run(tmp_path / f"{seed}", seed=seed)
    runs, names = RunListing([tmp_path]), []
    for _ in range(100):
        changes = runs.read(0.0)
        names += [run.name for run in changes.changed]
        if changes.is_complete:
            break
    assert sorted(names) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (EXPERIMENT, "{", "cannot be read"),
        (EXPERIMENT, "[]", "not an object"),
        (METRICS, '{"iteration": 1, "returns": {"a": "<b>"}}\n', "expected numbers"),
        ("notes.json", "no", "cannot be read"),
    ],
)
def test_a_run_that_cannot_be_read_is_a_row_that_says_why(tmp_path: Path, name: str, text: str, problem: str) -> None:
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad") / name).write_text(text)
    bad, good = list_runs(tmp_path)
    assert good.problem == "" and problem in bad.problem


@pytest.mark.parametrize("text", ["", "7", '{"state": "runn'])
def test_a_run_whose_status_is_damaged_can_be_resumed(tmp_path: Path, text: str) -> None:
    (write_run(tmp_path / "run") / STATUS).write_text(text)
    (run,) = list_runs(tmp_path)
    assert (run.state, run.problem) == ("interrupted", "")


def test_each_group_has_a_return_where_groups_are_rewarded_differently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "tag\x1b[2J")
    (folder / METRICS).write_text('{"iteration": 1, "frames": 9, "returns": {"adversary": 3.75, "agent": -9.5}}\n')
    (run,) = list_runs(tmp_path)
    assert (run.score, run.score_of, run.returns) == (3.75, "adversary", {"adversary": 3.75, "agent": -9.5})
    main(["runs", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "adversary 3.75, agent -9.5" in printed and "tag\ufffd[2J" in printed


def test_agents_that_play_against_each_other_have_a_return_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean of their group is 0, whatever they learn."""
    row = '{"iteration": 1, "frames": 9, "returns": {"player": 0}, "agent_returns": {"one": 0.5, "two": -0.5}}\n'
    (write_run(tmp_path / "game") / METRICS).write_text(row)
    (run,) = list_runs(tmp_path)
    assert (run.score, run.score_of, run.returns, run.curve) == (0.5, "one", {"one": 0.5, "two": -0.5}, [0.5])
    main(["runs", str(tmp_path)])
    assert "one 0.5, two -0.5" in capsys.readouterr().out


def test_returns_are_those_of_the_last_iteration_in_which_episodes_ended(tmp_path: Path) -> None:
    returns = [{"adversary": 3.75, "agent": -9.5}, {"adversary": None, "agent": None}]
    rows = [json.dumps({"iteration": k, "frames": 9 * k, "returns": row}) + "\n" for k, row in enumerate(returns, 1)]
    (write_run(tmp_path / "run") / METRICS).write_text("".join(rows))
    (run,) = list_runs(tmp_path)
    assert (run.score, run.score_of, run.returns) == (3.75, "adversary", returns[0])


def test_the_return_is_of_the_latest_100_episodes_not_of_the_few_of_the_last_iteration(tmp_path: Path) -> None:
    rows = [
        {"iteration": k, "frames": 9 * k, "returns": {"agent": mean}, "recent_returns": {"agent": recent}}
        for k, mean, recent in ((1, -20.0, -20.0), (2, -30.0, -25.0), (3, None, -25.0))
    ]
    (write_run(tmp_path / "run") / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = list_runs(tmp_path)
    assert (run.score, run.curve) == (-25.0, [-20.0, -25.0, -25.0])


def test_a_folder_that_may_not_be_read_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with shared_folder() as shared:
        write_run(shared / "mine")
        main(["runs", str(shared)])  # imports what it needs
        capsys.readouterr()
        os.chmod(write_run(shared / "theirs"), 0)
        with without_root():
            changes = RunListing([shared]).read()
            with pytest.raises(RunError, match="theirs is not a run folder: it may not be read"):
                Run.open(shared / "theirs")
            main(["runs", str(shared)])
        os.chmod(shared / "theirs", 0o700)
    assert [run.name for run in changes.changed] == ["mine"]
    assert changes.problems == [f"1 folder may not be read, such as {shared}/theirs"]
    printed = capsys.readouterr()
    assert "mine" in printed.out and changes.problems[0] in printed.err


def test_a_folder_below_one_that_may_not_be_read_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "RESCAN_S", 0.0)
    monkeypatch.setattr(listing, "RESCAN_FACTOR", 0)
    with shared_folder() as shared:
        write_run(shared / "mine")
        theirs = write_run(shared / "locked" / "theirs")
        main(["runs", str(shared)])  # imports what it needs
        capsys.readouterr()
        os.chmod(shared / "locked", 0)
        with without_root():
            runs = RunListing([theirs, shared / "mine"])
            first, second = runs.read(), runs.read()
            with pytest.raises(RunError, match="theirs is not a run folder: it may not be read"):
                Run.open(theirs)
            with pytest.raises(RunError, match=r"new cannot be created: .* may not be written to there by this user"):
                Run.create(theirs / "new", count_experiment())
            assert main(["runs", str(theirs)]) == 2
        os.chmod(shared / "locked", 0o700)
    assert [run.name for run in first.changed] == ["mine"] and (second.changed, second.removed) == ([], [])
    assert first.problems == second.problems == [f"{theirs} may not be read"]
    assert f"the folder {theirs} may not be read; give one that contains runs" in capsys.readouterr().err


def test_values_of_any_type_in_an_experiment_are_harmless(tmp_path: Path) -> None:
    experiment = {"env": [1], "algorithm": "x", "algorithms": {"a": 3}, "seed": "<b>", "frames": True, "league": 7}
    (write_run(tmp_path / "run") / EXPERIMENT).write_text(json.dumps(experiment))
    (run,) = list_runs(tmp_path)
    assert (run.env, run.algorithm, run.league, run.seed) == ("", "", "", None)


def test_names_that_are_no_text_can_be_sent(tmp_path: Path) -> None:
    write_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff<img src=x>")))
    (run,) = list_runs(tmp_path)
    assert json.loads(json.dumps(run.to_json()))["name"] == run.name


def test_a_pipe_in_place_of_a_file_does_not_wait(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / METRICS).unlink()
    os.mkfifo(run / METRICS)
    assert list_runs(tmp_path)[0].curve == []


def test_samples_of_a_long_file_are_evenly_spaced(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=20_000)
    iterations = [row["iteration"] for row in sampled_rows(run / METRICS, 5)]
    assert len(iterations) == 5 and iterations[-1] == 20_000
    assert iterations == pytest.approx([1, 5000, 10_000, 15_000, 20_000], abs=300)
    with open(run / METRICS, "a") as file:
        file.write('{"iteration": 20001, "fra')  # a row that is being written
    assert sampled_rows(run / METRICS, 5)[-1]["iteration"] == 20_000


def test_lines_that_grow_once_learning_starts_are_sampled(tmp_path: Path) -> None:
    rows = [{"iteration": k, "learning": {"agent": {"loss" * 200: 1.5} if k > 5 else {}}} for k in range(1, 501)]
    (tmp_path / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    iterations = [row["iteration"] for row in sampled_rows(tmp_path / METRICS, 5)]
    assert iterations == pytest.approx([1, 125, 250, 375, 500], abs=5) and iterations[0] == 1


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        list_runs(tmp_path / "none")
    assert "does not exist" in RunListing([tmp_path / "none"]).read().problems[0]


def test_listing_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, marlnb.lab.verbs; print([name for name in ('torch', 'numpy', 'hydra') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_search_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_FOLDERS", 3)
    for k in range(5):
        write_run(tmp_path / f"{k}")
    changes = RunListing([tmp_path]).read(time.monotonic() + 60)
    assert len(changes.changed) == 2 and "others not" in changes.problems[0]
