"""Watching: the printed text, which jobs are restarted, and what ends the watching."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.batch import SOURCE, Batch
from marlnb.batch.executor import executor_of
from marlnb.batch.executors.local import LocalExecutor
from marlnb.batch.job.job import JobStatus
from marlnb.batch.local.process import processes_of
from marlnb.batch.monitor import LOCK, Monitor, watch
from marlnb.batch.progress_display import BatchProgress, summary_line
from marlnb.batch.retries import count_restarts
from marlnb.batch.submission_plan import make_plan
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.runs.files import read_json
from marlnb.training.runs.lock import RunLock
from tests.batch.batches import Maker, finish, kill, submit, supervisor, wait_until

COMPLETE = 'echo \'{"state": "complete", "attempt": 1}\' > job_status.json; exit 0'
ONCE = f"echo run >> attempts; [ $(wc -l < attempts) = 1 ] && exec sleep 100; {COMPLETE}"


class CreatesFiles(io.StringIO):
    """A stream that creates each file once the file's text was written to it."""

    def __init__(self, files: dict[str, Path]) -> None:
        super().__init__()
        self.files = files

    def write(self, text: str) -> int:
        written = super().write(text)
        for what, file in self.files.items():
            if what in self.getvalue():
                file.touch()
        return written


def output_of_watch(batch: Batch, stream: io.StringIO | None = None, **options: Any) -> str:
    stream = stream or io.StringIO()
    watch(batch, poll_s=0.1, stream=stream, **options)
    return stream.getvalue()


def events(batch: Batch) -> str:
    file = batch.path / "events.log"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def lose(batch: Batch) -> None:
    """Submits a batch, and kills its supervisor and its job while that runs."""
    submit(batch)
    attempts = batch.job("n=0").folder / "attempts"
    wait_until(lambda: attempts.exists() and attempts.stat().st_size)
    kill(supervisor(batch))
    wait_until(lambda: not processes_of(batch.job("n=0").folder))


def test_submitted_jobs_that_never_started_are_started_and_the_report_follows(make: Maker) -> None:
    batch = make("", n=(0, 1), then="", python=make.script(COMPLETE))
    batch.create_submission(batch.jobs(), then=True)  # the process that submits was killed here
    text = output_of_watch(batch)
    assert "[2/2]" in text and "report: complete" in text
    assert "n=0: started as local 2: it was never started" in events(batch)
    assert "report: started as local 3: all jobs are complete" in events(batch)
    assert len(batch.submissions()) == 3


def test_jobs_that_were_never_submitted_are_not_started(make: Maker) -> None:
    batch = make("", n=(0, 1, 2), then="", python=make.script(COMPLETE))
    assert f"never submitted: 3 jobs; to submit: marlnb batch {batch.path}" in output_of_watch(batch)
    executor_of(batch).submit(batch, [batch.job("n=1")], then=True)
    text = output_of_watch(batch)
    assert "/1 complete" in text and "never submitted: 2 jobs" in text
    assert [status.state for status in batch.statuses().values()] == ["waiting", "complete", "waiting"]
    assert len(batch.submissions()) == 1


def test_other_jobs_than_those_waited_for_are_neither_restarted_nor_ended(make: Maker) -> None:
    batch = make(
        "", n=(0, 1), python=make.script(f"[ $3 = {make.folder}/batch0/jobs/n=1 ] && {{ {COMPLETE}; }}; {ONCE}")
    )
    lose(batch)
    executor_of(batch).submit(batch, [batch.job("n=1")], then=False)
    text = output_of_watch(batch, only=["n=1"])
    assert "/1 complete" in text and "n=0" not in text
    assert batch.job("n=0").status().state == "waiting" and len(batch.submissions()) == 2
    with pytest.raises(BatchError, match="no job 'n=2'"):
        watch(batch, only=["n=2"])
    batch.job("n=1").write_status(JobStatus("interrupted"))
    monitor = Monitor(batch, BatchProgress(silent=True), resubmit=False, only=["n=1"])
    monitor.poll()
    monitor.end_jobs(0.1)
    assert [status.state for status in batch.statuses().values()] == ["waiting", "stopped"]


