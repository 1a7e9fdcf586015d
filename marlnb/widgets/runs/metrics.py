"""The metrics of a run as curves: one chosen number such as a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w

from marlnb.training.runs.curves import metric_values
from marlnb.training.runs.files import METRICS
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Run
from marlnb.widgets.core.controls import Dropdown
from marlnb.widgets.core.curves import LiveCurves

NOTHING = "(choose)"


class MetricCurves:
    """A choice of the numbers that iterations report (losses, entropies, seconds), and the curve of the chosen one.

    Attributes:
        box: the widget to display.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last_frames = -1  # of the last row that was added
        self.curves = LiveCurves(title="", y_label="")
        self.name = Dropdown(options=[NOTHING], description="draw")
        self.name.observe(self._chosen, "value")
        self.box = w.VBox([self.name, self.curves])

    def add(self, rows: Sequence[Mapping[str, Any]], *, restart: bool = False) -> None:
        """Adds new rows of the run's metrics; `restart`: these are all rows."""
        if restart:
            self.curves.clear()
        names = sorted({name for row in rows[-1:] for name in metric_values(row)})
        if names and len(names) + 1 != len(self.name.options):
            chosen = self.name.value
            self.name.options = [NOTHING, *names]
            self.name.value = chosen if chosen in self.name.options else NOTHING
        self._last_frames = rows[-1].get("frames", self._last_frames) if rows else self._last_frames
        self._draw(rows)

    def _chosen(self, change: Any) -> None:
        self.curves.clear()
        self.curves.title = "" if self.name.value == NOTHING else self.name.value
        if self.name.value != NOTHING:
            rows = read_rows(self._run.path / METRICS)
            self._draw([row for row in rows if row.get("frames", 0) <= self._last_frames])

    def _draw(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.name.value == NOTHING:
            return
        points = [(row["frames"], metric_values(row).get(self.name.value)) for row in rows if "frames" in row]
        known = [(x, y) for x, y in points if y is not None]
        if known:
            self.curves.add({self.name.value: ([x for x, _ in known], [y for _, y in known])})
