"""The style that all widgets share. It uses JupyterLab's colours, so that dark and high-contrast themes work."""

from __future__ import annotations

import html
from collections.abc import Sequence

import ipywidgets as w

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
@media (max-width: 800px) { .marlnb-panel .widget-hbox { flex-wrap: wrap; } }
.marlnb-panel { border: 1px solid var(--jp-border-color2, #ddd); padding: 8px; max-width: 72em; }
.marlnb-panel .marlnb-panel { border: 0; padding: 0; }
""".replace("ARROW", _ARROW)


def styled(*children: w.Widget, name: str = "") -> w.VBox:
    """A panel with the shared style; `name` is one more CSS class."""
    return w.VBox([w.HTML(f"<style>{CSS}</style>"), *children], _dom_classes=["marlnb-panel", *name.split()])


def problem_html(text: str) -> str:
    """An error message, announced by screen readers."""
    return f'<div class="marlnb-problem" role="alert">{html.escape(text)}</div>'


def note_html(text: str) -> str:
    """A status line, announced by screen readers when they are idle."""
    return f'<div class="marlnb-note" role="status">{html.escape(text)}</div>'


class Message(w.HTML):
    """A line of a panel: a status, or why something failed."""

    def show_note(self, text: str) -> None:
        self.value = note_html(text)

    def show_problem(self, problem: Exception | str) -> None:
        self.value = problem_html(str(problem))


def row(*children: w.Widget) -> w.HBox:
    """Widgets in a line, which is broken if the page is too narrow."""
    return w.HBox(children, layout=w.Layout(flex_flow="row wrap"))


def code_html(text: str) -> str:
    return f'<div class="marlnb-code"><pre tabindex="0">{html.escape(text)}</pre></div>'


def log_html(text: str) -> str:
    return f'<div class="marlnb-log"><pre tabindex="0">{html.escape(text)}</pre></div>'


def table_html(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in header)
    texts = [[html.escape("" if cell is None else str(cell)) for cell in cells] for cells in rows]
    body = "".join("<tr>" + "".join(f"<td>{text}</td>" for text in line) + "</tr>" for line in texts)
    return f'<div class="marlnb-table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
