"""The Ray executor before a dashboard that answers as a real Ray did; `make ray-test` drives a real one."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.cancel import cancel
from marlnb.batch.doctor.check import checks as checks_of_doctor
from marlnb.batch.doctor.check import examine
from marlnb.batch.executor import NoSchedulerError, executor_of
from marlnb.batch.executors.ray import FORGOTTEN, RayExecutor
from marlnb.batch.job.job import JOB_LOCK, UNKNOWN, JobInfo, JobStatus
from marlnb.batch.profile import Profile, find_profile
from marlnb.batch.ray.submission_record import submitted_jobs
from marlnb.batch.submit import plan_submission
from marlnb.errors import BatchError
from marlnb.lab.queue import Queue
from marlnb.training.runs.files import STOP
from marlnb.training.runs.lock import RunLock
from tests.batch.batches import Maker, submit
from tests.batch.doctor.notebooks import subject
from tests.batch.ray.dashboard import Dashboard
from tests.batch.ray.dashboard import dashboard as dashboard

WAITS = "It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available"


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)  # nothing starts here, so nothing has to be ended


@pytest.fixture
def batch(make: Maker, dashboard: Dashboard) -> Batch:
    return make("pass", n=range(3), executor="ray", cores=2, memory_gb=1.5, environment={"WANDB_API_KEY": "s3cret"})


def ids(batch: Batch) -> dict[str, str]:
    return {name: job.id for name, job in submitted_jobs(batch).items()}


def states(batch: Batch) -> dict[str, tuple[str, str]]:
    return {name: (info.state, info.reason) for name, info in executor_of(batch).query(batch).items()}


def test_the_profile_of_marlnb() -> None:
    profile = find_profile("ray")
    assert (profile.executor, profile.offline) == ("ray", False)


@pytest.mark.parametrize("key", RayExecutor.unsupported)
def test_what_ray_does_not_have_is_an_error_before_it_is_called(key: str, make: Maker, dashboard: Dashboard) -> None:
    values: dict[str, Any] = {"at_once": 2, "time_limit": "1:00:00", "accounting": True}
    values |= dict.fromkeys(("options", "modules", "setup"), ("x",))
    batch = make("pass", executor="ray", **{key: values.get(key, "x")})
    executor = executor_of(batch)
    for call in (
        executor.check,
        lambda: executor.preview(batch, batch.jobs(), then=False),
        lambda: executor.submit(batch, batch.jobs(), then=False),
    ):
        with pytest.raises(BatchError, match=f"Ray has no {key}; leave it out. Keys for Ray: executor, cores, gpus"):
            call()
    assert dashboard.requests == [] and batch.submissions() == []


def test_the_preview_is_what_is_submitted(batch: Batch, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARLNB_PROFILES", "it's $(here)")
    monkeypatch.setenv("SECRET", "s3cret")
    preview = executor_of(batch).preview(batch, batch.jobs(), then=False)
    assert dashboard.requests == []  # a dry run needs no cluster
    submit(batch)
    head, _, commands = preview.partition("# and the entrypoint\n")
    assert head.startswith(f"# 3 jobs of Ray at {dashboard.address}, each submitted with\n")
    options = json.loads(head.partition("\n")[2])
    assert [posted["entrypoint"] for posted in dashboard.posted] == commands.splitlines()
    assert [posted.pop("submission_id") for posted in dashboard.posted] == list(ids(batch).values())
    assert all({name: posted[name] for name in options} == options for posted in dashboard.posted)
    assert all(posted.keys() == {"entrypoint", *options} for posted in dashboard.posted)
    assert options["entrypoint_num_cpus"] == 2 and options["entrypoint_memory"] == 1.5 * 1024**3
    variables = options["runtime_env"]["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "2" and variables["MARLNB_PROFILES"] == "it's $(here)"
    assert variables["SLURM_JOB_ID"] == ""
    words = [sys.executable, "-m", "marlnb.batch.job.run_job", str(batch.job("n=0").folder)]
    assert shlex.split(commands.splitlines()[0]) == words
    # Ray's dashboard shows what it received; a job reads the profile's variables from its own file
    assert "s3cret" not in json.dumps(dashboard.posted) and batch.job("n=0").environment["WANDB_API_KEY"] == "s3cret"
    assert "n=0" not in json.dumps(variables)


def test_offline_variables_follow_the_profile(make: Maker, dashboard: Dashboard) -> None:
    for offline in (True, False):
        batch = make("pass", executor="ray", offline=offline)
        assert ("HF_HUB_OFFLINE" in executor_of(batch).preview(batch, batch.jobs(), then=False)) == offline


def test_a_dry_run_without_a_cluster_says_so(
    batch: Batch, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    plan = plan_submission(batch.path, {}, dry_run=True)
    assert "this machine has no ray: RAY_API_SERVER_ADDRESS is not set" in plan.notes
    assert "# 3 jobs of Ray at the address of RAY_API_SERVER_ADDRESS" in executor_of(batch).preview(
        batch, plan.submits, then=False
    )
    with pytest.raises(NoSchedulerError, match="RAY_API_SERVER_ADDRESS is not set"):
        plan_submission(batch.path, {})
    with pytest.raises(NoSchedulerError):
        submit(batch)
    assert batch.submissions() == []


def test_states_and_reasons_by_one_call_for_all_batches(batch: Batch, make: Maker, dashboard: Dashboard) -> None:
    other = make("pass", executor="ray")
    submit(batch)
    submit(other)
    for id, like in zip(ids(batch).values(), ("running", "waiting", "missing"), strict=True):
        dashboard.job(id, like)
    dashboard.job(ids(other)["n=0"], "coloured")
    dashboard.requests.clear()
    first, second = RayExecutor.query_all([batch, other])
    assert dashboard.requests == ["GET /api/jobs/"]
    assert first == {
        "n=0": JobInfo("running", "", ids(batch)["n=0"]),
        "n=1": JobInfo("queued", WAITS, ids(batch)["n=1"]),
        "n=2": JobInfo("ended", "exit code 127: /bin/sh: 1: /missing/python: not found", ids(batch)["n=2"]),
    }
    assert second == {"n=0": JobInfo("ended", "exit code 3: ValueError: red bell", ids(other)["n=0"])}
    for job in [*batch.jobs(), *other.jobs()]:
        job.write_status(JobStatus("complete"))
    assert RayExecutor.query_all([batch, other])[1] == {"n=0": JobInfo("ended", "", ids(other)["n=0"])}
    assert dashboard.requests == ["GET /api/jobs/"]  # none: all have ended


def test_the_queue_shows_them_and_calls_once(batch: Batch, dashboard: Dashboard) -> None:
    submit(batch)
    dashboard.job(ids(batch)["n=1"], "waiting")
    dashboard.requests.clear()
    queue, folders = Queue(), [str(batch.path.parent)]
    for _ in range(3):
        (shown,) = queue.read(folders)["batches"]
        assert queue.read_job(str(batch.path), "n=1")["job"]["reason"] == WAITS
    assert dashboard.requests == ["GET /api/jobs/"]
    jobs = {job["name"]: job for job in shown["jobs"]}
    assert (jobs["n=1"]["state"], jobs["n=1"]["id"]) == ("queued", ids(batch)["n=1"])
    assert jobs["n=0"]["reason"] == FORGOTTEN  # the cluster was started again
    assert queue.requeue(str(batch.path), ["n=0"]) == "1 job submitted"
    dashboard.server.shutdown()
    dashboard.server.server_close()
    answer = queue.read(folders)
    assert "the ray executor did not answer: no Ray cluster answers" in answer["problems"][0]
    assert len(answer["batches"]) == 1


def test_a_refused_job_is_named_and_the_accepted_ones_are_known(batch: Batch, dashboard: Dashboard) -> None:
    dashboard.answers["POST /api/jobs/"] = (400, "TypeError: no")
    with pytest.raises(BatchError, match=r"refused POST /api/jobs/: TypeError: no; 0 of 3 jobs submitted"):
        submit(batch)
    assert states(batch) == dict.fromkeys(("n=0", "n=1", "n=2"), ("ended", FORGOTTEN))
    assert "Ray refused job n=0" in (batch.path / "events.log").read_text()


def test_cancel_asks_running_jobs_first_and_ends_the_others(batch: Batch, dashboard: Dashboard) -> None:
    submit(batch)
    running, waiting = ids(batch)["n=0"], ids(batch)["n=1"]
    dashboard.job(running, "running")
    dashboard.job(waiting, "waiting")
    for id in (running, waiting):
        dashboard.answers[f"POST /api/jobs/{id}/stop"] = {"stopped": True}
    dashboard.requests.clear()
    with RunLock(batch.job("n=0").folder / JOB_LOCK):
        batch.job("n=0").write_status(JobStatus("running"))
        assert cancel(batch) == {"n=0": "saves and ends", "n=1": "will not start", "n=2": "will not start"}
        assert (batch.job("n=0").folder / STOP).exists()
        assert dashboard.requests == ["GET /api/jobs/", f"POST /api/jobs/{waiting}/stop"]  # n=2 is not known to Ray
        assert [batch.job(name).status().state for name in ("n=1", "n=2")] == ["stopped", "stopped"]
        cancel(batch, ["n=0"])
        assert dashboard.requests[-1] == f"POST /api/jobs/{running}/stop"


def test_cancel_ends_the_jobs_of_all_submissions(batch: Batch, dashboard: Dashboard) -> None:
    """A job submitted again while Ray did not answer is two Ray jobs; the one that runs it is asked to save."""
    submit(batch)
    first = ids(batch)
    submit(batch)
    second = ids(batch)
    for id, like in ((first["n=0"], "running"), (second["n=0"], "waiting")):
        dashboard.job(id, like)
    for id in (first["n=1"], second["n=1"]):
        dashboard.job(id, "waiting")
    to_stop = [first["n=1"], second["n=1"], second["n=0"]]
    dashboard.answers.update({f"POST /api/jobs/{id}/stop": {"stopped": True} for id in to_stop})
    dashboard.requests.clear()
    with RunLock(batch.job("n=0").folder / JOB_LOCK):
        cancel(batch)
    assert dashboard.requests == ["GET /api/jobs/", *(f"POST /api/jobs/{id}/stop" for id in to_stop)]


def test_a_cancellation_that_ray_did_not_answer_can_be_repeated(batch: Batch, dashboard: Dashboard) -> None:
    submit(batch)
    waiting = ids(batch)["n=1"]
    dashboard.job(waiting, "waiting")
    dashboard.answers[f"POST /api/jobs/{waiting}/stop"] = (500, "no")
    with pytest.raises(BatchError):
        cancel(batch)
    assert {job.status().state for job in batch.jobs()} == {"waiting"}
    dashboard.answers[f"POST /api/jobs/{waiting}/stop"] = {"stopped": True}
    cancel(batch)
    assert {job.status().state for job in batch.jobs()} == {"stopped"}
    assert dashboard.requests.count(f"POST /api/jobs/{waiting}/stop") == 2


def test_an_address_in_a_batchs_files_is_never_called(batch: Batch, make: Maker, dashboard: Dashboard) -> None:
    submit(batch)
    elsewhere = Dashboard()
    record = batch.submissions()[0] / "ray.json"
    for address in (elsewhere.address, "file:///etc/passwd", "http://169.254.169.254"):
        record.write_text(json.dumps({"address": address, "ids": ids(batch)}))
        good = make("pass", executor="ray")
        submit(good)
        dashboard.job(ids(good)["n=0"], "running")
        bad, answer = RayExecutor.query_all([batch, good])
        assert f"were submitted to Ray at '{address}', and RAY_API_SERVER_ADDRESS names" in str(bad)
        assert answer == {"n=0": JobInfo("running", "", ids(good)["n=0"])}
        dashboard.requests.clear()
        with pytest.raises(BatchError, match="set it to that address, or submit the jobs again"):
            cancel(batch)
        assert dashboard.requests == elsewhere.requests == []
        assert {status.state for status in batch.statuses().values()} == {"waiting"}
    submit(batch)  # a cluster that is gone does not keep jobs from a new one
    assert states(batch)["n=0"] == ("ended", FORGOTTEN)
    elsewhere.server.shutdown()
    elsewhere.server.server_close()


def test_a_copied_batch_does_not_end_the_jobs_of_the_first(batch: Batch, tmp_path: Path, dashboard: Dashboard) -> None:
    submit(batch)
    id = ids(batch)["n=0"]
    dashboard.job(id, "running")
    shutil.copytree(batch.path, tmp_path / "copy")
    copy = Batch.open(tmp_path / "copy")
    assert executor_of(copy).query(copy) == dict.fromkeys(("n=0", "n=1", "n=2"), UNKNOWN)
    dashboard.requests.clear()
    cancel(copy)
    assert dashboard.requests == []
    (tmp_path / "link").symlink_to(batch.path)
    assert ids(Batch.open(tmp_path / "link")) == ids(batch)
    record = batch.submissions()[0] / "ray.json"
    record.write_text(json.dumps({"address": dashboard.address, "ids": {"n=0": f"{id}/../../x", "n=1": id, "n=9": id}}))
    assert submitted_jobs(batch) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"address": 7}', '{"address": "x", "ids": ["a"]}', '{"ids": {}}'])
def test_a_damaged_record_is_an_error_of_its_batch(text: str, batch: Batch, make: Maker, dashboard: Dashboard) -> None:
    other = make("pass", executor="ray")
    submit(batch)
    submit(other)
    dashboard.job(ids(other)["n=0"], "running")
    (batch.submissions()[0] / "ray.json").write_text(text)
    bad, good = RayExecutor.query_all([batch, other])
    assert isinstance(bad, BatchError) and "cannot be read" in str(bad)
    assert good == {"n=0": JobInfo("running", "", ids(other)["n=0"])}


def examined(tmp_path: Path, **keys: Any) -> tuple[str, str]:
    """Level and text of what the doctor says of the executor."""
    checks = {"executor": checks_of_doctor()["executor"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marlnb.batch.doctor.check.checks", lambda: checks)
        (finding,) = examine(subject(tmp_path, profile=Profile(executor="ray", **keys)))
    return finding.level, finding.finding


def test_the_doctor_says_what_it_finds(tmp_path: Path, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"state": "ALIVE", "resources_total": {"CPU": 2.0, "memory": 4 * 1024.0**3}}]
    dashboard.answers["GET /api/v0/nodes"] = {"data": {"result": {"result": nodes}}}
    room = "its largest node has 2 cores, 0 GPUs and 4.0 GB"
    assert examined(tmp_path, cores=2, memory_gb=4) == ("ok", f"Ray 2.60.0 answers at {dashboard.address}; {room}")
    at = f"Ray at {dashboard.address}"
    too_many = "cores is 4, and no node has more than 2: jobs would not start"
    assert examined(tmp_path, cores=4) == ("fail", f"{at}: {too_many}")
    assert "gpus is 1" in examined(tmp_path, gpus=1)[1] and "memory_gb is 5" in examined(tmp_path, memory_gb=5)[1]
    level, text = examined(tmp_path, partition="gpu")
    assert level == "fail" and "Ray has no partition" in text
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    level, text = examined(tmp_path)
    assert level == "fail" and "RAY_API_SERVER_ADDRESS is not set" in text


def test_a_batch_of_before_with_another_profile(batch: Batch, dashboard: Dashboard) -> None:
    submit(batch)
    dashboard.job(ids(batch)["n=0"], "waiting")
    with pytest.raises(BatchError, match="the ray executor still has 1 job"):
        plan_submission(batch.path, {}, on="local")


def test_a_report_that_was_not_submitted_is_cancelled_too(make: Maker, dashboard: Dashboard) -> None:
    batch = make("pass", executor="ray", then="pass")
    submit(batch, then=True)
    dashboard.requests.clear()
    assert cancel(batch) == {"n=0": "will not start", "report": "will not start"}
    assert batch.report_job().status().state == "stopped" and dashboard.requests == ["GET /api/jobs/"]
    assert "the report is submitted by `marlnb watch" in (batch.path / "events.log").read_text()
