"""HTML of what a notebook shows: plain tables in the colours of the page, which read well in light and dark themes.

Whatever marlnb shows as HTML is a `Markup`: its tags stand in the text of `Markup("...")`, and what `format` and `join`
put into it is text, whose characters are escaped. A test allows tags nowhere else, so that a name with a tag in it, of
a label or a run that another person made, is shown and does not act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from marlnb.display.formatting import format_number

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

NOTE_COLOR = "var(--jp-ui-font-color2, #808080)"
"""JupyterLab's colour of less important text; elsewhere a grey that is readable on white and on black."""
_LEFT = "text-align:left"


def table_html(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """A table of texts."""
    head = joined(Markup("<th style='{}'>{}</th>").format(_LEFT, name) for name in header)
    body = joined(Markup("<tr>{}</tr>").format(_cells(row)) for row in rows)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)


def facts_html(title: str, facts: Mapping[str, object], note: str = "") -> Markup:
    """A title in bold, a note in grey, and a table with a line for each fact."""
    body = joined(
        Markup("<tr><th style='{}'>{}</th>{}</tr>").format(_LEFT, name, _cells([value]))
        for name, value in facts.items()
    )
    return title_html(title) + note_html(note) + Markup("<table><tbody>{}</tbody></table>").format(body)


def title_html(text: str) -> Markup:
    """A line in bold; nothing if it is empty."""
    return Markup("<p><b>{}</b></p>").format(text) if text else Markup("")


def note_html(text: str) -> Markup:
    """A line in grey; nothing if it is empty."""
    return Markup("<p style='color:{}'>{}</p>").format(NOTE_COLOR, text) if text else Markup("")


def folded_html(summary: str, text: str) -> Markup:
    """A text that is shown after a click on its summary."""
    return Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(summary, text)


def picture_html(data: str, kind: str, description: str, style: str = "max-width:100%") -> Markup:
    """A picture in the page.

    Args:
        data: in base64.
        kind: as "png".
        description: for screen readers.
    """
    return Markup('<img src="data:image/{};base64,{}" alt="{}" style="{}">').format(kind, data, description, style)


def frame_html(table: pd.DataFrame, *, index: bool = True, max_rows: int | None = None, digits: int = 3) -> Markup:
    """A table of pandas, which escapes its texts, as HTML; a missing number is an empty cell."""
    number = partial(format_number, digits=digits)
    return Markup(table.to_html(index=index, max_rows=max_rows, float_format=number, na_rep="", escape=True))


def styled(
    table: pd.DataFrame,
    *,
    precision: int = 2,
    thousands: str | None = None,
    whole: Sequence[str] = (),
    caption: str = "",
) -> Styler:
    """A table for a notebook, without row names. Its cells, header and caption are text, except cells that are Markup.

    Args:
        precision: digits after the point.
        thousands: between groups of three digits; None: nothing.
        whole: columns whose numbers are shown without digits after the point.
    """
    style = table.style.format(precision=precision, na_rep="–", thousands=thousands, escape="html")
    if whole:
        style = style.format("{:,.0f}", subset=list(whole))
    style = style.format_index(escape="html", axis="columns").hide(axis="index")
    return style.set_caption(str(escape(caption))) if caption else style


def joined(parts: Iterable[Markup]) -> Markup:
    """Parts one after the other."""
    return Markup("").join(parts)


def _cells(row: Sequence[object]) -> Markup:
    return joined(Markup("<td style='{}'>{}</td>").format(_LEFT, cell) for cell in row)
