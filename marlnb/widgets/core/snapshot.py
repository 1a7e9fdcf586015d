"""Snapshots: a picture and text in place of a widget, for pages on which widgets do not run."""

from __future__ import annotations

import base64
import io
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w
from markupsafe import Markup
from matplotlib.figure import Figure

from marlnb.errors import RunError
from marlnb.plots.runs.learning import learning_curve
from marlnb.training.runs.run import Run
from marlnb.training.shared_return import is_zero_sum
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.persistent_snapshot import PersistentSnapshot
from marlnb.widgets.core.style import HTML

VIEW = "application/vnd.jupyter.widget-view+json"
FIRST_WAIT_S, MAX_WAIT_S = 15.0, 120.0  # a first snapshot soon, later ones as often as JupyterLab saves
WAIT_PER_DRAWING = 100  # times the duration of a drawing until the next one: at most 1% of the time
# a page on which the widget lives has this rule, which hides the picture below it; any other page shows the picture
_HIDE_PICTURE = Markup("<style>{}</style>").format(
    ".jp-OutputArea-child:has(.marlnb-live) + .jp-OutputArea-child { display: none; }"
)


def view_bundle(widget: w.Widget, text: str) -> dict[str, Any]:
    """A mime bundle of the widget, with text for pages without widgets."""
    return {VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}, "text/plain": text}


def with_snapshot(widget: w.Widget, text: str, figure: Callable[[], Figure | None]) -> dict[str, Any]:
    """A mime bundle of the widget, with a picture and text for pages without widgets."""
    return {**view_bundle(widget, text), **_picture(figure)}


def png(figure: Figure) -> str:
    """A figure as base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return base64.b64encode(buffer.getvalue()).decode()


def _picture(figure: Callable[[], Figure | None]) -> dict[str, str]:
    """A mime bundle of a figure; empty if there is none, as where a run's file is damaged, which its panel shows."""
    try:
        drawn = figure()
    except RunError:
        return {}
    return {} if drawn is None else {"image/png": png(drawn)}


def learning_curve_figure(run: Run, references: Mapping[str, float] | None = None) -> Figure | None:
    """The learning curve of a run so far, one line per group, or per agent where the agents of a single group play
    against each other; None before the first episode has ended."""
    table = run.metrics()
    columns, agents = (
        [name for name in table.columns if name.startswith(kind)] for kind in ("returns/", "agent_returns/")
    )
    if len(columns) == 1 and is_zero_sum(table[agents].sum(axis=1), table[agents].abs().max().max()):
        columns = agents
    if not columns or table[columns].dropna(how="all").empty:
        return None
    curves = {name.partition("/")[2]: table[name].to_numpy(dtype=float) for name in columns}
    title = f"{run.experiment.env.name}: returns"
    axes = learning_curve(table["frames"], curves, references=references, smooth=5, title=title)
    return axes.get_figure(root=True)


class Snapshot:
    """The picture below a displayed widget, hidden where the widget runs.

    A notebook that is opened without its kernel, on GitHub or as HTML, has no widgets and shows the picture. The last
    picture stays where there is none any more, as after the run's folder was removed.

    Args:
        widget: a box; displaying it adds a style rule to its children.
        text: returns the text of the snapshot.
        figure: returns the picture of the snapshot; None for text alone.
    """

    def __init__(self, widget: w.Box, text: Callable[[], str], figure: Callable[[], Figure | None]) -> None:
        self._widget, self._text, self._figure = widget, text, figure
        self._handles: list[Any] = []
        self._persistent: PersistentSnapshot | None = None  # None before it is displayed
        self._latest: dict[str, Any] = {}
        self._is_outdated = False
        self._has_changed = True
        self._drawn_at, self._wait_s = -float("inf"), FIRST_WAIT_S
        self._drawing = LatestOnly(wait_s=0)

    def display(self) -> None:
        """Displays the widget and the picture below it."""
        from IPython.display import display

        if self._persistent is None:
            self._persistent = PersistentSnapshot()
            self._widget.add_class("marlnb-live")
            self._widget.children = (*self._widget.children, HTML(_HIDE_PICTURE), self._persistent)
            _after_each_cell(weakref.WeakMethod(self._renew_outdated))
        display(view_bundle(self._widget, self._text()), raw=True)
        bundle = self._bundle()
        self._handles.append(display(bundle, raw=True, display_id=True, metadata=self._persistent.metadata))
        self._persistent.update(bundle)

    def outdate(self) -> None:
        """The panel has changed: the picture is drawn again after the cell that runs now, if one does."""
        self._is_outdated = True

    def renew(self, *, now: bool = False) -> bool:
        """Draws the picture again if it is displayed and old enough.

        Args:
            now: also if it is not old.
        Returns:
            Whether it was drawn.
        """
        if not self._is_due(now):
            return False
        self._update(self._bundle())
        return True

    def renew_soon(self, *, now: bool = False, has_changed: bool = True) -> None:
        """As `renew`, but in a thread, so that the caller does not wait for the drawing.

        Args:
            has_changed: whether the panel shows something else than at the last call. If it never does, the picture is
                not drawn again.
        """
        self._has_changed |= has_changed
        if self._has_changed and self._is_due(now):
            self._drawn_at = time.monotonic()
            self._drawing.request(self._bundle, self._update, lambda error: None)

    def _renew_outdated(self) -> None:
        if self._is_outdated:
            self.renew(now=True)

    def _is_due(self, now: bool) -> bool:
        return bool(self._handles) and (now or time.monotonic() - self._drawn_at >= self._wait_s)

    def _update(self, bundle: dict[str, Any]) -> None:
        if self._persistent is None:
            return
        for handle in self._handles:
            handle.update(bundle, raw=True, metadata=self._persistent.metadata)
        self._persistent.update(bundle)

    def _bundle(self) -> dict[str, Any]:
        self._drawn_at, self._is_outdated, self._has_changed = time.monotonic(), False, False
        picture = _picture(self._figure)
        if picture or "image/png" not in self._latest:
            self._latest = {"text/plain": self._text(), **picture}
        duration_s = time.monotonic() - self._drawn_at if picture else 0.0  # without, it is mostly that of imports
        self._wait_s = max(min(2 * self._wait_s, MAX_WAIT_S), WAIT_PER_DRAWING * duration_s)
        return self._latest


def _after_each_cell(call: weakref.WeakMethod[Callable[[], None]]) -> None:
    """In a notebook's kernel, calls the method after each cell, for as long as its object exists."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return

    def after_cell(*_: object) -> None:
        method = call()
        if method is None:
            shell.events.unregister("post_run_cell", after_cell)
        else:
            method()

    shell.events.register("post_run_cell", after_cell)
