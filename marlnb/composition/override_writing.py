"""Values in the grammar of overrides, and as arguments of a call or a command, for texts and forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from marlnb.codec import to_json

_BARE = re.compile(r"[A-Za-z_/.][\w/.:@%+*-]*")
_KEY = re.compile(r"[\w/+.$%*@?|\\()\[\]{}:=, \t-]+", re.ASCII)
_KEYWORDS = {"true", "false", "null", "nan", "inf", "none"}  # Hydra does not read these as strings


def write_value(value: Any) -> str:
    """A value in the grammar of overrides, for people: `[64,64]`, `null`, `true`, `1_000_000`."""
    return _write(to_json(value), grouped=True)


def write_override(key: str, value: Any) -> str:
    """`key=value` that `Experiment.compose` reads as exactly this value."""
    return f"{key}={_write(to_json(value), grouped=False)}"


def write_arguments(kind: type[Any], values: Mapping[str, Any]) -> str:
    """The keyword arguments of a call, without defaults: `, seed=3, sites=['a/*']`."""
    changed = _changed(kind, values)
    return "".join(f", {name}={list(x) if isinstance(x, tuple) else x!r}" for name, _, x in changed)


def write_command_options(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """The words of a command's options, without defaults: `--seed 3 --no-values --sites 'a/*' 'b/*'`."""
    words: list[str] = []
    for name, default, value in _changed(kind, values):
        flag = name.replace("_", "-")
        if isinstance(default, bool):
            words.append(f"--no-{flag}" if default else f"--{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple | list) else [value])]
    return words


def _changed(kind: type[Any], values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, default, value) of the options that differ from their defaults."""
    for item in fields(kind):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if item.name in values and values[item.name] != default:
            yield item.name, default, values[item.name]


def _write(value: Any, *, grouped: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_write(item, grouped=grouped) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_key(key)}:{_write(item, grouped=grouped)}' for key, item in value.items())}}}"
    if isinstance(value, str):
        return value if grouped else _text(value)
    return f"{value:_}" if grouped and isinstance(value, int) else repr(value)


def _text(text: str) -> str:
    """The string without quotes if Hydra reads it unchanged, else quoted.

    In quotes, backslashes count only before quotes. OmegaConf's interpolations are escaped as well.
    """
    if _BARE.fullmatch(text) and text.lower().lstrip("+-") not in _KEYWORDS and not _is_number(text):
        return text
    escaped = re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", text)
    return "'" + re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), escaped) + "'"


def _key(text: str) -> str:
    """The key of a mapping, which Hydra reads without quotes only; no key can be a number, `true` or beyond ASCII."""
    escaped = re.sub(r"[\\()\[\]{}:=, \t]", r"\\\g<0>", text)
    return escaped if _KEY.fullmatch(text) and text.lower() not in _KEYWORDS and not _is_number(text) else _text(text)


def _is_number(text: str) -> bool:
    try:
        float(text.replace("_", ""))
    except ValueError:
        return False
    return True
