"""Jobs get settings for work without internet; what the user set otherwise takes precedence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import Job
from marlnb.batch.offline import OFFLINE_VARIABLES, job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep


@pytest.fixture(autouse=True)
def _a_shell_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_profile_and_the_shell_stand_before_the_offline_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_environment(Profile()) == dict(OFFLINE_VARIABLES)
    assert job_environment(Profile(offline=False, environment={"A": "b"})) == {"A": "b"}
    assert job_environment(Profile(environment={"WANDB_MODE": "disabled"}))["WANDB_MODE"] == "disabled"
    monkeypatch.setenv("WANDB_MODE", "online")
    variables = job_environment(Profile())
    assert "WANDB_MODE" not in variables and variables["HF_HUB_OFFLINE"] == "1"


def test_job_files_carry_them(tmp_path: Path) -> None:
    source = tmp_path / "a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), source)
    batch = Batch.create(tmp_path / "batch", source, Sweep({}, {}), Profile(), then=source)
    assert Job.open(batch.jobs()[0].folder).environment["WANDB_MODE"] == "offline"
    assert batch.report_job().environment["UV_OFFLINE"] == "1"


WATCH = """
import json, os, socket, sys

def _watch(event, arguments):
    if event == "socket.connect" or event.startswith(("socket.sendto", "socket.sendmsg")):
        if arguments[0].family != socket.AF_UNIX:
            _tell(event, arguments[1])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        _tell(event, arguments[0])

def _tell(event, address):
    host = address[0] if isinstance(address, tuple) and address else address
    if host not in (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"):
        with open(os.environ["VIOLATIONS"], "a") as file:
            file.write(json.dumps([event, str(address), sys.argv[:2]]) + "\\n")

sys.addaudithook(_watch)
with open(os.environ["VIOLATIONS"] + ".watched", "a") as file:
    file.write(" ".join(sys.orig_argv) + "\\n")
"""
TRAINING = """
import marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=25", "threads=1",
    "frames=200", "algorithm.epochs=1", "algorithm.minibatch_frames=50", "loggers=[wandb,tensorboard]",
)
trained = mnb.train(experiment, run=run, resume=True, progress=False)
recording = mnb.record(trained, episodes=4, sites="*/actor/*", progress=False)
"""
SEEN_FROM_OUTSIDE = re.compile(r"sa_family=AF_INET6?, sin6?_port=htons\((\d+)\).*?\"([0-9a-f.:]+)\"")


def _job(folder: Path, *cells: str) -> Job:
    parameters = nbformat.v4.new_code_cell('run = "runs/x"', metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, folder / "a.ipynb")
    (job,) = Batch.create(folder / "batch", folder / "a.ipynb", Sweep({}, {}), Profile()).jobs()
    return job


def _environment(folder: Path) -> dict[str, str]:
    """Without proxies, which would make every address a local one; every Python of the job tells what it asks for."""
    (folder / "watch").mkdir()
    (folder / "watch" / "sitecustomize.py").write_text(WATCH)
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    watch = {"PYTHONPATH": str(folder / "watch"), "VIOLATIONS": str(folder / "asked.jsonl")}
    return {**kept, **watch, "OMP_NUM_THREADS": "1"}


def test_no_step_of_a_job_asks_for_another_machine(tmp_path: Path) -> None:
    """Kernel, training with loggers, recording and the HTML copy; strace sees what is not Python, where it can run."""
    job, environment = _job(tmp_path, TRAINING), _environment(tmp_path)
    command = [sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)]
    trace = tmp_path / "trace"
    if _can_trace():
        calls = "trace=connect,sendto,sendmsg,sendmmsg"
        command = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", calls, "-o", str(trace), *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr + job.log.read_text()
    assert (job.folder / "notebook.html").exists() and list(job.folder.glob("wandb/offline-run-*"))
    watched = (tmp_path / "asked.jsonl.watched").read_text()
    assert "marlnb.batch.job.run_job" in watched and "ipykernel_launcher" in watched
    violations = tmp_path / "asked.jsonl"
    assert not violations.exists(), violations.read_text()
    if trace.exists():
        addresses = {address for _, address in SEEN_FROM_OUTSIDE.findall(trace.read_text())}
        assert all(address.startswith("127.") or address == "::1" for address in addresses), addresses


def test_both_watches_see_a_step_that_does(tmp_path: Path) -> None:
    """No machine has the address 192.0.2.1 (RFC 5737); connecting a datagram socket sends nothing."""
    environment, trace = _environment(tmp_path), tmp_path / "trace"
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    command = [sys.executable, "-c", code]
    if _can_trace():
        command = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o", str(trace), *command]
    subprocess.run(command, env=environment, check=False, capture_output=True)
    assert "192.0.2.1" in (tmp_path / "asked.jsonl").read_text()
    if trace.exists():
        assert [address for _, address in SEEN_FROM_OUTSIDE.findall(trace.read_text())] == ["192.0.2.1"]


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "true"], capture_output=True
        ).returncode
        == 0
    )
