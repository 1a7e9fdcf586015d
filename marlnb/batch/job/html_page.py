"""A notebook as one HTML file that opens without internet.

A report, which is a notebook with `"marlnb": {"report": true}` in its metadata, hides its code behind the word *code*
and leaves out sections without output: its readers want results.

nbconvert's own page loads three scripts from a server before it shows anything. Here the page loads a script only if
the notebook needs it, and shows its content first. Without internet, formulas stay TeX, and widgets, diagrams and old
interactive figures stay empty; text, tables and figures are in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

_MATH = re.compile(r"\$[^$]+\$|\\\(|\\\[|\\begin\{")
_REQUIRE = re.compile(r"\brequire(?:js)?\s*[.(\[]")
_TEMPLATE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}{%- if resources.page_has.require -%}{{ super() }}{%- endif -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- if resources.page_has.math -%}{{ super() }}{%- endif -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- if resources.page_has.mermaid -%}{{ super() }}{%- endif -%}{%- endblock -%}
{%- block input_group -%}
{%- if resources.is_report -%}
<details style="margin-left: 64px; color: #777; font-size: 85%"><summary style="cursor: pointer">code</summary>
{{ super() }}
</details>
{%- else -%}{{ super() }}{%- endif -%}
{%- endblock -%}
"""


def make_page(notebook: Path) -> str:
    """The HTML of a notebook, with its figures."""
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter  # slow to import, and needed only at the end of a job

    content = nbformat.read(notebook, as_version=4)
    is_report = bool(content.metadata.get("marlnb", {}).get("report"))
    if is_report:
        content.cells = [cell for section in sections(content.cells) if has_results(section) for cell in section]
    loaders = [DictLoader({"offline.html.j2": _TEMPLATE})]
    exporter = HTMLExporter(extra_loaders=loaders, template_file="offline.html.j2", embed_images=True)
    metadata = {"name": notebook.stem, "path": str(notebook.parent)}
    resources: dict[str, Any] = {"metadata": metadata, "page_has": page_has(content), "is_report": is_report}
    body, _ = exporter.from_notebook_node(content, resources)
    # loaded after the page is shown: a server that never answers must not keep the page blank
    page = re.sub(r'<script src="(https?://[^"]*mathjax[^"]*)">', r'<script async src="\1">', body)
    if not resources["page_has"]["calls_require"]:  # only widgets need it, and they wait until everything is loaded
        page = re.sub(r'<script src="(https?://[^"]*require[^"]*)">', r'<script defer src="\1">', page)
    return str(page)


def sections(cells: Sequence[Any]) -> list[list[Any]]:
    """The cells in parts that each start with a heading; the first part may have none."""
    parts: list[list[Any]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.lstrip().startswith("#"):
            parts.append([])
        parts[-1].append(cell)
    return parts


def has_results(section: Sequence[Any]) -> bool:
    """Whether a section shows anything: a cell with output, or text alone, as the title of a page."""
    code = [cell for cell in section if cell.cell_type == "code"]
    return not code or any(cell.get("outputs") for cell in code)


def page_has(content: Any) -> dict[str, bool]:
    """Which scripts the notebook needs."""
    texts = [cell.source for cell in content.cells if cell.cell_type == "markdown"]
    shown = [output.get("data", {}) for cell in content.cells for output in cell.get("outputs", [])]
    html = ["".join(data.get("text/html", "")) for data in shown]
    scripts = [*html, *("".join(str(data.get("application/javascript", ""))) for data in shown)]
    is_math = any(_MATH.search(text) for text in (*texts, *html)) or any("text/latex" in data for data in shown)
    calls_require = any(_REQUIRE.search(text) for text in scripts)
    return {
        "math": is_math,
        "require": "widgets" in content.metadata or calls_require,
        "calls_require": calls_require,
        "mermaid": any("```mermaid" in text for text in texts) or any("text/vnd.mermaid" in data for data in shown),
    }
