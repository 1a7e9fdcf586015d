"""The SLURM executor before commands that answer as a real SLURM did; `make cluster-test` drives a real one."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.cancel import cancel
from marlnb.batch.executor import Executor, executor_of
from marlnb.batch.executors.slurm import SlurmExecutor
from marlnb.batch.job.job import JOB_LOCK, Job, JobInfo
from marlnb.batch.job.run_job import _indexed
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.submission_record import SubmissionRecord
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError, DiskError
from marlnb.training.runs.files import STOP
from marlnb.training.runs.lock import RunLock

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
CONFIG = "AccountingStorageType   = accounting_storage/{storage}\nMaxArraySize            = {largest}\n"


class Scheduler:
    """Commands of the names of SLURM's that write down how they were called and print what they were given to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._n_read = 0
        self._log = folder / "calls"
        self._log.touch()
        for name in COMMANDS:
            script = folder / name
            base, log = shlex.quote(str(folder / name)), shlex.quote(str(self._log))
            script.write_text(
                f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >> {log}\n'
                f"env | grep -E '^(SLURM|SBATCH|SQUEUE)' | sort > {base}.env\n"
                f"[ -e {base}.refuses ] && {{ cat {base}.refuses >&2; exit 1; }}\n"
                f"[ {name} = sbatch ] && {{ n=$(grep -c ^sbatch {log}); echo $((40 + n)); exit; }}\n"
                f"[ -e {base}.says ] && cat {base}.says; true\n"
            )
            script.chmod(0o700)
        self.configure()

    def configure(self, largest: int = 1001, storage: str = "none") -> None:
        self.says("scontrol", CONFIG.format(storage=storage, largest=largest))

    def says(self, command: str, text: str) -> None:
        (self.folder / f"{command}.says").write_text(text)

    def refuses(self, command: str, text: str) -> None:
        (self.folder / f"{command}.refuses").write_text(text)

    def calls(self) -> list[str]:
        """Since the last time that this was asked."""
        lines = self._log.read_text().splitlines()
        new, self._n_read = lines[self._n_read :], len(lines)
        return new


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Scheduler(folder)


Make = Callable[..., tuple[Batch, Executor]]


@pytest.fixture
def make(tmp_path: Path, scheduler: Scheduler) -> Make:
    def made(count: int = 3, *, then: bool = False, **keys: object) -> tuple[Batch, Executor]:
        source = tmp_path / "a.ipynb"
        nbformat.write(nbformat.v4.new_notebook(), source)
        profile = Profile(executor="slurm", **keys)  # type: ignore[arg-type]
        sweep = Sweep({"seed": tuple(range(count))}, {})
        batch = Batch.create(tmp_path / "it's a $(batch) %j", source, sweep, profile, then=source if then else None)
        return batch, executor_of(batch)

    return made


