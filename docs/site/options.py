"""An extension of griffe: an option's help is the docstring of its field."""

from __future__ import annotations

import ast
from typing import Any

from griffe import Attribute, Docstring, ExprCall, ExprKeyword, Extension


class OptionHelp(Extension):
    """Reads `help` and `unit` of `marlnb.config.option`."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        call = attr.value
        if isinstance(call, ExprCall) and str(call.function) == "option" and attr.docstring is None:
            texts = {item.name: str(item.value) for item in call.arguments if isinstance(item, ExprKeyword)}
            help, unit = (ast.literal_eval(texts.get(name, "''")) for name in ("help", "unit"))
            attr.docstring = Docstring(f"{help} ({unit})" if unit else help, parent=attr)
