"""The HTML copy opens without internet: it contains nothing that a browser fetches, unless the notebook needs it."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from marlnb.batch.job.html_page import make_page

# scripts, style sheets, modules and pictures that a browser would ask another machine for; links for readers are not
FETCHED = re.compile(
    r"""<(?:script|link|img|iframe)[^>]*(?:src|href)\s*=\s*["'](?:https?:)?//[^"']*|import\(?\s*["']https?:[^"']*"""
    r"""|@import[^;]*//[^;]*|url\(\s*["']?(?:https?:)?//[^)]*"""
)
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _page(folder: Path, *cells: nbformat.NotebookNode) -> str:
    nbformat.write(new_notebook(cells=list(cells)), folder / "a notebook.ipynb")
    return make_page(folder / "a notebook.ipynb")


def test_a_page_of_text_tables_and_figures_requests_nothing(tmp_path: Path) -> None:
    data = {"image/png": PICTURE, "text/plain": "<Figure>", "text/html": "<table><tr><td>7</td></tr></table>"}
    cell = new_code_cell(
        "1 + 1", outputs=[new_output("display_data", {"image/png": PICTURE}), new_output("display_data", data)]
    )
    page = _page(tmp_path, new_markdown_cell("# A title\n\nIt costs 3 $, [docs](https://a.b)"), cell)
    assert FETCHED.findall(page) == []
    assert PICTURE in page and "<td>7</td>" in page and "A title" in page
    assert "<title>a notebook</title>" in page and "JupyterLab Light" in page


@pytest.mark.parametrize(
    ("cell", "script", "how"),
    [
        (new_markdown_cell("$x^2$"), "mathjax", "async"),
        (new_code_cell("1", outputs=[new_output("display_data", {"text/latex": "$x$"})]), "mathjax", "async"),
        (
            new_code_cell("1", outputs=[new_output("display_data", {"text/html": "<script>require(['a'])</script>"})]),
            "require",
            "",
        ),
    ],
)
def test_what_needs_a_script_gets_it_without_holding_the_page_up(
    tmp_path: Path, cell: nbformat.NotebookNode, script: str, how: str
) -> None:
    (tag,) = FETCHED.findall(_page(tmp_path, cell))
    assert script in tag and f"<script {how}".strip() in tag


def test_widgets_wait_for_their_script_and_the_page_does_not(tmp_path: Path) -> None:
    content = new_notebook(cells=[new_code_cell("1")], metadata={"widgets": {}})
    nbformat.write(content, tmp_path / "a.ipynb")
    (tag,) = FETCHED.findall(make_page(tmp_path / "a.ipynb"))
    assert "require" in tag and "<script defer" in tag


def test_a_report_folds_its_code_and_leaves_out_sections_without_output(tmp_path: Path) -> None:
    text = nbformat.v4.new_output("stream", text="forty-two")
    cells = [
        *(nbformat.v4.new_markdown_cell("# Title\n\nwhat it is"), nbformat.v4.new_markdown_cell("## Setup")),
        *(nbformat.v4.new_code_cell("import secrets"), nbformat.v4.new_markdown_cell("## Scores")),
        *(nbformat.v4.new_code_cell("answer()", outputs=[text]), nbformat.v4.new_markdown_cell("### Failed")),
        nbformat.v4.new_code_cell("failures()"),
    ]
    for is_report in (True, False):
        made = nbformat.v4.new_notebook(cells=cells, metadata={"marlnb": {"report": is_report}})
        nbformat.write(made, tmp_path / "a.ipynb")
        page = make_page(tmp_path / "a.ipynb")
        assert all(words in page for words in ("what it is", "Scores", "forty-two"))
        for words in ("Setup", "secrets", "Failed", "failures"):
            assert (words in page) is not is_report
        assert page.count(">code</summary>") == is_report
