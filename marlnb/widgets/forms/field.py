"""Field: one option of a dataclass: what stands in its control, what that means, and what is wrong with it."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from typing import Any, Literal, Union, get_args, get_origin

from marlnb.codec import from_json, to_json
from marlnb.errors import MarlnbError
from marlnb.values import hints, settle
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.wording import meaning

NONE = "(none)"
_UNIONS = (Union, types.UnionType)

Raw = str | bool


class OptionField:
    """One field of a configuration dataclass, as a person fills it in.

    A value is checked as it is typed, by the same code that checks one that comes from a command or a file. What
    cannot be used stays in the control, with the reason below it: nothing is clamped or replaced.

    Attributes:
        raw: what stands in the control: a text, the words of a choice, or whether it is ticked.
        choices: by their words, what can be chosen; empty where anything can be typed, or a box ticked.
        problem: why the value cannot be used; empty where it can.
        show: called in turn after `raw` or `problem` may have changed.
    """

    def __init__(self, kind: type[Any], item: Field[Any], on_change: Callable[[], None] = lambda: None) -> None:
        self.kind, self.item = kind, item
        self.annotation = hints(kind)[item.name]
        self.choices = _choices(self.annotation, item)
        self.problem = ""
        self.show: Callable[[], None] = lambda: None
        self._on_change = on_change
        self.raw: Raw = next(iter(self.choices), "") if not self.is_ticked else False
        if item.default is not MISSING or item.default_factory is not MISSING:
            self.raw = self._shown(default_of(item))
        self._check()

    @property
    def is_ticked(self) -> bool:
        """Whether it is a box to tick."""
        return self.annotation is bool and not self.choices

    @property
    def value(self) -> Any:
        """The value, checked.

        Raises:
            ConfigError: it cannot be used; the message is `problem` too.
        """
        return settle(self._meant(), self.annotation, self.item.name, self.item, _read)

    @property
    def is_default(self) -> bool:
        return not self.problem and self.value == default_of(self.item)

    @property
    def description(self) -> dict[str, Any]:
        """How it is drawn, as JSON: its name, kind of control, help, and what can be chosen."""
        optional = _takes_none(self.annotation) or _is_mapping(self.annotation)
        return {
            "name": self.item.name,
            "control": "tick" if self.is_ticked else "choice" if self.choices else "text",
            "help": meaning(self.kind, self.item),
            "choices": list(self.choices),
            "placeholder": "none" if optional else "",
        }

    @in_turn
    def enter(self, raw: Raw) -> None:
        """As a person: another text, choice or tick; `on_change` is called."""
        if raw != self.raw:
            self.raw = raw
            self._check()
            self._on_change()

    @in_turn
    def set(self, value: Any) -> None:
        """Shows a value; `on_change` is not called."""
        self.raw = self._shown(value)
        self._check()

    @in_turn
    def complain(self, problem: str) -> None:
        """Shows a problem that was found elsewhere, as when the environment was built."""
        self.problem = problem
        self.show()

    def _meant(self) -> Any:
        if isinstance(self.raw, bool):
            return self.raw
        if self.choices:
            return self.choices.get(self.raw, self.raw)
        return parse(self.raw, self.annotation)

    def _check(self) -> None:
        try:
            settle(self._meant(), self.annotation, self.item.name, self.item, _read)
        except MarlnbError as error:
            self.complain(str(error))
        else:
            self.complain("")

    def _shown(self, value: Any) -> Raw:
        if self.choices:
            return NONE if value is None else str(value)
        return bool(value) if self.is_ticked else _typed(value)


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


def _choices(annotation: Any, item: Field[Any]) -> dict[str, Any]:
    choices = list(item.metadata.get("choices") or ())
    if get_origin(annotation) is Literal:
        choices = choices or list(get_args(annotation))
    if not choices or get_origin(annotation) in (tuple, list):
        return {}
    none = {NONE: None} if _takes_none(annotation) else {}
    return {**none, **{str(choice): choice for choice in choices}}


def _typed(value: Any) -> str:
    """A value as one would type it."""
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
