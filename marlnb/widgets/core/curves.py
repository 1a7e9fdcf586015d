"""LiveCurves: lines that grow while one looks, drawn in the browser from the new points alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anywidget
import traitlets

MOST_POINTS = 2000  # of a line: beyond it neighbours are put together, two by two


@dataclass
class Line:
    """A line's points; x grows."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: Sequence[float], y: Sequence[float]) -> bool:
        """Adds points; True when neighbours were put together, so that all points are others now."""
        self.x += x
        self.y += y
        if len(self.x) <= MOST_POINTS:
            return False
        while len(self.x) > MOST_POINTS:
            self.x, self.y = _halved(self.x), _halved(self.y)
        return True


class LiveCurves(anywidget.AnyWidget):
    """Lines over a shared x axis, with reference levels, a legend that hides lines, and a reading at the pointer.

    `add` sends the browser the new points only, and where they belong: a page that lacks earlier ones asks for the
    whole. That is sent to a page that is opened later too, and `settle` sends it once more, so that it is saved with
    the notebook.

    Attributes:
        is_seen: whether a page has drawn it.
    """

    _esm = Path(__file__).with_name("curves.js")
    title = traitlets.Unicode().tag(sync=True)
    x_label = traitlets.Unicode().tag(sync=True)
    y_label = traitlets.Unicode().tag(sync=True)
    references = traitlets.Dict().tag(sync=True)
    markers: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)  # [x, label, strong], upright lines
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
        self._guard = threading.Lock()
        self.is_seen = False
        super().__init__(
            title=title,
            x_label=x_label,
            y_label=y_label,
            references=dict(references or {}),
            hidden=list(hidden),
        )
        self.on_msg(self._heard)

    def add(self, points: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
        """Points by line's name, `(x, y)`, after those that are there; from any thread."""
        with self._guard:
            known = [name in self._points for name in points]
            after = {name: len(self._points[name].x) for name in points if name in self._points}
            thinned = [self._points.setdefault(name, Line()).add(list(x), list(y)) for name, (x, y) in points.items()]
        if any(thinned) or not all(known):
            self.settle()
        elif points:
            self.send({"add": {name: [list(x), list(y)] for name, (x, y) in points.items()}, "after": after})

    def mark(self, markers: Mapping[str, float], *, strong: Sequence[str] = ()) -> None:
        """Upright lines at x by label, in the place of those before; `strong` ones stand out."""
        ordered = sorted(markers.items(), key=lambda item: item[1])
        self.markers = [[x, label, label in strong] for label, x in ordered]

    def clear(self) -> None:
        with self._guard:
            self._points.clear()
        self.settle()

    def settle(self) -> None:
        """Sends everything, as the state that is saved with the notebook."""
        self.lines = self._snapshot()

    def get_state(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """What a page that is opened now is sent: all points, those since the last `settle` included."""
        state: dict[str, Any] = super().get_state(*arguments, **options)
        if "lines" in state:
            state["lines"] = self._snapshot()
        return state

    def _heard(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        self.is_seen = True
        if content.get("ask") == "lines":
            self.send_state("lines")

    def _snapshot(self) -> dict[str, Any]:
        with self._guard:
            return {name: [list(line.x), list(line.y)] for name, line in self._points.items()}


def _halved(values: list[float]) -> list[float]:
    """Means of neighbours; a last odd one stays."""
    pairs = [(a + b) / 2 for a, b in zip(values[::2], values[1::2])]
    return pairs + values[-1:] if len(values) % 2 else pairs
