"""The end of a job's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.job import failures
from marlnb.batch.job.failures import read_tail


@pytest.mark.parametrize("count", [1, 2, 619, 620, 4000, 5000, 9999])
def test_the_last_lines_are_whole_however_long_they_are(tmp_path: Path, count: int) -> None:
    lines = [f"{number} {'ö' * 50}" for number in range(5000)]
    log = tmp_path / "output.log"
    for end in ("", "\n"):
        log.write_text("\n".join(lines) + end, encoding="utf-8")
        assert read_tail(log, count) == lines[-count:]


def test_a_log_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BLOCK_BYTES", 10)
    monkeypatch.setattr(failures, "MAX_TAIL_BYTES", 20)
    log = tmp_path / "output.log"
    assert read_tail(log, 3) == []
    log.write_text("")
    assert read_tail(log, 3) == []
    log.write_text("x" * 95)
    assert read_tail(log, 3) == ["x" * 20]
    log.write_text("x" * 90 + "\n1\n2\n")
    assert read_tail(log, 3) == ["1", "2"]
