"""How a result shows itself: what it says, why it must not be trusted, its table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd


def doubts(warnings: Sequence[str]) -> str:
    """What is said behind a result in its own line; nothing where there is none."""
    return "".join(f"; NOT TO BE TRUSTED: {note}" for note in warnings)


def shown_as_html(
    said: str,
    warnings: Sequence[str],
    table: pd.DataFrame | None = None,
    *,
    index: bool = False,
    rows: int | None = None,
) -> str:
    """The result in words, each warning in red, the table; index: with the names of its rows; rows: its first only."""
    notes = "".join(
        f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {escape(note, quote=False)}</p>" for note in warnings
    )
    shown = more = ""
    if table is not None:
        shown = table.head(rows or len(table)).to_html(index=index, float_format="%.3g")
        more = f"<p>the first {rows} of {len(table)} rows: table()</p>" if rows and rows < len(table) else ""
    return f"<p>{escape(said, quote=False)}</p>{notes}{shown}{more}"
