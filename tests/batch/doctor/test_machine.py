"""Folders, disks, shells, loggers and routes, against what the machine really has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from marlnb.batch.batch import BATCH, Batch
from marlnb.batch.doctor.check import Finding, checks, examine
from marlnb.batch.doctor.files import count_files, filesystem
from marlnb.batch.doctor.network import has_route_out
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from tests.batch.doctor.notebooks import answers, messages, subject, write

ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def test_a_folder_that_works_is_tried_and_left_clean(tmp_path: Path) -> None:
    findings = answers("folder", subject(tmp_path))
    assert messages("fail", findings) == [] and "locks, renames and private folders work" in messages("ok", findings)[0]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.ipynb", "cwd"]


def test_a_disk_that_is_too_small_for_the_sweep(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    n_jobs = free // 200_000_000 + 50
    findings = answers("space", subject(tmp_path, sweep=Sweep({"seed": tuple(range(n_jobs))}, {})))
    assert "GB needed" in messages("fail", findings)[0]


def test_the_kind_of_file_system_is_what_df_says(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc"), Path("/dev/shm")):
        output = subprocess.run(["stat", "--file-system", "--format=%T", path], capture_output=True, text=True).stdout
        names = {"ext2/ext3": "ext4", "overlayfs": "overlay"}
        assert filesystem(path) == names.get(output.strip(), output.strip())


def test_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "c").touch()
    assert count_files(tmp_path) == 3


def test_routes_are_read_without_sending_anything(tmp_path: Path) -> None:
    four, six = tmp_path / "route", tmp_path / "ipv6_route"
    four.write_text(ROUTES + "eth0 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n")
    six.write_text(f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200 lo\n")
    assert not has_route_out(four, six)  # a network of its own, and IPv6's refusal
    four.write_text(ROUTES + "eth0 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\n")
    assert has_route_out(four, six)
    assert not has_route_out(tmp_path / "none", tmp_path / "none")


def test_temporary_folders_whose_name_is_too_long_for_sockets(tmp_path: Path) -> None:
    profile = Profile(environment={"TMPDIR": "/tmp/" + "x" * 60})
    (problem,) = messages("fail", answers("shell", subject(tmp_path, profile=profile)))
    assert "too long for the kernel's sockets" in problem


def test_an_active_environment_that_is_not_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    for name in ("CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"):  # which may be set where the tests run
        monkeypatch.delenv(name, raising=False)
    (warning,) = messages("warn", answers("shell", subject(tmp_path)))
    assert f"VIRTUAL_ENV is {tmp_path}" in warning


def test_loggers_that_would_call_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    cell = "compose('loggers=[wandb,tensorbord]')"
    online = subject(tmp_path, cell, profile=Profile(offline=False))
    online.__dict__["seen"] = _no_kernel()
    assert "WANDB_MODE=online" in messages("warn", answers("loggers", online))[0]
    assert "unknown logger 'tensorbord'" in messages("fail", answers("loggers", online))[0]
    offline = subject(tmp_path, cell)
    offline.__dict__["seen"] = _no_kernel()
    assert "without a key" in messages("ok", answers("loggers", offline))[0]


def test_a_batch_made_with_other_versions(tmp_path: Path) -> None:
    source = write(tmp_path / "a.ipynb")
    batch = Batch.create(tmp_path / "batch", source, Sweep({}, {}), Profile())
    file = batch.path / BATCH
    examined = subject(tmp_path, existing=(batch.path,))
    assert messages("warn", answers("existing runs", examined)) == []
    made_with = batch.made_with()["marlnb"]
    file.write_text(file.read_text().replace(f'"marlnb": "{made_with}"', '"marlnb": "0.0.9"'))
    (warning,) = messages("warn", answers("existing runs", examined))
    assert f"marlnb 0.0.9, now {made_with}" in warning


def test_a_check_that_raises_is_reported_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: DoctorRequest) -> list[tuple[str, str, str]]:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("marlnb.batch.doctor.check.checks", lambda: {"a": breaks, "internet": checks()["internet"]})
    first, second = examine(subject(tmp_path))
    assert first == Finding("a", "warn", "this check failed: ZeroDivisionError: by zero", first.remedy)
    assert second.name == "internet"


def _no_kernel() -> object:
    from marlnb.batch.doctor.kernel import KernelReport

    return KernelReport("python3", problem="not started in this test")
