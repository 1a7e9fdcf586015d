"""The picture that a notebook keeps of a panel: it stays when there is none any more, or a file is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from ipywidgets import VBox
from matplotlib.figure import Figure
from traitlets.config import Config

from marlnb.errors import RunError
from marlnb.widgets.core.background import wait_for_requests
from marlnb.widgets.core.snapshot import Snapshot
from marlnb.widgets.runs.attach import attach
from tests.lab.run_folders import write_run
from tests.widgets.trained import text_of, until

PNG = "image/png"


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # another one than this is a warning of IPython
    InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    yield
    InteractiveShell.clear_instance()


def _kept(snapshot: Snapshot) -> dict[str, str]:
    """What the notebook keeps."""
    wait_for_requests()
    assert snapshot._persistent is not None
    return dict(snapshot._persistent._latest)


def _failing() -> None:
    raise ValueError("not drawn")


def test_the_first_picture_does_not_wait_for_long_because_imports_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, figures = 0.0, iter((None, Figure()))

    def clock() -> float:  # each drawing takes a second
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr("marlnb.widgets.core.snapshot.time", SimpleNamespace(monotonic=clock))
    snapshot = Snapshot(VBox(), lambda: "", lambda: next(figures))
    assert PNG not in snapshot._bundle() and snapshot._wait_s == 30
    assert PNG in snapshot._bundle() and snapshot._wait_s == 100


def test_the_picture_stays_after_the_folder_was_removed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    panel = attach(run)
    try:
        panel.catch_up()
        panel._ipython_display_()
        (snapshot,) = panel.snapshots
        first = _kept(snapshot)
        assert PNG in first
        snapshot._wait_s = 0.0
        drawn_at = snapshot._drawn_at
        panel.catch_up()
        wait_for_requests()
        assert snapshot._drawn_at == drawn_at  # nothing has changed
        shutil.rmtree(run)
        panel.catch_up()
        assert _kept(snapshot) == first and snapshot._drawn_at > drawn_at
        snapshot._figure = _failing
        snapshot.renew_soon(now=True)
        assert _kept(snapshot) == first
    finally:
        panel.close()


def test_a_damaged_line_is_shown_by_the_panel_and_displaying_it_is_no_error(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run") / "metrics.jsonl"
    panel = attach(tmp_path / "run")
    try:
        panel.catch_up()
        with file.open("a") as opened:
            opened.write("{damaged\n")
        panel._ipython_display_()
        assert PNG not in _kept(panel.snapshots[0]) and PNG not in panel._repr_mimebundle_()
        with pytest.raises(RunError, match=f"{file}, line 51, is damaged: .*; delete this line"):
            panel.catch_up()
        until(lambda: f"{file}, line 51, is damaged" in text_of(panel._line), 30)
    finally:
        panel.close()
