"""Field: one option as a control, with its help beside it and what is wrong with its value below it."""

from __future__ import annotations

import ast
import html
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from typing import Any, Literal, Union, get_args, get_origin

import ipywidgets as w

from marlnb.codec import from_json, to_json
from marlnb.errors import MarlnbError
from marlnb.values import hints, settle
from marlnb.widgets.controls import Checkbox, Dropdown, Text
from marlnb.widgets.style import LABEL_WIDTH, problem_html
from marlnb.widgets.turns import in_turn
from marlnb.wording import meaning

NONE = "(none)"
_UNIONS = (Union, types.UnionType)


class OptionField:
    """A control for one field of a configuration dataclass.

    A value is checked as it is typed, by the same code that checks one that comes from a command or a file. What
    cannot be used stays in the control, with the reason below it: nothing is clamped or replaced.

    Attributes:
        box: the widget to show.
        problem: why the value cannot be used; empty where it can.
    """

    def __init__(self, kind: type[Any], item: Field[Any], on_change: Callable[[], None] = lambda: None) -> None:
        self.kind, self.item = kind, item
        self.annotation = hints(kind)[item.name]
        self.problem = ""
        self._on_change = on_change
        self._quiet = False
        self.control = _control(self.annotation, item)
        self.control.description = item.name
        self.control.tooltip = meaning(kind, item)
        self.control.style.description_width = LABEL_WIDTH
        self.control.layout.width = "26em"
        self._note = w.HTML(f'<span class="marlnb-help">{html.escape(meaning(kind, item))}</span>')
        self._error = w.HTML()
        self._error.layout.display = "none"
        line = w.HBox([self.control, self._note])
        line.layout.flex_flow = "row wrap"
        line.layout.align_items = "center"
        self.box = w.VBox([line, self._error])
        self.box.add_class("marlnb-field")
        self.box.add_class(f"marlnb-field-{item.name}")
        if item.default is not MISSING or item.default_factory is not MISSING:
            self.set(default_of(item))
        else:
            self._check()
        self.control.observe(self._changed, "value")

    @property
    def value(self) -> Any:
        """The value, checked.

        Raises:
            ConfigError: it cannot be used; the message is `problem` too.
        """
        return settle(self._raw(), self.annotation, self.item.name, self.item, _read)

    @property
    def is_default(self) -> bool:
        return not self.problem and self.value == default_of(self.item)

    @in_turn
    def set(self, value: Any) -> None:
        """Shows a value; `on_change` is not called."""
        self._quiet = True
        try:
            self.control.value = _shown(self.control, value)
        finally:
            self._quiet = False
        self._check()

    @in_turn
    def complain(self, problem: str) -> None:
        """Shows a problem that was found elsewhere, as when the environment was built."""
        self.problem = problem
        self._error.value = problem_html(problem) if problem else ""
        self._error.layout.display = "" if problem else "none"

    def _raw(self) -> Any:
        value = self.control.value
        if isinstance(self.control, Dropdown):
            return None if value == NONE else value
        return parse(value, self.annotation) if isinstance(value, str) else value

    def _changed(self, change: Any) -> None:
        self._check()
        if not self._quiet:
            self._on_change()

    def _check(self) -> None:
        try:
            settle(self._raw(), self.annotation, self.item.name, self.item, _read)
        except MarlnbError as error:
            self.complain(str(error))
        else:
            self.complain("")


def parse(text: str, annotation: Any) -> Any:
    """What is typed, as the value that is meant: `1e-3`, `64, 64`, `none`, `{"a": 1}`, or the text itself."""
    stripped = text.strip()
    if _takes_none(annotation) and stripped.lower() in ("", "none", NONE):
        return None
    if _is_mapping(annotation) and not stripped:
        return {}
    if annotation is str or set(get_args(annotation)) == {str, type(None)}:
        return text
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    kinds = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    listed = any(get_origin(kind) in (tuple, list) for kind in kinds)
    if listed and not stripped.startswith(("(", "[")):
        stripped = f"[{stripped}]"
    try:
        return ast.literal_eval(stripped)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [part.strip() for part in stripped[1:-1].split(",")] if listed else text


def default_of(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _control(annotation: Any, item: Field[Any]) -> Any:
    choices = list(item.metadata.get("choices") or ())
    if get_origin(annotation) is Literal:
        choices = choices or list(get_args(annotation))
    if choices and get_origin(annotation) not in (tuple, list):
        return Dropdown(options=[*([NONE] if _takes_none(annotation) else []), *choices])
    if annotation is bool:
        return Checkbox(indent=False)
    optional = _takes_none(annotation) or _is_mapping(annotation)
    return Text(continuous_update=True, placeholder="none" if optional else "")


def _shown(control: Any, value: Any) -> Any:
    if isinstance(control, Dropdown):
        return NONE if value is None else value
    if isinstance(control, Checkbox):
        return bool(value)
    if value is None or value == {}:
        return ""
    if isinstance(value, tuple | list) and all(isinstance(item, int | float | str) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else repr(to_json(value))


def _takes_none(annotation: Any) -> bool:
    return get_origin(annotation) in _UNIONS and type(None) in get_args(annotation)


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _read(kind: type[Any], data: Any, path: str) -> Any:
    return from_json(data, kind, path)
