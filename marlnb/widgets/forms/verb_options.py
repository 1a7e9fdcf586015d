"""A verb's options as a dataclass, for forms: defaults from its signature, help from its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from typing import Any

from marlnb.config import option
from marlnb.values import validate

_ENTRY = re.compile(r"^ {8}(\w+): (.*)$")


def options_of(verb: Callable[..., Any], kinds: Mapping[str, tuple[Any, Mapping[str, Any]]]) -> type[Any]:
    """A frozen dataclass with some of a verb's options.

    Args:
        kinds: by option, its type in a form, and its range or choices as `marlnb.config.option` takes them.
    """
    helps = helps_of(verb)
    items = []
    for name, (kind, bounds) in kinds.items():
        default = default_of_verb(verb, name)
        plain = int(default) if kind is int else default
        items.append((name, kind, option(plain, help=helps[name], **bounds)))
    title = "".join(word.title() for word in verb.__name__.split("_")) + "Options"
    return make_dataclass(title, items, frozen=True, namespace={"__post_init__": lambda self: validate(self)})


def default_of_verb(verb: Callable[..., Any], name: str) -> Any:
    return inspect.signature(verb).parameters[name].default


def helps_of(verb: Callable[..., Any]) -> dict[str, str]:
    """What the docstring says of each argument."""
    found: dict[str, str] = {}
    name = ""
    for line in (verb.__doc__ or "").partition("Args:\n")[2].partition("    Raises:")[0].splitlines():
        entry = _ENTRY.match(line)
        if entry:
            name = entry.group(1)
            found[name] = entry.group(2)
        elif name and line.startswith(" " * 12):
            found[name] += f" {line.strip()}"
    return {name: text.rstrip(".").replace("`", "") for name, text in found.items()}


def call_of(verb: Callable[..., Any], values: Mapping[str, Any]) -> str:
    """The keyword arguments of a call, those left out that have the verb's own default: `, seed=3, dtype='float16'`."""
    parameters = inspect.signature(verb).parameters
    return "".join(f", {name}={value!r}" for name, value in values.items() if value != parameters[name].default)
