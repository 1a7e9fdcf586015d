"""Closing of widgets: ipywidgets keeps each one, with all that it refers to, until it is closed or the kernel ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets as w


def close_with_parts(widget: w.Widget) -> None:
    """Closes a widget and those that it shows, with their layouts and styles; they disappear from the page."""
    parts = [part for name in widget.keys for part in _widgets_in(getattr(widget, name))]
    widget.close()
    for part in parts:
        if part.comm is not None:
            close_with_parts(part)


def replace_children(box: w.Box, children: Sequence[w.Widget]) -> None:
    """Shows other widgets in a box, and closes those that it showed. In a box that was closed, all of them are."""
    before, box.children = box.children, tuple(children)
    for child in before if box.comm is not None else (*before, *children):
        if child.comm is not None and (box.comm is None or child not in box.children):
            close_with_parts(child)


def _widgets_in(value: Any) -> Iterator[w.Widget]:
    if isinstance(value, w.Widget):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _widgets_in(item)
