"""The worked example of a run tab: one entry in TABS adds it to the panel of every run."""

from __future__ import annotations

import pytest

from marlnb.training.runs.run import Run
from marlnb.widgets.runs.run_panel import TABS, RunPanel
from tests.examples.run_tab import SpeedTab
from tests.widgets.trained import original, run, until  # noqa: F401


def test_a_new_tab_is_one_entry(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setitem(TABS, "Speed", SpeedTab)
    panel = RunPanel(run)
    assert panel.tabs.titles == ("Numbers and log", "Checkpoints", "Recordings", "Speed")
    assert panel.opened == {}  # a tab is made when it is opened
    panel.tabs.selected_index = 3
    tab = panel.opened["Speed"]
    assert isinstance(tab, SpeedTab) and panel._pages["Speed"].children == (tab.widget,)
    until(lambda: tab.rows)
    mean = float(str(tab.rows[0][1]).replace(",", ""))
    table = run.metrics()
    first = table[table["frames"] < table["frames"].iloc[-1] / 4]["frames_per_second"]
    assert mean == pytest.approx(first.mean(), abs=1)
    panel.tabs.selected_index = 0
    panel.tabs.selected_index = 3
    assert panel.opened["Speed"] is tab  # opened again: refreshed, not made again
    panel.close()
