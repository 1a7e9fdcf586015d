"""ipywidgets' controls, which hold UI_LOCK while they handle a browser event and everything that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets as w
from traitlets import default

from marlnb.widgets.core.ui_lock import UI_LOCK


class LockedWidget(w.Widget):
    """Abstract: a widget that holds UI_LOCK while its state changes and its observers run."""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        with UI_LOCK:
            super().set_state(sync_data)

    def notify_change(self, change: Any) -> None:
        with UI_LOCK:
            super().notify_change(change)


class Button(LockedWidget, w.Button):
    def click(self) -> None:
        with UI_LOCK:
            super().click()


class Text(LockedWidget, w.Text): ...


class Checkbox(LockedWidget, w.Checkbox):
    """As wide as its description; those of ipywidgets cut off what is longer than 300 pixels, or less in a row."""

    @default("layout")
    def _wide_layout(self) -> w.Layout:
        return w.Layout(width="auto", flex="none")


class Dropdown(LockedWidget, w.Dropdown): ...


class Select(LockedWidget, w.Select): ...


class SelectMultiple(LockedWidget, w.SelectMultiple): ...


class FloatSlider(LockedWidget, w.FloatSlider): ...


class Tab(LockedWidget, w.Tab): ...


class Accordion(LockedWidget, w.Accordion): ...


class JavaScriptWidget(LockedWidget, anywidget.AnyWidget):
    """Abstract: a control drawn by a JavaScript file of marlnb.

    Its `_esm` and `_css` are texts: anywidget watches a file, and keeps every widget that was made from it forever.
    """


def button_for(
    action: Callable[[], Any], name: str, icon: str = "", tooltip: str = "", *, width: str | None = None, **traits: Any
) -> Button:
    """A button that calls `action` when it is clicked.

    Args:
        traits: more traits of ipywidgets' Button.
    """
    button = Button(description=name, icon=icon, tooltip=tooltip, layout=w.Layout(width=width), **traits)
    button.on_click(lambda _: action())
    return button
