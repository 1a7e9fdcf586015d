"""HTML of what a notebook shows: plain tables in the colours of the page, which read well in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

NOTE_COLOR = "var(--jp-ui-font-color2, #808080)"
"""JupyterLab's colour of less important text; elsewhere a grey that is readable on white and on black."""
_LEFT = "style='text-align:left'"


def table_html(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts."""
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td {_LEFT}>{escape(str(cell), quote=False)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts_html(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """A title in bold, a note in grey, and a table with a line for each fact."""
    body = "".join(
        f"<tr><th {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(str(value), quote=False)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<p><b>{escape(title, quote=False)}</b></p>{note_html(note)}<table><tbody>{body}</tbody></table>"


def note_html(text: str) -> str:
    return f"<p style='color:{NOTE_COLOR}'>{escape(text, quote=False)}</p>" if text else ""


def folded_html(summary: str, text: str) -> str:
    """A text that is shown after a click on its summary."""
    return f"<details><summary>{escape(summary, quote=False)}</summary><pre>{escape(text, quote=False)}</pre></details>"
