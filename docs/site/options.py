"""An extension of griffe: an option's help is the docstring of its field."""

from __future__ import annotations

import ast
from typing import Any

from griffe import Attribute, Docstring, Expr, ExprCall, ExprKeyword, ExprName, Extension


class OptionHelp(Extension):
    """Reads `help` and `unit` of `marlnb.config.option`."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        call = attr.value
        if isinstance(call, ExprCall) and str(call.function) == "option" and attr.docstring is None:
            texts = {item.name: item.value for item in call.arguments if isinstance(item, ExprKeyword)}
            help, unit = (_text(texts.get(name, "''"), attr) for name in ("help", "unit"))
            attr.docstring = Docstring(f"{help} ({unit})" if unit else help, parent=attr)


def _text(value: str | Expr, attr: Attribute) -> str:
    """The text of a literal, or of a constant of the option's module."""
    if isinstance(value, ExprName):
        value = attr.module[value.name].value
    return str(ast.literal_eval(str(value)))
