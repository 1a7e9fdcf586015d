"""The style that all widgets share. It uses JupyterLab's colours, so that dark and high-contrast themes work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w
from markupsafe import Markup, escape
from traitlets import validate

from marlnb.display.notebook_html import joined

LABEL = {"description_width": "11em"}  # style of a control with its name on the left

_ARROW = (
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E"
    "%3Cpath fill='none' stroke='%23ccc' stroke-width='2' d='M5 7l4 4 4-4'/%3E%3C/svg%3E"
)  # that of ipywidgets is black in dark themes too

CSS = """
[data-jp-theme-light="false"] .marlnb-panel { --jp-widgets-dropdown-arrow: url("data:image/svg+xml,ARROW"); }
.marlnb-help { color: var(--jp-ui-font-color2, #666); font-size: 90%; line-height: 1.25; }
.marlnb-problem { color: var(--jp-error-color1, #b00020); margin: 0 0 4px 11em; line-height: 1.3;
  white-space: pre-wrap; }
.marlnb-note { color: var(--jp-ui-font-color1, #222); line-height: 1.35; }
.marlnb-code pre { background: var(--jp-layout-color2, #f2f2f2); color: var(--jp-ui-font-color1, #222);
  padding: 6px 8px; overflow-x: auto; line-height: 1.35; white-space: pre; }
.marlnb-log pre { background: var(--jp-layout-color2, #f2f2f2); color: var(--jp-ui-font-color1, #222);
  padding: 6px 8px; max-height: 14em; overflow: auto; line-height: 1.35; white-space: pre-wrap; }
.marlnb-table { overflow-x: auto; }
.marlnb-table table { border-collapse: collapse; color: var(--jp-ui-font-color1, #222); }
.marlnb-table th, .marlnb-table td { padding: 3px 12px 3px 0; text-align: left; vertical-align: top; line-height: 1.35;
  white-space: normal; }
.marlnb-table th { font-weight: 600; border-bottom: 1px solid var(--jp-border-color1, #bbb); }
.marlnb-panel .jupyter-widgets.jupyter-widget-tab > .lm-TabBar .lm-TabBar-tab,
.marlnb-panel .jupyter-widget-Collapse-header { color: var(--jp-ui-font-color1, #222); }
.marlnb-panel .jupyter-widgets.jupyter-widget-tab > .lm-TabBar .lm-TabBar-tab { flex: 0 0 auto; }
.marlnb-panel .jupyter-widgets.jupyter-widget-tab > .lm-TabBar .lm-TabBar-content { flex-wrap: wrap; }
.marlnb-panel .jupyter-widgets { max-width: 100%; min-width: 0; box-sizing: border-box; }
.marlnb-panel .widget-inline-hbox { max-width: calc(100% - 4px); }
.marlnb-panel .widget-checkbox { height: auto; }
.marlnb-panel .widget-checkbox .widget-label-basic { height: auto; line-height: 1.35; white-space: normal; }
@media (max-width: 800px) { .marlnb-panel .widget-hbox { flex-wrap: wrap; } }
.marlnb-panel { border: 1px solid var(--jp-border-color2, #ddd); padding: 8px; max-width: 72em; }
.marlnb-panel .marlnb-panel { border: 0; padding: 0; }
""".replace("ARROW", _ARROW)


class HTML(w.HTML):
    """A text of a panel: Markup is shown as HTML, any other text is escaped."""

    value: str

    @validate("value")
    def _escape(self, proposal: Mapping[str, Any]) -> Markup:
        return escape(proposal["value"])


def styled(*children: w.Widget, name: str = "") -> w.VBox:
    """A panel with the shared style; `name` is one more CSS class."""
    rules = HTML(Markup("<style>{}</style>").format(Markup(CSS)))
    return w.VBox([rules, *children], _dom_classes=["marlnb-panel", *name.split()])


def problem_html(text: str) -> Markup:
    """An error message, announced by screen readers."""
    return Markup('<div class="marlnb-problem" role="alert">{}</div>').format(text)


def note_html(text: str) -> Markup:
    """A status line, announced by screen readers when they are idle."""
    return Markup('<div class="marlnb-note" role="status">{}</div>').format(text)


class Message(HTML):
    """A line of a panel: a status, or why something failed."""

    def show_note(self, text: str) -> None:
        self.value = note_html(text)

    def show_problem(self, problem: Exception | str) -> None:
        self.value = problem_html(str(problem))


def row(*children: w.Widget) -> w.HBox:
    """Widgets in a line, which is broken if the page is too narrow."""
    return w.HBox(children, layout=w.Layout(flex_flow="row wrap"))


def code_html(text: str) -> Markup:
    return Markup('<div class="marlnb-code"><pre tabindex="0">{}</pre></div>').format(text)


def log_html(text: str) -> Markup:
    return Markup('<div class="marlnb-log"><pre tabindex="0">{}</pre></div>').format(text)


def table_html(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = joined(Markup('<th scope="col">{}</th>').format(name) for name in header)
    lines = (joined(Markup("<td>{}</td>").format("" if cell is None else cell) for cell in cells) for cells in rows)
    body = joined(Markup("<tr>{}</tr>").format(line) for line in lines)
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)
    return Markup('<div class="marlnb-table">{}</div>').format(table)
