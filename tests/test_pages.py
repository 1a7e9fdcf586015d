"""The blocks of the documentation's pages: what is collected, and that what fails is seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sybil import Document

from tests.pages import PAGES, ROOT, TEXT_ONLY, Block, check, check_command, commands_of, is_simple, parse_blocks

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\$ |!)?([\w.-]+/)*(marlnb|python|make|pip|uv|wandb|git) ", re.MULTILINE)
DIRECTIVE = re.compile(r"<!--\s*test\b")


def paths() -> list[Path]:
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def blocks(text: str) -> list[Block]:
    return [region.parsed for region in parse_blocks(Document(text, "page.md"))]


def test_blocks_have_their_language_and_directive() -> None:
    text = "<!-- test: a=1 -> a=2 -->\n```python\na=1\n```\n\n```\ntree\n```\n\n<!-- test: setup\nb = 1\n-->\n"
    assert blocks(text) == [Block("python", "a=1\n", "a=1 -> a=2"), Block("python", "b = 1\n")]
    assert blocks(text)[0].replaced() == "a=2\n"


def test_a_replacement_that_no_longer_fits_is_seen() -> None:
    with pytest.raises(AssertionError, match="does not contain 'a=3'"):
        Block("python", "a=1\n", "a=3 -> a=2").replaced()


def test_commands_of_a_shell_and_of_a_console() -> None:
    assert commands_of("sh", "# first\nmarlnb list \\\n  envs   # names\n") == ["marlnb list    envs   # names"]
    assert commands_of("console", "$ marlnb list envs\nmpe/simple\n") == ["marlnb list envs"]
    assert is_simple("marlnb record runs/x --sites '*/actor/*'") and not is_simple("marlnb list envs > names.txt")
    assert not is_simple("cat $HOME/x") and not is_simple("ls ~/x")


@pytest.mark.parametrize("command", ["marlnb trian env=x", "marlnb jobs --colour", "make tset"])
def test_a_command_that_does_not_exist_is_seen(command: str) -> None:
    with pytest.raises(AssertionError):
        check_command(command)


def test_cells_of_a_hosted_notebook_are_checked() -> None:
    cells = "!pip install uv\n!env/bin/marlnb train env=x --resume\nfrom IPython.display import HTML\n"
    (block,) = blocks(f"<!-- test: skip, it needs Colab -->\n```ipython\n{cells}```\n")
    assert commands_of(block.language, block.code) == ["pip install uv", "marlnb train env=x --resume"]
    check(block)
    for wrong in ("!env/bin/marlnb trian env=x\n", "from IPython import\n"):
        with pytest.raises((AssertionError, SyntaxError)):
            check(Block("ipython", wrong))


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_block_is_collected_and_every_directive_belongs_to_one(path: Path) -> None:
    """A block that is indented, a directive with a blank line or a typing error, would not be seen."""
    text = path.read_text()
    assert not re.search(r"^[ >]+```", text, re.MULTILINE)
    parsed = blocks(text)
    n_languages = sum(bool(language) and language not in TEXT_ONLY for language, _ in FENCE.findall(text))
    n_setups = text.count("<!-- test: setup\n")
    assert len(parsed) == n_languages + n_setups
    assert len(DIRECTIVE.findall(text)) == n_setups + sum(bool(block.directive) for block in parsed)
    for block in parsed:
        if block.directive.startswith("skip"):
            assert re.match(r"skip, \w.{8,}", block.directive), "a skipped block states its reason"


def test_every_page_is_collected() -> None:
    """Also pages in new folders; the changelog and the list of the gallery's entries hold no code."""
    pages = {
        path for pattern in ("*.md", "docs/**/*.md", "notebooks/**/*.md", "*/README.md") for path in ROOT.glob(pattern)
    }
    without = {path for path in pages - set(paths()) if not path.relative_to(ROOT).parts[0].startswith((".", "site"))}
    assert [path.name for path in without if FENCE.search(path.read_text())] == []


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_have_a_language(path: Path) -> None:
    """A block of text is not run."""
    texts = [code for language, code in FENCE.findall(path.read_text()) if language in ("", *TEXT_ONLY)]
    unmarked = [code for code in texts if COMMAND.search(code)]
    assert [code for code in unmarked if not code.startswith("job ")] == []  # the end of a failed job's log
