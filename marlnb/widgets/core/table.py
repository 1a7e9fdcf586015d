"""ChoiceTable: a table in which one row can be chosen by click or with the arrow keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import traitlets

from marlnb.widgets.core.controls import JavaScriptWidget


class ChoiceTable(JavaScriptWidget):
    """Rows of text, of which one can be chosen.

    Attributes:
        header: titles of the columns.
        content: the names of the rows and the cells of each row as text.
        chosen: name of the chosen row; empty if none is chosen.
        label: what the table lists, for screen readers.
    """

    _esm = Path(__file__).with_name("table.js").read_text(encoding="utf-8")
    label = traitlets.Unicode().tag(sync=True)
    header: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    content = traitlets.Dict().tag(sync=True)  # names and rows in one trait: a page never has one without the other
    chosen = traitlets.Unicode().tag(sync=True)

    def __init__(self, header: Sequence[str], *, label: str) -> None:
        super().__init__(header=list(header), label=label, content={"names": [], "rows": []})

    def show(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Replaces the rows, given by name; the chosen row stays chosen if it still exists."""
        self.content = {"names": list(rows), "rows": [list(row) for row in rows.values()]}
        if self.chosen not in rows:
            self.chosen = ""
