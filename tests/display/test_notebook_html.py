"""Names from outside are text in every HTML that marlnb makes, and tags stand in one kind of place only."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pandas as pd
from markupsafe import Markup

import marlnb
from marlnb.display.notebook_html import frame_html
from marlnb.widgets.core import style
from tests.display.pages import HOSTILE, all_pages, built_pages, player_page

PACKAGE = Path(marlnb.__file__).parent
TAGS = "a b br button code details div h1 h2 h3 i img input li p pre script span style summary svg table td th tr ul"
TAG = re.compile(rf"</?({'|'.join(TAGS.split())})\b[^<]*>", re.IGNORECASE)
TEMPLATES = {"batch/job/html_page.py"}  # nbconvert's template language, which escapes by itself


def is_safe(html: str) -> bool:
    """Whether nothing of HOSTILE became a tag or ended an attribute."""
    return "<img src=x" not in html and "<script" not in html and "alert(1)" in html and 'alert(1)>"' not in html


def marked_constants(tree: ast.AST) -> set[int]:
    """The constants inside `Markup(...)`, whose argument is a text without parts that are filled in."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "Markup"]
    return {
        id(part)
        for call in calls
        for argument in call.args
        for part in ast.walk(argument)
        if not any(isinstance(inner, ast.JoinedStr) for inner in ast.walk(argument))
    }


def _name(function: ast.AST) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _docstrings(tree: ast.AST) -> set[int]:
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of every module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text()


def test_tags_are_written_as_markup_only() -> None:
    """`Markup("<b>{}</b>").format(name)` escapes; f"<b>{name}</b>" does not."""
    wrong = []
    for name, text in sources():
        if name in TEMPLATES or not TAG.search(text):
            continue
        tree = ast.parse(text)
        allowed = marked_constants(tree) | _docstrings(tree)
        wrong += [
            f"{name}:{node.lineno}: {node.value[:60]!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and TAG.search(node.value)
            if id(node) not in allowed
        ]
    assert not wrong, f"write them as Markup('...').format(...): {wrong}"


def test_a_missing_number_is_an_empty_cell_and_thousands_are_in_full() -> None:
    shown = frame_html(pd.DataFrame({"p": [0.5, float("nan")], "return": [9054.4, 10093.6]}))
    assert "<td>9054</td>" in shown and "<td>10094</td>" in shown
    assert "<td>0.5</td>" in shown and "<td></td>" in shown


def test_html_of_a_table_is_trusted_in_one_place() -> None:
    """`Markup(value)` of anything but a text in the source would trust that value."""
    trusted = {}
    for name, text in sources():
        for node in ast.walk(ast.parse(text)) if "Markup(" in text else ():
            is_markup = isinstance(node, ast.Call) and _name(node.func) == "Markup"
            if is_markup and not all(_is_constant(argument) for argument in node.args):
                trusted[name] = ast.unparse(node)
    assert set(trusted) == {
        "display/notebook_html.py",  # pandas escapes texts
        "batch/report/comparison_tables.py",
        "widgets/core/style.py",  # the style sheet, a constant
    }, trusted


def _is_constant(node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_constant(node.body) and _is_constant(node.orelse)
    return isinstance(node, ast.Constant)


def test_widgets_are_html_in_one_class() -> None:
    """Its value is escaped unless it is Markup."""
    text = "".join(path.read_text() for path in (PACKAGE / "widgets").rglob("*.py"))
    assert text.count("w.HTML") == 1 and "HTMLMath" not in text and "description_allow_html" not in text
    assert style.HTML(HOSTILE).value == style.HTML(Markup("{}").format(HOSTILE)).value and is_safe(
        style.HTML(HOSTILE).value
    )
    shown = style.HTML(Markup("<b>{}</b>").format("a"))
    assert shown.value == "<b>a</b>"
    shown.value = HOSTILE
    assert is_safe(shown.value)


def test_names_are_text_in_everything_that_is_shown(tmp_path: Path) -> None:
    pages = built_pages()
    assert all(map(is_safe, pages))
    assert "1,234" in pages[4] and pages[4].count("&lt;img") == 3
    with recorded_calls() as calls:
        pages = all_pages(tmp_path)
    assert all("<img src=x" not in page and "<script>alert" not in page for page in (*pages, player_page()))
    assert sum("&lt;img src=x" in page for page in pages) > 40
    left_out = {f"{name}: {what}" for (name, line), what in html_functions().items() if (name, line) not in calls}
    assert not left_out, f"add them to tests/display/pages.py, with a hostile name: {sorted(left_out)}"


def html_functions() -> dict[tuple[str, int], str]:
    """Every function that shows itself in a notebook or writes tags, by module and first line."""
    functions = {}
    for name, text in sources():
        for node in ast.walk(ast.parse(text)) if "Markup" in text or "_repr_html_" in text else ():
            if not isinstance(node, ast.FunctionDef) or _is_abstract(node):
                continue
            inner = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
            if node.name == "_repr_html_" or any(_name(call.func) == "Markup" for call in inner):
                lines = (node.lineno, *(decorator.lineno for decorator in node.decorator_list))
                functions[name, min(lines)] = node.name
    return functions


def _is_abstract(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("abstractmethod") for decorator in node.decorator_list)


@contextmanager
def recorded_calls() -> Iterator[set[tuple[str, int]]]:
    """Module and first line of the package's functions that are called, in all threads."""
    calls: set[tuple[str, int]] = set()
    prefix = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            calls.add((code.co_filename.removeprefix(prefix), code.co_firstlineno))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
