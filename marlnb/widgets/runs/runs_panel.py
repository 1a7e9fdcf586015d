"""RunsPanel: several runs in one chart while they train: a line for each, or the average of those of a pattern."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure

from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.widgets.core.controls import Dropdown
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import Snapshot, with_snapshot
from marlnb.widgets.core.style import Message, styled
from marlnb.widgets.runs.followed_runs import RETURN, ChartLines, FollowedRuns
from marlnb.widgets.runs.run_status import STATE_TEXTS

LIVE_S, IDLE_S = 1.0, 3.0  # minimum time between two readings of the files


class RunsPanel:
    """The curves of several runs, wherever they train, with a choice of the metric.

    Attributes:
        widget: what a notebook displays.
        curves: the chart.
        metric: the choice of the metric.
    """

    def __init__(
        self, runs: Sequence[str | os.PathLike[str] | Run], *, references: Mapping[str, float] | None = None
    ) -> None:
        """
        Args:
            runs: run folders, and patterns such as `runs/seed-*`. The runs of a pattern are averaged where their
                settings differ in the seed only, and the same code trains them.
            references: named levels drawn as lines, in units of reward per agent and episode.
        Raises:
            RunError: one is no run, or matches none.
        """
        self._runs = FollowedRuns(runs)
        self._references = dict(references or {})
        self._was_running = False
        self._shown: object = None  # the metric and the lengths of the lines
        self.curves = LiveCurves(title=RETURN, y_label="reward per agent and episode", references=self._references)
        self.metric = Dropdown(options=[RETURN], description="draw")
        self.metric.observe(lambda _: self._poller.now(), "value")
        self._line, self._notes, self._error = Message(), Message(), Message()
        self.widget: w.VBox = styled(
            self.metric, self.curves, self._line, self._notes, self._error, name="marlnb-several-runs"
        )
        self._snapshot = Snapshot(self.widget, lambda: repr(self), self.figure)
        self._poller: Poller[ChartLines] = Poller(self._read, self._show, self._fail)

    def close(self) -> None:
        """Stops reading the files; training runs continue."""
        self._poller.end()

    def catch_up(self) -> None:
        """Shows the current content of the files."""
        self._poller.catch_up()

    def figure(self) -> Figure | None:
        """The chart as a picture; None before the first value."""
        from marlnb.analysis.benchmarking.statistics import Band
        from marlnb.plots.runs.benchmark import sample_efficiency

        bands = {
            name: (x, Band(*(np.asarray(values) for values in (y, *(ends or (y, y))))))
            for name, (x, y, *ends) in self.curves.lines.items()
            if x
        }
        if not bands:
            return None
        metric, references = self.metric.value, self.curves.references
        label = self.curves.y_label or metric
        note = "with several runs: IQM and 95% bootstrap interval over runs"
        axes = sample_efficiency(bands, references=references, y=label, title=metric, note=note)
        return axes.get_figure(root=True)

    def _read(self) -> ChartLines:
        return self._runs.read(self.metric.value)

    def _show(self, chart: ChartLines) -> float:
        """Shows the lines. Returns the time until the next reading."""
        self._error.value = ""
        if chart.metrics and list(self.metric.options) != chart.metrics:
            chosen = self.metric.value
            self.metric.options = chart.metrics
            self.metric.value = chosen if chosen in chart.metrics else chart.metrics[0]
        is_return = self.metric.value.startswith(RETURN)
        self.curves.title = self.metric.value
        self.curves.y_label = "reward per agent and episode" if is_return else ""
        self.curves.references = self._references if is_return else {}
        self.curves.replace(chart.lines)
        counts = Counter(chart.states)
        self._line.show_note(
            ", ".join(f"{n} {STATE_TEXTS.get(state, state).partition(':')[0]}" for state, n in counts.items())
        )
        self._notes.show_note("\n".join(chart.notes))
        is_running = any(state in RUNNING_STATES for state in chart.states)
        shown = self.metric.value, {label: len(line.x) for label, line in chart.lines.items()}
        has_changed, self._shown = shown != self._shown, shown
        self._snapshot.renew_soon(now=self._was_running and not is_running, has_changed=has_changed)
        self._was_running = is_running
        return LIVE_S if is_running else IDLE_S

    def _fail(self, error: Exception) -> None:
        self._error.show_problem(f"the runs cannot be read: {error}. The panel tries again every few seconds.")

    def _ipython_display_(self, **options: Any) -> None:
        self.catch_up()
        self._snapshot.display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_snapshot(self.widget, repr(self), self.figure)

    def __repr__(self) -> str:
        return f"RunsPanel({self._runs.entries!r})"
