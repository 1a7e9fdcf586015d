"""The blocks of the documentation's pages: what is collected, and that what fails is seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sybil import Document

from tests.pages import PAGES, ROOT, Block, check_command, commands_of, is_simple, parse_blocks

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\$ )?(marlnb|python|make|pip|uv|wandb) ", re.MULTILINE)


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


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_have_a_language(path: Path) -> None:
    """A block without a language is not run."""
    unmarked = [code for language, code in FENCE.findall(path.read_text()) if not language and COMMAND.search(code)]
    assert [code for code in unmarked if not code.startswith("job ")] == []  # the end of a failed job's log
