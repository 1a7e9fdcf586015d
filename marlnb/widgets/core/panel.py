"""Panel: what panels of several controls share: they are displayed in a notebook, and tell others about changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import ipywidgets as w


class Panel:
    """Abstract: a widget to display, and functions to call after a change.

    Attributes:
        widget: what a notebook displays.
    """

    widget: w.Widget

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change."""
        self._listeners.append(listener)

    @cached_property
    def _listeners(self) -> list[Callable[[], None]]:
        return []

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self.widget._repr_mimebundle_(**options)  # type: ignore[no-any-return]
