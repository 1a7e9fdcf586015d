"""The help of options, made from the dataclasses that state them."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from marlnb.codec import to_json
from marlnb.values import describe, hints

_PARTS = {
    "env": "env=NAME",
    "algorithm": "algorithm=NAME",
    "model": "model=NAME",
    "critic": "critic=NAME",
    "algorithms": "algorithms.GROUP=NAME",
    "models": "models.GROUP=NAME",
    "critics": "critics.GROUP=NAME",
}
_WIDTH = 100
_COLUMN = 34
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def part_texts(experiment: type[Any], overrides: Sequence[str], config_dir: str | None) -> Iterator[str]:
    """The options of an experiment, how its parts are chosen, and the options of the parts that overrides name."""
    parts = [item for item in fields(experiment) if item.name in _PARTS]
    yield "options of the experiment:\n" + options_text(experiment, skip=_PARTS)
    yield "parts, chosen by name:\n" + "".join(f"  {_PARTS[item.name]:<32}{item.metadata['help']}\n" for item in parts)
    if not overrides:
        yield "`marlnb train algorithm=mappo --help` shows that part's options; `marlnb list algorithms` has the names"
        return
    from marlnb.compose import chosen_parts

    for part, kind in chosen_parts(overrides, config_dir).items():
        told = summary(kind)
        yield f"{part}={kind.name}{': ' if told else ''}{told}\n" + options_text(kind, f"{part}.")


def options_text(kind: type[Any], prefix: str = "", skip: Container[str] = ()) -> str:
    """One entry an option: how to write it with its default, then what it means, its unit and its range."""
    return "".join(_entry(kind, item, prefix) for item in fields(kind) if item.init and item.name not in skip)


def summary(kind: type[Any]) -> str:
    """The first line of a class's docstring; empty where it has none of its own."""
    text = kind.__doc__ or ""
    return "" if text.startswith(f"{kind.__name__}(") else text.strip().partition("\n")[0].strip()


def write_value(value: Any) -> str:
    """A value in the grammar of overrides: `[64,64]`, `null`, `true`."""
    plain = to_json(value)
    if plain is None:
        return "null"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, list):
        return f"[{','.join(write_value(item) for item in plain)}]"
    if isinstance(plain, dict):
        return f"{{{','.join(f'{key}:{write_value(item)}' for key, item in plain.items())}}}"
    return f"{plain:_}" if isinstance(plain, int) else str(plain)


def _entry(kind: type[Any], item: Field[Any], prefix: str) -> str:
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    written = "" if default is MISSING else write_value(default)
    left = f"  {prefix}{item.name}={written}"
    right = _meaning(kind, item)
    lines = textwrap.wrap(right, _WIDTH - _COLUMN) or [""]
    first = f"{left:<{_COLUMN}}{lines[0]}" if len(left) < _COLUMN - 1 else f"{left}\n{'':<{_COLUMN}}{lines[0]}"
    return "\n".join([first, *(f"{'':<{_COLUMN}}{line}" for line in lines[1:])]) + "\n"


def _meaning(kind: type[Any], item: Field[Any]) -> str:
    data = item.metadata
    facts = [data["unit"]] if data.get("unit") else []
    if data.get("choices"):
        facts.append("one of " + ", ".join(map(str, data["choices"])))
    else:
        facts.append(describe(hints(kind)[item.name]))
    facts += [f"{words} {data[key]:g}" for key, words in _BOUNDS.items() if data.get(key) is not None]
    return f"{data.get('help', '')} [{'; '.join(facts)}]".strip()
