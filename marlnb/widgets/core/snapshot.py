"""What is shown of a widget where widgets do not run: a still picture and its numbers as text."""

from __future__ import annotations

import base64
import io
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.plots.learning import learning_curve
from marlnb.training.runs.run import Run
from marlnb.widgets.core.persistent_snapshot import KeptPicture
from marlnb.widgets.core.worker import Newest

VIEW = "application/vnd.jupyter.widget-view+json"
SOON_S, STILL_EVERY_S = 15.0, 120.0  # a first picture soon, later ones as often as JupyterLab saves
SELDOM = 500  # times what the last drawing took pass before the next one: 0.2% of the time
# a page in which the widget lives has this rule, and hides the picture that follows it; another page shows the picture
_HIDDEN = "<style>.jp-OutputArea-child:has(.marlnb-live) + .jp-OutputArea-child { display: none; }</style>"


def with_picture(widget: w.Widget, text: str, figure: Callable[[], Figure | None]) -> dict[str, Any]:
    """A mime bundle: the widget, and for pages without widgets a picture and text."""
    bundle: dict[str, Any] = {
        VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id},
        "text/plain": text,
    }
    drawn = figure()
    if drawn is not None:
        bundle["image/png"] = png(drawn)
    return bundle


def png(figure: Figure) -> str:
    """A figure as base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return base64.b64encode(buffer.getvalue()).decode()


def figure_of_run(run: Run, references: Mapping[str, float] | None = None) -> Figure | None:
    """The learning curve of a run so far, one line a group; None before the first episode ended."""
    table = run.metrics()
    columns = [name for name in table.columns if name.startswith("returns/")]
    if not columns or table[columns].dropna(how="all").empty:
        return None
    curves = {name.partition("/")[2]: table[name].to_numpy(dtype=float) for name in columns}
    axes = learning_curve(
        table["frames"], curves, references=references, smooth=5, title=f"{run.experiment.env.name}: returns"
    )
    return axes.get_figure(root=True)


class Still:
    """The picture that stands below a displayed widget, hidden while the widget lives there.

    A notebook that is opened without its kernel, on a forge or as HTML has no widget, and shows this.

    Args:
        widget: a box; what it holds is not changed but for a rule of style.
    """

    def __init__(self, widget: w.Box, text: Callable[[], str], figure: Callable[[], Figure | None]) -> None:
        self._widget, self._text, self._figure = widget, text, figure
        self._handles: list[Any] = []
        self._kept: KeptPicture | None = None  # once it is displayed
        self._outdated = False
        self._drawn_at, self._wait_s = -float("inf"), SOON_S
        self._drawing = Newest(wait_s=0)

    def display(self) -> None:
        """Displays the widget, and the picture below it."""
        from IPython.display import display

        if self._kept is None:
            self._kept = KeptPicture()
            self._widget.add_class("marlnb-live")
            self._widget.children = (*self._widget.children, w.HTML(_HIDDEN), self._kept)
            _after_each_cell(weakref.WeakMethod(self._renew_outdated))
        display(self._view(), raw=True)
        bundle = self._bundle()
        self._handles.append(display(bundle, raw=True, display_id=True, metadata=self._kept.metadata))
        self._kept.keep(bundle)

    def outdate(self) -> None:
        """It shows the picture no more: after the cell that is run now, if one is, the picture is drawn anew."""
        self._outdated = True

    def renew(self, *, now: bool = False) -> bool:
        """Draws it anew where it is displayed: now, or when the last time is long enough ago; whether it did."""
        if not self._is_due(now):
            return False
        self._update(self._bundle())
        return True

    def renew_soon(self, *, now: bool = False) -> None:
        """As `renew`, drawn in a thread: who shows something has no time to draw."""
        if self._is_due(now):
            self._drawn_at = time.monotonic()
            self._drawing.ask(self._bundle, self._update, lambda error: self._update({"text/plain": str(error)}))

    def _renew_outdated(self) -> None:
        if self._outdated:
            self.renew(now=True)

    def _is_due(self, now: bool) -> bool:
        return bool(self._handles) and (now or time.monotonic() - self._drawn_at >= self._wait_s)

    def _update(self, bundle: dict[str, Any]) -> None:
        if self._kept is None:
            return
        for handle in self._handles:
            handle.update(bundle, raw=True, metadata=self._kept.metadata)
        self._kept.keep(bundle)

    def _view(self) -> dict[str, Any]:
        shown = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        return {VIEW: shown, "text/plain": self._text()}

    def _bundle(self) -> dict[str, Any]:
        self._drawn_at, self._outdated = time.monotonic(), False
        drawn = self._figure()
        bundle = {"text/plain": self._text(), **({} if drawn is None else {"image/png": png(drawn)})}
        took_s = time.monotonic() - self._drawn_at
        self._wait_s = max(min(2 * self._wait_s, STILL_EVERY_S), SELDOM * took_s)
        return bundle


def _after_each_cell(call: weakref.WeakMethod[Callable[[], None]]) -> None:
    """In a notebook's kernel, whenever a cell has run, for as long as the method's object is held."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return

    def ran(*_: object) -> None:
        method = call()
        if method is None:
            shell.events.unregister("post_run_cell", ran)
        else:
            method()

    shell.events.register("post_run_cell", ran)