def test_the_first_start_of_a_report_is_no_restart(make: Maker) -> None:
    batch = make("", then="", python=make.script(COMPLETE), resubmits=0)
    submit(batch)
    assert "report: complete" in output_of_watch(batch)
    submit(batch, then=True)
    assert count_restarts(batch)["report"] == 0


def test_a_job_whose_supervisor_was_killed_is_restarted_with_the_reason(make: Maker) -> None:
    batch = make("", python=make.script(ONCE))
    lose(batch)
    text = output_of_watch(batch)
    assert batch.job("n=0").status().state == "complete"
    reason = f"its supervisor was killed (see {batch.path}/submissions/1/supervisor.log)"
    assert reason in text and reason in events(batch)
    assert count_restarts(batch) == {"n=0": 1}


def test_the_cap_lasts_across_watch_processes_and_a_submission_resets_it(make: Maker) -> None:
    batch = make("", python=make.script("echo run >> attempts; exec sleep 100"), resubmits=1)
    lose(batch)
    submit(batch, reason="as a watcher before this one did")
    assert count_restarts(batch) == {"n=0": 1}
    kill(supervisor(batch))
    text = output_of_watch(batch)
    assert "given up" in text and "given up" in batch.job("n=0").status().reason
    assert batch.job("n=0").status().state == "failed" and len(batch.submissions()) == 2
    submit(batch)
    assert count_restarts(batch)["n=0"] == 0


def test_failed_and_stopped_jobs_are_listed_and_not_restarted(make: Maker) -> None:
    continues = f"until [ -e go_on ]; do sleep 0.05; done; [ ${{PWD##*=}} = 2 ] || exit 1; {COMPLETE}"
    batch = make("", n=(0, 1, 2), python=make.script(continues), at_once=2)
    batch.job("n=1").write_status(JobStatus("stopped", reason="the file STOP"))
    executor_of(batch).submit(batch, [batch.job("n=0"), batch.job("n=2")], then=False)
    first_look, then = (batch.job(name).folder / "go_on" for name in ("n=0", "n=2"))
    text = output_of_watch(batch, CreatesFiles({"0/2 complete": first_look, "n=0: failed": then}))
    assert "[1/2] n=0: failed" in text and "marlnb batch" in text  # how to run just that again
    states = {name: status.state for name, status in batch.statuses().items()}
    assert states == {"n=0": "failed", "n=1": "stopped", "n=2": "complete"}
    assert len(batch.submissions()) == 1


def test_it_returns_when_what_failed_can_be_submitted_again(make: Maker) -> None:
    """Its files say so before its process has ended: until then a submission would take it for one that runs."""
    failed = COMPLETE.replace("complete", "failed").replace("exit 0", "sleep 1; exit 1")
    batch = make("", python=make.script(f"[ -e before ] && {{ {COMPLETE}; }}; touch before; {failed}"))
    submit(batch)
    output_of_watch(batch)
    assert batch.job("n=0").status().state == "failed"
    assert [planned.submits for planned in make_plan(batch, batch.path / SOURCE).jobs] == [True]
    submit(batch)
    output_of_watch(batch)
    assert batch.job("n=0").status().state == "complete"


def test_a_disk_that_refuses_is_waited_for(make: Maker) -> None:
    batch, stream = make("", python=make.script(COMPLETE)), io.StringIO()
    batch.create_submission(batch.jobs(), then=False)
    (batch.path / LOCK).symlink_to(batch.path / LOCK)
    monitor = Monitor(batch, BatchProgress(stream), resubmit=True)
    wait_until(lambda: monitor.poll() or "1 job could not be submitted, trying again" in stream.getvalue())
    (batch.path / LOCK).unlink()
    wait_until(monitor.poll)
    assert batch.job("n=0").status().state == "complete"
    monitor.release()


