"""The help of options, made from the dataclasses that state them."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from marlnb.wording import meaning, summary, write_value

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


def _entry(kind: type[Any], item: Field[Any], prefix: str) -> str:
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    written = "" if default is MISSING else write_value(default)
    left = f"  {prefix}{item.name}={written}"
    right = meaning(kind, item)
    lines = textwrap.wrap(right, _WIDTH - _COLUMN) or [""]
    first = f"{left:<{_COLUMN}}{lines[0]}" if len(left) < _COLUMN - 1 else f"{left}\n{'':<{_COLUMN}}{lines[0]}"
    return "\n".join([first, *(f"{'':<{_COLUMN}}{line}" for line in lines[1:])]) + "\n"
