"""Descriptions of options, for the command's help and forms."""

from __future__ import annotations

from dataclasses import Field
from typing import Any

from marlnb.values import describe, hints

BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def summary(kind: type[Any]) -> str:
    """The first line of a class's docstring; empty if it has no docstring of its own."""
    text = kind.__doc__ or ""
    return "" if text.startswith(f"{kind.__name__}(") else text.strip().partition("\n")[0].strip()


def meaning(kind: type[Any], item: Field[Any]) -> str:
    """An option's help, followed by unit, type and range in brackets."""
    data = item.metadata
    facts = [data["unit"]] if data.get("unit") else []
    if data.get("choices"):
        facts.append("one of " + ", ".join(map(str, data["choices"])))
    else:
        facts.append(describe(hints(kind)[item.name]))
    facts += [f"{words} {data[key]:g}" for key, words in BOUNDS.items() if data.get(key) is not None]
    return f"{data.get('help', '')} [{'; '.join(facts)}]".strip()
