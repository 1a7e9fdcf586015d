"""LiveCurves: lines that grow while a run trains; the browser receives only the new points."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anywidget
import traitlets

from marlnb.widgets.core.bundles import script, style

MAX_POINTS = 2000  # of a line; beyond it, pairs of neighbours are averaged


@dataclass
class Line:
    """The points of a line; x ascends. `low` and `high` are the ends of its interval, if it has one."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, x: Sequence[float], y: Sequence[float]) -> bool:
        """Adds points. Returns whether neighbours were averaged, so that all points have changed."""
        self.x += x
        self.y += y
        if len(self.x) <= MAX_POINTS:
            return False
        while len(self.x) > MAX_POINTS:
            self.x, self.y = _halve(self.x), _halve(self.y)
        return True


class LiveCurves(anywidget.AnyWidget):
    """Lines over a shared x axis, with reference levels, a legend that hides lines, and values at the pointer.

    `add` sends the browser the new points and their position. A page that lacks earlier points requests all of them.
    `settle` puts all points into the state that is saved with the notebook.

    Attributes:
        is_seen: whether a page has drawn it.
        markers: vertical lines, each as [x, label, whether it stands out].
        lines: by name, [x, y], with an interval [x, y, low, high].
        hidden: names of lines that are not drawn.
        height: of the axes in CSS pixels.
    """

    _esm, _css = script("curves"), style("curves")
    title = traitlets.Unicode().tag(sync=True)
    x_label = traitlets.Unicode().tag(sync=True)
    y_label = traitlets.Unicode().tag(sync=True)
    references = traitlets.Dict().tag(sync=True)
    markers: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    lines = traitlets.Dict().tag(sync=True)
    hidden: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    height = traitlets.Int(260).tag(sync=True)

    def __init__(
        self,
        *,
        title: str = "",
        x_label: str = "environment steps",
        y_label: str = "return per agent and episode",
        references: Mapping[str, float] | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self._points: dict[str, Line] = {}
        self._points_lock = threading.Lock()
        self.is_seen = False
        super().__init__(
            title=title, x_label=x_label, y_label=y_label, references=dict(references or {}), hidden=list(hidden)
        )
        self.on_msg(self._receive)

    def add(self, points: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
        """Appends points, given as `(x, y)` by the name of their line. Any thread may call it."""
        with self._points_lock:
            has_new_line = any(name not in self._points for name in points)
            after = {name: len(self._points[name].x) for name in points if name in self._points}
            thinned = [self._points.setdefault(name, Line()).add(list(x), list(y)) for name, (x, y) in points.items()]
        if any(thinned) or has_new_line:
            self.settle()
        elif points:
            self.send({"add": {name: [list(x), list(y)] for name, (x, y) in points.items()}, "after": after})

    def replace(self, lines: Mapping[str, Line]) -> None:
        """Replaces all lines by these, which may have intervals."""
        with self._points_lock:
            self._points = dict(lines)
        self.settle()

    def mark(self, markers: Mapping[str, float], *, strong: Sequence[str] = ()) -> None:
        """Replaces the vertical lines.

        Args:
            markers: x by label.
            strong: labels of lines that stand out.
        """
        ordered = sorted(markers.items(), key=lambda item: item[1])
        self.markers = [[x, label, label in strong] for label, x in ordered]

    def clear(self) -> None:
        with self._points_lock:
            self._points.clear()
        self.settle()

    def settle(self) -> None:
        """Puts all points into the state that is saved with the notebook, and sends them."""
        self.lines = self._all_points()

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The state for a page that is opened now, with the points that were added since the last `settle`."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        if "lines" in state:
            state["lines"] = self._all_points()
        return state

    def _receive(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        self.is_seen = True
        if content.get("request") == "lines":
            self.send_state("lines")

    def _all_points(self) -> dict[str, Any]:
        with self._points_lock:
            return {name: _parts(line) for name, line in self._points.items()}


def _parts(line: Line) -> list[list[float]]:
    """`[x, y]`, with an interval `[x, y, low, high]`; copies."""
    parts = (line.x, line.y, line.low, line.high) if line.low else (line.x, line.y)
    return [list(values) for values in parts]


def _halve(values: list[float]) -> list[float]:
    """Means of pairs of neighbours; a last odd value stays."""
    pairs = [(a + b) / 2 for a, b in zip(values[::2], values[1::2])]
    return pairs + values[-1:] if len(values) % 2 else pairs
