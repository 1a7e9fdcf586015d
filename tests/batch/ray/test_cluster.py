"""What is asked of Ray's API, and how its answers are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.executor import NoSchedulerError
from marlnb.batch.job.job import JobInfo
from marlnb.batch.ray.cluster import MAX_TEXT_LENGTH, RayCluster, read_jobs, read_token
from marlnb.errors import BatchError
from tests.batch.ray.dashboard import TIMEOUT, Dashboard, captured
from tests.batch.ray.dashboard import dashboard as dashboard


def test_each_state_of_a_real_ray() -> None:
    waits = "It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available"
    assert {name: (info.state, info.reason) for name, info in read_jobs(captured()).items()} == {
        "waiting": ("queued", waits),
        "running": ("running", ""),
        "complete": ("ended", ""),
        "stopped": ("ended", "CANCELLED in Ray"),
        "killed": ("ended", "signal 9"),
        "quiet": ("ended", "exit code 75"),
        "missing": ("ended", "exit code 127: /bin/sh: 1: /missing/python: not found"),
        "coloured": ("ended", "exit code 3: ValueError: red bell"),
        "timeout": ("ended", TIMEOUT),
    }


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"status": "FAILED", "message": "\x1b]0;title\x07" + "x" * 9999}, ("ended", "]0;title" + "x" * 291 + "…")),
        ({"status": "FAILED", "message": None}, ("ended", "FAILED")),
        ({"status": "FAILED", "message": "a\nb\u202e\r\x00c\n", "driver_exit_code": 1}, ("ended", "exit code 1: c")),
        ({"status": "FAILED", "message": {"<b>": 1}}, ("ended", "{'<b>': 1}")),
        ({"status": "RECOVERING\n", "message": "x"}, ("queued", "RECOVERING")),
    ],
)
def test_hostile_text_becomes_one_short_line(job: dict[str, Any], expected: tuple[str, str]) -> None:
    (info,) = read_jobs([{"submission_id": "a", **job}]).values()
    assert (info.state, info.reason) == expected and len(info.reason) <= MAX_TEXT_LENGTH


def test_jobs_without_an_id_are_left_out_and_other_answers_are_an_error() -> None:
    driver = {"type": "DRIVER", "job_id": "01000000", "submission_id": None, "status": "RUNNING"}
    assert read_jobs([driver, {"submission_id": "a", "status": "RUNNING"}]) == {"a": JobInfo("running", "", "a")}
    for answer in (None, 7, ["text"], [{"submission_id": "a"}], {"detail": "no"}):
        with pytest.raises(BatchError, match="something else than a list of its jobs"):
            read_jobs(answer)


def test_the_address_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    for value in ("", "auto", "10.0.0.1:6379", "ray://head:10001", "file:///etc/passwd"):
        monkeypatch.setenv("RAY_ADDRESS", value)
        with pytest.raises(NoSchedulerError, match="RAY_API_SERVER_ADDRESS is not set"):
            RayCluster.find()
    monkeypatch.setenv("RAY_ADDRESS", "https://head:8265/")
    assert RayCluster.find().address == "https://head:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://user:secret@head:8265")
    with pytest.raises(BatchError, match="name or password") as error:
        RayCluster.find()
    assert "secret" not in str(error.value)


def test_a_cluster_that_does_not_answer(dashboard: Dashboard) -> None:
    dashboard.answers["GET /api/version"] = (200, "<html>")
    with pytest.raises(NoSchedulerError, match="no Ray cluster answers at http"):
        RayCluster.find().version()
    with pytest.raises(NoSchedulerError, match="refused; start one with `ray start --head`"):
        RayCluster("http://127.0.0.1:1").version()
    with pytest.raises(NoSchedulerError, match="no Ray cluster answers at http"):
        RayCluster("http://127.0.0.1:x1").version()


def test_a_refusal_has_the_end_of_rays_traceback(dashboard: Dashboard) -> None:
    text = 'Traceback (most recent call last):\n  File "x"\nValueError: \x1b[31mJob a already exists.\n.\n'
    dashboard.answers["POST /api/jobs/"] = (500, text)
    with pytest.raises(BatchError, match=r"refused POST /api/jobs/: ValueError: Job a already exists\.$"):
        RayCluster.find().submit({})


def test_the_token_is_sent_and_never_shown(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    RayCluster.find().version()
    assert "Authorization" not in dashboard.headers
    (tmp_path / "token").write_text("of-a-file\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert read_token() == "of-a-file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret")
    RayCluster.find().version()
    assert dashboard.headers["Authorization"] == "Bearer s3cret"
    dashboard.answers["GET /api/version"] = (401, "Unauthorized: s3cret")
    with pytest.raises(BatchError, match="asks for a valid token") as error:
        RayCluster.find().version()
    assert "s3cret" not in str(error.value)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret\nX-Other: 1")
    with pytest.raises(BatchError, match="not one line of ASCII") as error:
        RayCluster.find().version()
    assert "s3cret" not in str(error.value)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert read_token() == ""


def test_a_redirect_does_not_take_the_token_elsewhere(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret")
    dashboard.answers["GET /api/version"] = (302, f"{dashboard.address}/elsewhere")
    with pytest.raises(BatchError, match="refused GET /api/version"):
        RayCluster.find().version()
    assert dashboard.requests == ["GET /api/version"]


def test_the_largest_node(dashboard: Dashboard) -> None:
    nodes = [
        {"state": "ALIVE", "resources_total": {"CPU": 2.0, "memory": 4 * 1024.0**3}},
        {"state": "ALIVE", "resources_total": {"CPU": 1.0, "GPU": 1.0}},
        {"state": "DEAD", "resources_total": {"CPU": 64.0}},
    ]
    dashboard.answers["GET /api/v0/nodes"] = {"data": {"result": {"result": nodes}}}
    assert RayCluster.find().largest_node() == {"CPU": 2.0, "GPU": 1.0, "memory": 4.0}
    dashboard.answers["GET /api/v0/nodes"] = json.loads("[]")
    with pytest.raises(BatchError, match="something else than its nodes"):
        RayCluster.find().largest_node()
