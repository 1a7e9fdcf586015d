"""How a result shows itself in a notebook: what it says, why it must not be trusted, its table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd


def shown_as_html(said: str, warnings: Sequence[str], table: pd.DataFrame) -> str:
    """The result in words, each warning in red, the table without its index."""
    notes = "".join(
        f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {escape(note, quote=False)}</p>" for note in warnings
    )
    return f"<p>{said}</p>{notes}{table.to_html(index=False, float_format='%.3g')}"
