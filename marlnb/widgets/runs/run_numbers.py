"""RunNumbers: losses, entropies, seconds: whatever the iterations of a run report, one of it drawn on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w

from marlnb.training.runs.run import METRICS, Run, read_lines
from marlnb.widgets.core.controls import Dropdown
from marlnb.widgets.core.curves import LiveCurves

NOTHING = "(choose)"
OWN = ("frames_per_second", "stepping_s", "acting_s", "learning_s", "length")


class RunNumbers:
    """A number to choose and its curve.

    Attributes:
        box: the widget to show.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known = -1  # frames of the last row that was added
        self.curves = LiveCurves(title="", y_label="")
        self.name = Dropdown(options=[NOTHING], description="draw")
        self.name.observe(self._chosen, "value")
        self.box = w.VBox([self.name, self.curves])

    def add(self, rows: Sequence[Mapping[str, Any]], *, anew: bool = False) -> None:
        """New rows of the run's metrics; anew: they are all that there are."""
        if anew:
            self.curves.clear()
        names = sorted({name for row in rows[-1:] for name in numbers_of(row)})
        if names and len(names) + 1 != len(self.name.options):
            chosen = self.name.value
            self.name.options = [NOTHING, *names]
            self.name.value = chosen if chosen in self.name.options else NOTHING
        self._known = rows[-1]["frames"] if rows else self._known
        self._draw(rows)

    def _chosen(self, change: Any) -> None:
        self.curves.clear()
        self.curves.title = "" if self.name.value == NOTHING else self.name.value
        if self.name.value != NOTHING:
            self._draw([row for row in read_lines(self._run.path / METRICS) if row["frames"] <= self._known])

    def _draw(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.name.value == NOTHING:
            return
        found = [(row["frames"], numbers_of(row).get(self.name.value)) for row in rows]
        known = [(x, y) for x, y in found if y is not None]
        if known:
            self.curves.add({self.name.value: ([x for x, _ in known], [y for _, y in known])})


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one iteration by path, as `listener/entropy`."""
    learning = {
        f"{group}/{name}": value
        for group, values in row.get("learning", {}).items()
        for name, value in values.items()
        if isinstance(value, int | float)
    }
    return {**learning, **{name: row[name] for name in OWN if isinstance(row.get(name), int | float)}}
