"""ipywidgets' controls, each of which takes the turn for what a page sends it and for all that follows from that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets as w

from marlnb.widgets.core.ui_lock import TURN


class InTurn(w.Widget):
    """Abstract: a widget whose changes, and whoever observes them, have the turn."""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        with TURN:
            super().set_state(sync_data)

    def notify_change(self, change: Any) -> None:
        with TURN:
            super().notify_change(change)


class Button(InTurn, w.Button):
    def click(self) -> None:
        with TURN:
            super().click()


class Text(InTurn, w.Text):
    pass


class Checkbox(InTurn, w.Checkbox):
    pass


class Dropdown(InTurn, w.Dropdown):
    pass


class Select(InTurn, w.Select):
    pass


class SelectMultiple(InTurn, w.SelectMultiple):
    pass


class Tab(InTurn, w.Tab):
    pass


class Accordion(InTurn, w.Accordion):
    pass


class Drawn(InTurn, anywidget.AnyWidget):
    """Abstract: a control that a JavaScript file of ours draws."""


def button_for(
    act: Callable[[], None], name: str, icon: str, tooltip: str, *, width: str | None = None, **traits: Any
) -> Button:
    """A button that does something when it is clicked; traits: others of ipywidgets' Button."""
    button = Button(description=name, icon=icon, tooltip=tooltip, layout=w.Layout(width=width), **traits)
    button.on_click(lambda _: act())
    return button
