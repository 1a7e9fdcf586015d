"""OptionField: one option of a dataclass as a user fills it in: the raw input, its value, and what is wrong with it."""

from __future__ import annotations

import ast
import json
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field
from typing import Any, Literal, Union, get_args, get_origin

from marlnb.codec import from_json, to_json
from marlnb.composition.option_help import meaning
from marlnb.errors import ConfigError, MarlnbError, shown
from marlnb.values import check_value, hints
from marlnb.widgets.core.ui_lock import with_ui_lock

NONE = "(none)"
_UNIONS = (Union, types.UnionType)

Raw = str | bool


class OptionField:
    """One field of a configuration dataclass in a form.

    Input is validated while the user types, by the code that validates commands and files. Invalid input stays in the
    control with the reason below it: nothing is clamped or replaced.

    Attributes:
        kind: the dataclass.
        item: the field.
        annotation: the type of its value.
        raw: the input: a text, the text of a choice, or whether the box is checked.
        choices: valid values by their texts; empty for a text field or a checkbox.
        problem: why the value is not valid; empty if it is.
        show: called under UI_LOCK after `raw` or `problem` may have changed.
    """

    def __init__(self, kind: type[Any], item: Field[Any], on_change: Callable[[], None] = lambda: None) -> None:
        self.kind, self.item = kind, item
        self.annotation = hints(kind)[item.name]
        self.choices = _choices(self.annotation, item)
        self.problem = ""
        self.show: Callable[[], None] = lambda: None
        self._on_change = on_change
        self.raw: Raw = next(iter(self.choices), "") if not self.is_checkbox else False
        if item.default is not MISSING or item.default_factory is not MISSING:
            self.raw = self._to_raw(default_of(item))
        self._check()

    @property
    def is_checkbox(self) -> bool:
        """Whether the control is a checkbox."""
        return self.annotation is bool and not self.choices

    @property
    def value(self) -> Any:
        """The validated value.

        Raises:
            ConfigError: it is not valid; `problem` has the same message.
        """
        return check_value(self._parsed(), self.annotation, self.item.name, self.item, _from_json)

    @property
    def is_default(self) -> bool:
        return not self.problem and self.value == default_of(self.item)

    @property
    def description(self) -> dict[str, Any]:
        """What the page needs to draw it, as JSON: name, kind of control, help, choices and placeholder."""
        can_be_empty = _is_optional(self.annotation) or _is_mapping(self.annotation)
        return {
            "name": self.item.name,
            "control": "tick" if self.is_checkbox else "choice" if self.choices else "text",
            "help": meaning(self.kind, self.item),
            "choices": list(self.choices),
            "placeholder": "none" if can_be_empty else "",
        }

    @with_ui_lock
    def enter(self, raw: Raw) -> None:
        """Enters input as a user does; `on_change` is called."""
        if raw != self.raw:
            self.raw = raw
            self._check()
            self._on_change()

    @with_ui_lock
    def set(self, value: Any) -> None:
        """Shows a value; `on_change` is not called."""
        self.raw = self._to_raw(value)
        self._check()

    @with_ui_lock
    def set_problem(self, problem: str) -> None:
        """Shows a problem that was found elsewhere, such as one from building the environment."""
        self.problem = problem
        self.show()

    def _parsed(self) -> Any:
        if isinstance(self.raw, bool):
            return self.raw
        if self.choices:
            return self.choices.get(self.raw, self.raw)
        return parse(self.raw, self.annotation, self.item.name)

    def _check(self) -> None:
        try:
            check_value(self._parsed(), self.annotation, self.item.name, self.item, _from_json)
        except MarlnbError as error:
            self.set_problem(str(error))
        else:
            self.set_problem("")

    def _to_raw(self, value: Any) -> Raw:
        if self.choices:
            return NONE if value is None else str(value)
        return bool(value) if self.is_checkbox else _to_text(value)


def parse(text: str, annotation: Any, path: str) -> Any:
    """The value of a typed text: `1e-3`, `64, 64`, `none`, `{"a": true}` of Python or JSON, or the text itself.

    Args:
        path: what an error calls the option.
    Raises:
        ConfigError: it should be a mapping, and is neither Python nor JSON.
    """
    stripped = text.strip()
    if _is_optional(annotation) and stripped.lower() in ("", "none", "null", NONE):
        return None
    if _is_mapping(annotation) and not stripped:
        return {}
    if annotation is str or set(get_args(annotation)) == {str, type(None)}:
        return text
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    kinds = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    is_list = any(get_origin(kind) in (tuple, list) for kind in kinds)
    if is_list and not stripped.startswith(("(", "[")):
        stripped = f"[{stripped}]"
    is_mapping = any(_is_mapping(kind) for kind in kinds)
    for read in (ast.literal_eval, json.loads) if is_list or is_mapping else (ast.literal_eval,):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(stripped)
    if is_mapping:
        example = '{"name": 1, "is_on": true}'
        raise ConfigError(f"{path} must be a mapping, such as {example}; cannot read {shown(text)}")
    return [part.strip() for part in stripped[1:-1].split(",")] if is_list else text


def default_of(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _choices(annotation: Any, item: Field[Any]) -> dict[str, Any]:
    choices = list(item.metadata.get("choices") or ())
    if get_origin(annotation) is Literal:
        choices = choices or list(get_args(annotation))
    if not choices or get_origin(annotation) in (tuple, list):
        return {}
    none = {NONE: None} if _is_optional(annotation) else {}
    return {**none, **{str(choice): choice for choice in choices}}


def _to_text(value: Any) -> str:
    """A value as a user would type it."""
    if value is None or value == {}:
        return ""
    if isinstance(value, tuple | list) and all(isinstance(item, int | float | str) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else repr(to_json(value))


def _is_optional(annotation: Any) -> bool:
    return get_origin(annotation) in _UNIONS and type(None) in get_args(annotation)


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _from_json(kind: type[Any], data: Any, path: str) -> Any:
    return from_json(data, kind, path)