def test_a_missing_job_may_be_dropped_from_the_sweep(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make("", n=(0, 1))
    batch.create_submission(batch.jobs(), then=False)
    monitor = Monitor(batch, BatchProgress(silent=True), resubmit=False)
    wait_until(monitor.poll)  # both have been missing for the grace period
    monkeypatch.setattr(LocalExecutor, "query_interval_s", 3600.0)  # as a cluster's, which is asked rarely
    replace(batch, sweep=Sweep({"n": (0,)}, {})).write(batch.path / SOURCE, None)
    monitor.poll()
    assert list(monitor.statuses) == ["n=0"]


def test_only_one_watch_process_restarts_jobs_and_a_read_only_one_never_does(make: Maker) -> None:
    batch = make("", python=make.script(ONCE))
    lose(batch)
    assert "started" not in output_of_watch(batch, resubmit=False)
    with RunLock(batch.path / LOCK):
        assert f"process {os.getpid()} on" in output_of_watch(batch, once=True)
    assert len(batch.submissions()) == 1
    output_of_watch(batch, once=True)
    assert len(batch.submissions()) == 2
    assert finish(batch)["n=0"][0] == "complete"


def test_jobs_of_a_supervisor_that_is_asked_to_end_start_again_when_all_of_them_have_saved(make: Maker) -> None:
    saves = f"[ -e ../end ] && {{ {COMPLETE}; }}; echo run > attempts; trap 'sleep 3; exit 75' TERM; sleep 100 & wait"
    batch = make("", n=(0, 1, 2, 3), at_once=2, python=make.script(saves))
    submit(batch)
    wait_until(lambda: len(list(batch.path.glob("jobs/*/attempts"))) == 2)
    (batch.path / "jobs" / "end").touch()
    os.kill(supervisor(batch), signal.SIGTERM)
    output_of_watch(batch)
    names = [read_json(folder / "jobs.json")["jobs"] for folder in batch.submissions()]
    assert names == [["n=0", "n=1", "n=2", "n=3"]] * 2
    assert {status.state for status in batch.statuses().values()} == {"complete"}


@pytest.mark.parametrize("owns", [False, True])
def test_an_interrupt_ends_the_jobs_of_a_foreground_batch_and_nothing_else(make: Maker, owns: bool) -> None:
    saves = "echo run > attempts; until [ -e STOP ]; do sleep 0.05; done; exit 130"
    batch = make("", n=(0, 1), at_once=1, python=make.script(saves))
    submit(batch)
    program = (
        "import sys; from marlnb.batch.batch import Batch; from marlnb.batch.monitor import watch;"
        f"watch(Batch.open(sys.argv[1]), poll_s=0.1, owns={owns})"
    )
    watching = subprocess.Popen([sys.executable, "-c", program, batch.path], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (batch.job("n=0").folder / "attempts").exists() and (batch.path / "submissions/1").exists())
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith("0/2 complete")
    watching.send_signal(signal.SIGINT)
    _, text = watching.communicate(timeout=100)
    assert "KeyboardInterrupt" in text
    states = {name: status.state for name, status in batch.statuses().items()}
    if owns:
        assert "stopping: each job saves first" in text and states == {"n=0": "stopped", "n=1": "stopped"}
    else:
        assert "the jobs continue" in text and executor_of(batch).query(batch)["n=0"].state == "running"


def test_the_line_over_all_counts_shares_and_estimates() -> None:
    states = ["complete"] * 6 + ["running"] * 2 + ["waiting"] + ["failed"]
    statuses = {str(n): JobStatus(state) for n, state in enumerate(states)}  # type: ignore[arg-type]
    line = summary_line(
        statuses, 7.0, 1 / 1800
    )  # half of two jobs; one job in half an hour; 10 - 7 - 1 failed are left
    assert line == "6/10 complete, 2 running, 1 waiting, 1 failed   70%  2 jobs/h  1:00:00 left"
