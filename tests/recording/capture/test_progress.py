from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from marlnb.recording.capture.progress import EpisodeProgress


def test_a_log_keeps_the_first_and_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with EpisodeProgress("recording x", 4, shown=True) as progress:
        for _ in range(4):
            progress.add(1)
    assert capsys.readouterr().err == "recording x: 1/4 episodes, 25%\nrecording x: 4/4 episodes, 100%\n"
    with EpisodeProgress("x.h5", 1, shown=True) as progress:
        progress.add(1)
    assert capsys.readouterr().err == "x.h5: 1/1 episodes, 100%\n"
    with EpisodeProgress("recording x", 4, shown=False) as progress:
        progress.add(4)
    assert capsys.readouterr().err == ""


def test_a_notebook_keeps_the_last_state_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs: list[str] = []

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> object:
        outputs.append(bundle["text/plain"])

        def update(bundle: dict[str, str], *, raw: bool) -> None:
            outputs[-1] = bundle["text/plain"]

        return SimpleNamespace(update=update)

    shell = type("ZMQInteractiveShell", (), {})()
    module = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)  # type: ignore[arg-type]
    with EpisodeProgress("recording x", 3, shown=True) as progress:
        progress.add(1)
        progress.add(2)
    assert outputs == ["recording x: 3/3 episodes, 100%"] and capsys.readouterr() == ("", "")
