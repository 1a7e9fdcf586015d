"""Progress of analyses: silent below two seconds, then the share, the rate and the time left."""

from __future__ import annotations

import pytest

from marlnb.analysis import progress
from marlnb.analysis.progress import AnalysisProgress


def test_progress_is_shown_after_two_seconds_with_rate_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with AnalysisProgress("decoding goal", "scores", 6) as shown:
        now[0] += 1
        shown.add()
        assert capsys.readouterr().err == ""
        now[0] += 3
        shown.expect(2)
        shown.add()
        assert capsys.readouterr().err == "decoding goal:  25%  2/8 scores  0.5/s  0:12 left\n"
    assert capsys.readouterr().err == "decoding goal:  25%  2/8 scores  0.5/s  done\n"
    with AnalysisProgress("decoding goal", "scores", 6, shown=False) as silent:
        now[0] += 100
        silent.add(6)
    assert capsys.readouterr().err == ""
