"""A job whose log cannot be written says why where it was started."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batch.jobs import make


def _no_folder(log: Path) -> None:
    log.mkdir()


def _no_bytes(log: Path) -> None:
    pass


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    ("prepare", "in_child", "message"),
    [
        (_no_folder, None, "DiskError: {}/output.log cannot be written: it is a folder"),
        (_no_bytes, _limit_files, "BatchError: the job's folder {} cannot be written: the disk "),  # nor can its log
    ],
)
def test_a_job_whose_log_cannot_be_written_says_why_on_stderr(
    tmp_path: Path, prepare: Callable[[Path], None], in_child: Callable[[], None] | None, message: str
) -> None:
    job = make(tmp_path / "job", "print(n)")
    prepare(job.log)
    words = [sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)]
    done = subprocess.run(words, preexec_fn=in_child, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and done.stderr.startswith(message.format(job.folder)), done.stderr
    assert len(done.stderr.splitlines()) == 1 and job.status().state == "waiting"