def test_a_submission_is_one_script_one_call_and_one_record(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(3, then=True)
    assert executor.submit(batch, batch.jobs(), then=True) == "slurm 41, the report 42"
    assert scheduler.calls() == [
        "scontrol show config",
        "sbatch --parsable script.sbatch",
        "sbatch --parsable report.sbatch",
    ]
    submission = batch.path / "submissions" / "1"
    record = json.loads((submission / "slurm.json").read_text())
    assert record == {
        "accounting": False,
        "cluster": "",
        "arrays": [{"id": 41, "part": {"number": 1, "first": 0, "count": 3}}],
        "report": 42,
        "folder": str(submission.resolve()),
    }
    assert (
        "#SBATCH --dependency=afterok:41\n#SBATCH --kill-on-invalid-dep=yes\n"
        in (submission / "report.sbatch").read_text()
    )
    assert [_indexed(submission, k) for k in range(3)] == [job.folder for job in batch.jobs()]
    assert Job.open(batch.report_job().folder).parameters == {"batch": str(batch.path)}
    with pytest.raises(BatchError, match="has no job 3; valid: 0 to 2"):
        _indexed(submission, 3)


def test_a_preview_is_what_is_submitted_and_writes_nothing(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(2, then=True)
    preview = executor.preview(batch, batch.jobs(), then=True)
    assert not batch.submissions()
    executor.submit(batch, batch.jobs(), then=True)
    assert (batch.submissions()[0] / "script.sbatch").read_text() in preview
    scheduler.refuses("scontrol", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)")
    assert "--array=0-1" in executor.preview(batch, batch.jobs(), then=False)


def test_a_machine_without_slurm_is_an_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, executor = make()
    executor.check()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        BatchError, match="sbatch was not found on this machine; SLURM's commands are on a cluster's login nodes"
    ):
        executor.check()
    assert "#SBATCH --array=0-2\n" in executor.preview(batch, batch.jobs(), then=False)


def test_a_sweep_longer_than_arrays_may_be(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(5, then=True, at_once=1)
    scheduler.configure(largest=2)
    assert executor.submit(batch, batch.jobs(), then=True) == "slurm 41, 42, 43, the report 44"
    submission = batch.submissions()[0]
    assert "--dependency=afterany:42" in (submission / "script-3.sbatch").read_text()
    assert "--dependency=afterok:41:42:43" in (submission / "report.sbatch").read_text()
    scheduler.says("squeue", "43_0|PENDING||Dependency\n")
    assert executor.query(batch)["seed=4"] == JobInfo("queued", "Dependency", "43_0")


def test_a_refusal_by_slurm_is_reported_and_no_attempt_is_counted(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make()
    scheduler.says("sinfo", "debug\nurgent\n")
    words = "sbatch: error: Batch job submission failed: Invalid partition name specified"
    scheduler.refuses("sbatch", words)
    with pytest.raises(BatchError) as caught:
        executor.submit(batch, batch.jobs(), then=False, reason="NODE_FAIL")
    message = str(caught.value)
    assert words in message and "check the profile's key `partition`; partitions here are: debug, urgent" in message
    assert batch.submissions() == [] and (batch.path / "submissions" / "refused" / "script.sbatch").is_file()
    assert {known.state for known in executor.query(batch).values()} == {"unknown"}
    assert words in (batch.path / "events.log").read_text()


def test_jobs_submitted_before_a_refusal_are_cancelled(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(3)
    scheduler.configure(largest=1)
    (scheduler.folder / "sbatch").write_text(
        (scheduler.folder / "sbatch")
        .read_text()
        .replace("echo $((40 + n)); exit", "[ $n = 3 ] && exit 1; echo 4$n; exit")
    )
    with pytest.raises(BatchError, match="exit code 1"):
        executor.submit(batch, batch.jobs(), then=False)
    assert scheduler.calls()[-1] == "scancel --quiet 41 42"
    assert batch.submissions() == []


@pytest.mark.parametrize("error", [DiskError("slurm.json cannot be written: full"), KeyboardInterrupt()])
def test_jobs_whose_record_was_not_written_are_cancelled(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Else nothing would know of them, and the same command would submit them again."""
    batch, executor = make(3)

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(SubmissionRecord, "write", failing)
    with pytest.raises((BatchError, KeyboardInterrupt)) as caught:
        executor.submit(batch, batch.jobs(), then=False)
    assert str(error) in str(caught.value)
    assert scheduler.calls()[-2:] == ["sbatch --parsable script.sbatch", "scancel --quiet 41"]
    assert batch.submissions() == [] and "3 jobs" in (batch.path / "events.log").read_text()


def test_jobs_that_slurm_accepted_and_did_not_cancel_are_named(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, executor = make(3, then=True)
    scheduler.refuses("scancel", "Socket timed out")
    sbatch = scheduler.folder / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("echo $((40 + n))", "[ $n = 2 ] && exit 1; echo 41"))
    with pytest.raises(BatchError, match=r"(?s)exit code 1.*SLURM has accepted 41 and did not .* Socket timed out"):
        executor.submit(batch, batch.jobs(), then=True)


def test_one_call_tells_of_all(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(4, then=True)
    executor.submit(batch, batch.jobs(), then=True)
    scheduler.calls()
    scheduler.says("squeue", "41_0|RUNNING|n1|None\n41_2|FAILED|n2|NonZeroExitCode\n7_0|RUNNING|n9|None\n")
    (batch.submissions()[0] / "2.log").write_text("module: not found\n")
    known = executor.query(batch)
    assert len(scheduler.calls()) == 1
    assert known["seed=0"] == JobInfo("running", "", "41_0", "n1")
    assert known["seed=2"].reason == f"FAILED; see {batch.submissions()[0] / '2.log'}"
    assert known["seed=1"] == JobInfo("ended", "CANCELLED before it started", "41_1")
    assert known[REPORT] == JobInfo("ended", "SLURM has forgotten it", "42_0")


def test_one_call_tells_of_several_batches(make: Make, scheduler: Scheduler, tmp_path: Path) -> None:
    batches = []
    for name in ("a", "b"):
        made, _ = make(2)
        made.path.rename(tmp_path / name)
        batches.append(Batch.open(tmp_path / name))
        executor_of(batches[-1]).submit(batches[-1], batches[-1].jobs(), then=False)
    scheduler.calls()
    scheduler.says("squeue", "41_0|RUNNING|n1|None\n42_0|RUNNING|n2|None\n42_1|PENDING||Priority\n")
    first, second = SlurmExecutor.query_all(batches)
    assert len(scheduler.calls()) == 1
    assert first["seed=0"].node == "n1" and first["seed=1"].state == "ended"
    assert second["seed=0"].node == "n2" and second["seed=1"] == JobInfo("queued", "Priority", "42_1")


def test_accounting_is_asked_where_there_is_one(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(2)
    scheduler.configure(storage="slurmdbd")
    executor.submit(batch, batch.jobs(), then=False)
    scheduler.calls()
    assert executor.query(batch)["seed=0"] == JobInfo("queued", "just submitted", "41_0")
    scheduler.says("sacct", "41_0|RUNNING|n1|None|0:0\n41_[1]|PENDING|None assigned|Priority|0:0\n")
    known = SlurmExecutor(batch.profile).query(batch)
    assert [one.state for one in known.values()] == ["running", "queued"]
    calls = scheduler.calls()
    assert len(calls) == 2 and calls[0].startswith("sacct ") and calls[0].endswith("--jobs=41")
    SlurmExecutor(replace(batch.profile, accounting=False)).query(batch)
    assert scheduler.calls()[0].startswith("squeue ")


def test_jobs_whose_files_say_that_they_have_ended_need_no_call(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(2)
    executor.submit(batch, batch.jobs(), then=False)
    scheduler.calls()
    for job, state in zip(batch.jobs(), ("complete", "failed")):
        job.write_status(replace(job.status(), state=state))  # type: ignore[arg-type]
    assert [(known.state, known.reason) for known in executor.query(batch).values()] == [
        ("ended", ""),
        ("ended", "failed"),
    ]
    assert scheduler.calls() == []


def test_a_job_that_failed_before_it_was_submitted_again_is_asked_for(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(1)
    job = batch.jobs()[0]
    job.write_status(replace(job.status(), state="failed"))
    executor.submit(batch, [job], then=False)
    scheduler.says("squeue", "41_0|PENDING||Priority\n")
    assert executor.query(batch)[job.name] == JobInfo("queued", "Priority", "41_0")


def test_a_job_that_failed_on_a_node_whose_clock_is_late_has_failed(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, executor = make(2, then=True)
    executor.submit(batch, batch.jobs(), then=True)
    monkeypatch.setattr("marlnb.batch.job.job.time", SimpleNamespace(time=lambda: time.time() - 3600))
    for job, state in zip([*batch.jobs(), batch.report_job()], ("failed", "stopped", "failed")):
        job.write_status(replace(job.status(), state=state))  # type: ignore[arg-type]
    scheduler.calls()
    assert [info.reason for info in executor.query(batch).values()] == ["failed", "stopped", "failed"]
    assert scheduler.calls() == []
    executor.submit(batch, batch.jobs()[:1], then=False)  # what failed is of the earlier submission
    scheduler.says("squeue", "43_0|PENDING||Priority\n")
    assert executor.query(batch)["seed=0"] == JobInfo("queued", "Priority", "43_0")


def test_a_clock_that_is_set_back_ends_the_delay_of_the_accounting(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, executor = make(1)
    scheduler.configure(storage="slurmdbd")
    executor.submit(batch, batch.jobs(), then=False)
    monkeypatch.setattr("marlnb.batch.executors.slurm.time", SimpleNamespace(time=lambda: time.time() - 3600))
    assert executor.query(batch)["seed=0"] == JobInfo("ended", "SLURM has forgotten it", "41_0")


def test_a_later_submission_hides_an_earlier_one(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(3, then=True)
    executor.submit(batch, batch.jobs(), then=True)
    first, second, third = batch.jobs()
    first.write_status(replace(first.status(), state="complete"))
    scheduler.says("squeue", "41_1|RUNNING|n1|None\n41_2|NODE_FAIL|n2|None\n42_0|PENDING||Dependency\n")
    scheduler.calls()
    assert executor.submit(batch, [third], then=True, reason="NODE_FAIL") == "slurm 43, the report 44"
    assert "scancel --quiet 42_0" in scheduler.calls()
    report = (batch.submissions()[1] / "report.sbatch").read_text()
    assert "#SBATCH --dependency=afterok:43:41_1\n" in report
    scheduler.says("squeue", "41_1|RUNNING|n1|None\n41_2|NODE_FAIL|n2|None\n43_0|PENDING||Priority\n")
    known = executor.query(batch)
    assert known[third.name] == JobInfo("queued", "Priority", "43_0")
    assert known[second.name].id == "41_1"


def test_no_report_is_submitted_that_could_not_run(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(2, then=True)
    assert executor.submit(batch, batch.jobs()[:1], then=True) == "slurm 41"
    assert "the report was not submitted" in (batch.path / "events.log").read_text()


def test_the_report_alone_is_a_job_like_others(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(1, then=True)
    batch.report_job().write()
    executor.submit(batch, [batch.report_job()], then=False)
    assert _indexed(batch.submissions()[0], 0) == batch.path / REPORT
    scheduler.says("squeue", "41_0|RUNNING|n1|None\n")
    assert executor.query(batch)[REPORT] == JobInfo("running", "", "41_0", "n1")


def test_cancelling_asks_those_that_run_and_takes_back_those_that_wait(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(4)
    executor.submit(batch, batch.jobs(), then=False)
    scheduler.calls()
    running, waiting, complete, other = batch.jobs()
    complete.write_status(replace(complete.status(), state="complete"))
    with RunLock(running.folder / JOB_LOCK):
        executor.cancel(batch, [running, waiting, complete])
        assert scheduler.calls() == ["scancel --quiet 41_1"]
        assert (running.folder / STOP).read_text() == "cancelled"
        assert waiting.status().state == "stopped" and complete.status().state == "complete"
        executor.cancel(batch, [running])  # it did not heed the file
        assert scheduler.calls() == ["scancel --quiet 41_0"]
    assert other.status().state == "waiting"
    executor.submit(batch, [running], then=False)
    assert not (running.folder / STOP).exists()


def test_a_cancellation_that_slurm_did_not_answer_can_be_repeated(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(2)
    executor.submit(batch, batch.jobs(), then=False)
    scheduler.calls()
    scheduler.refuses("scancel", "scancel: error: Kill job error: Socket timed out on send/recv operation")
    with pytest.raises(BatchError, match="Socket timed out"):
        cancel(batch)
    assert [job.status().state for job in batch.jobs()] == ["waiting", "waiting"]
    (scheduler.folder / "scancel.refuses").unlink()
    assert set(cancel(batch).values()) == {"will not start"}
    assert scheduler.calls() == ["scancel --quiet 41_0 41_1"] * 2
    assert [job.status().state for job in batch.jobs()] == ["stopped", "stopped"]


def test_cancelling_ends_the_tasks_of_all_submissions(make: Make, scheduler: Scheduler) -> None:
    """A job submitted again while SLURM did not answer has two tasks; the one that runs it is asked to save."""
    batch, executor = make(3)
    running, waiting, failed = batch.jobs()
    executor.submit(batch, batch.jobs(), then=False)
    failed.write_status(replace(failed.status(), state="failed", updated=1.0))
    executor.submit(batch, batch.jobs(), then=False)
    running.write_status(replace(running.status(), state="running", scheduler_id="41_0"))
    scheduler.calls()
    with RunLock(running.folder / JOB_LOCK):
        executor.cancel(batch, [running, waiting, failed])
    assert (running.folder / STOP).read_text() == "cancelled"
    assert scheduler.calls() == ["scancel --quiet 42_0 41_1 42_1 42_2"]


def test_the_shell_that_submits_bends_nothing(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"SLURM_JOB_ID": "9", "SLURM_MEM_PER_NODE": "1", "SBATCH_ARRAY_INX": "0-99", "SQUEUE_PARTITION": "x"}
    for name, value in {**names, "SLURM_CONF": "/etc/x", "SBATCH_ACCOUNT": "ada", "SBATCH_QOS": "slow"}.items():
        monkeypatch.setenv(name, value)
    batch, executor = make(2, qos="fast")
    executor.submit(batch, batch.jobs(), then=False)
    executor.query(batch)
    kept = ["SLURM_BITSTR_LEN=0", "SLURM_CONF=/etc/x"]
    for command in ("sbatch", "squeue"):
        assert (scheduler.folder / f"{command}.env").read_text().split() == kept
    script = (batch.submissions()[0] / "script.sbatch").read_text()
    assert "#SBATCH --account=ada\n" in script and "#SBATCH --qos=fast\n" in script


def test_only_a_submission_needs_the_default_time_limit(
    make: Make, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "90")
    batch, executor = make(1)
    executor.submit(batch, batch.jobs(), then=False)
    assert "#SBATCH --time=01:30:00\n" in (batch.submissions()[0] / "script.sbatch").read_text()
    monkeypatch.setenv("SBATCH_TIMELIMIT", "infinite")
    executor = executor_of(batch)
    with pytest.raises(BatchError, match="SBATCH_TIMELIMIT"):
        executor.check()
    executor.query(batch)
    executor.cancel(batch, batch.jobs())
    assert scheduler.calls()[-1] == "scancel --quiet 41_0"


def test_cancelling_a_copy_does_not_end_the_jobs_of_the_original(
    make: Make, scheduler: Scheduler, tmp_path: Path
) -> None:
    batch, executor = make(2)
    executor.submit(batch, batch.jobs(), then=False)
    copy = Batch.open(shutil.copytree(batch.path, tmp_path / "copy"))
    (tmp_path / "link").symlink_to(batch.path)
    scheduler.calls()
    executor_of(copy).cancel(copy, copy.jobs())
    assert scheduler.calls() == []
    linked = Batch.open(tmp_path / "link")
    executor_of(linked).cancel(linked, linked.jobs())
    assert scheduler.calls() == ["scancel --quiet 41_0 41_1"]


def test_a_thousand_jobs_are_submitted_and_asked_for_by_three_commands(make: Make, scheduler: Scheduler) -> None:
    batch, executor = make(1000)
    jobs = batch.jobs()
    executor.submit(batch, jobs, then=False)
    executor.query(batch)
    assert [call.split()[0] for call in scheduler.calls()] == ["scontrol", "sbatch", "squeue"]
