"""ChoiceTable: a table of which one row can be chosen, by click or by arrow keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import traitlets

from marlnb.widgets.core.controls import Drawn


class ChoiceTable(Drawn):
    """Rows of text, of which one is chosen.

    Attributes:
        header: titles of the columns.
        content: names of the rows, and of each row its cells as text.
        chosen: the chosen row's name; empty where none is.
        label: what the table is of, for screen readers.
    """

    _esm = Path(__file__).with_name("table.js")
    label = traitlets.Unicode().tag(sync=True)
    header: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    content = traitlets.Dict().tag(sync=True)  # names and rows at once: a page never sees one without the other
    chosen = traitlets.Unicode().tag(sync=True)

    def __init__(self, header: Sequence[str], *, label: str) -> None:
        super().__init__(header=list(header), label=label, content={"names": [], "rows": []})

    def show(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Other rows by name; what was chosen stays chosen where it is among them."""
        self.content = {"names": list(rows), "rows": [list(row) for row in rows.values()]}
        if self.chosen not in rows:
            self.chosen = ""
