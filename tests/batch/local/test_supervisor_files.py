"""The files of a supervisor, as a lost node leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.executor import executor_of
from marlnb.batch.local.supervisor_files import ENTRIES, LOCK, JobEntry, read_entries, write_entries
from marlnb.batch.retries import count_restarts
from marlnb.errors import RunError
from tests.batch.batches import Maker


@pytest.mark.parametrize("content", ["", '{"n=0": {"sta', "[]", '{"n=0": {"state": 1}}'])
def test_jobs_of_a_damaged_file_count_as_ended(tmp_path: Path, content: str) -> None:
    batch = Maker(tmp_path)("")
    submission = batch.create_submission(batch.jobs(), then=False)
    (submission / LOCK).touch()
    write_entries(submission, {"n=0": JobEntry("running", "", 7)})
    assert read_entries(submission) == {"n=0": JobEntry("running", "", 7)}
    (submission / ENTRIES).write_text(content)
    assert read_entries(submission) == {} and not count_restarts(batch)["n=0"]
    info = executor_of(batch).query(batch)["n=0"]
    assert info.state == "ended" and "its supervisor was killed" in info.reason


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ENTRIES).mkdir()
    with pytest.raises(RunError, match=f"{ENTRIES} cannot be read"):
        read_entries(tmp_path)
