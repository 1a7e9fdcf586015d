"""Another Unix user on the same machine and the same disk sees nothing of a batch: not its files, not its kernels."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.training.runs.files import STOP
from tests.cluster import notebooks
from tests.cluster.hub.trespass import trespass
from tests.cluster.processes import end, until


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may enter and read, as on a shared disk; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="marlnb-shared-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(300)
def test_other_users_can_neither_read_a_batch_nor_reach_its_kernels(shared: Path) -> None:
    source = notebooks.write(shared / "training.ipynb", notebooks.TRAINING)
    batch = Batch.create(shared / "batch", source, Sweep({}, {"iterations": 100_000}), Profile())
    (job,) = batch.jobs()
    submission = batch.create_submission([job], then=False)
    (shared / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)],
        env={**os.environ, "TMPDIR": str(shared / "tmp")},
        start_new_session=True,
    )
    try:
        until("it trains", lambda: (job.folder / "checkpoints" / "20").exists(), timeout_s=200)
        paths = [path for path in (*(shared / "tmp").rglob("*"), *batch.path.rglob("*")) if "." not in path.name[:1]]
        sockets = [f"connect {path}" for path in paths if stat.S_ISSOCK(path.lstat().st_mode)]
        assert len(sockets) >= 5
        files = [str(path) for path in paths if path.is_file() and not path.match("checkpoints/*/*")]
        names = {Path(file).name for file in files}
        assert {"output.log", "job.json", "metrics.jsonl", "status.json", "batch.json", "jobs.json"} <= names
        folders = [str(path) for path in (batch.path, job.folder, job.folder / "checkpoints", submission)]
        assert trespass([*sockets, *files, *folders]) == []
        # only the run's own permissions were in the way
        assert trespass([str(shared), str(source)]) == [str(shared), str(source)]
        for folder in (batch.path, job.folder, submission, *(shared / "tmp").glob("marlnb-*")):
            assert folder.stat().st_mode & 0o777 == 0o700, folder
        # its owner can reach all of that: the question was put rightly
        assert len(trespass([*sockets, *folders], user=os.getuid())) == len(sockets) + len(folders)
        (job.folder / STOP).touch()
        assert process.wait(timeout=100) == 130
    finally:
        end([process.pid])
        process.wait()
