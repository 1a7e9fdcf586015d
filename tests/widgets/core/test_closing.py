"""Widgets that are closed leave nothing behind."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import weakref
from collections.abc import Iterator

import ipywidgets as w
from anywidget import AnyWidget
from ipywidgets.widgets.widget import _instances as WIDGETS
from traitlets import TraitType

import marlnb.widgets
from marlnb.widgets.core.closing import close_with_parts, replace_children
from marlnb.widgets.core.table import ChoiceTable


def _subclasses(kind: type) -> Iterator[type]:
    for subclass in kind.__subclasses__():
        yield from (subclass, *_subclasses(subclass))


def test_the_scripts_of_widgets_are_texts() -> None:
    """anywidget keeps each widget whose script is a file that it watches."""
    for module in pkgutil.walk_packages(marlnb.widgets.__path__, "marlnb.widgets."):
        importlib.import_module(module.name)
    own = [kind for kind in _subclasses(AnyWidget) if kind.__module__.startswith("marlnb.")]
    assert len(own) > 5
    for kind in own:
        scripts = [vars(kind)[name] for name in ("_esm", "_css") if name in vars(kind)]
        texts = [script for script in scripts if not isinstance(script, TraitType)]  # not those of an instance
        assert [type(text) for text in texts] == [str] * len(texts), kind


def test_what_a_box_no_longer_shows_is_closed() -> None:
    before = set(WIDGETS)
    first, second = ChoiceTable(["name"], label="runs"), w.HBox([w.Button(), w.VBox([w.Text()])])
    box, kept = w.VBox([first, second]), w.Button()
    replace_children(box, [second, kept])
    assert first.comm is None and second.comm is not None
    close_with_parts(box)
    assert set(WIDGETS) == before
    replace_children(box, [late := w.Button()])  # by a thread that ended too late
    assert late.comm is None and set(WIDGETS) == before
    known = weakref.ref(first)
    del first
    gc.collect()
    assert known() is None
