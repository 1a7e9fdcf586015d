"""Collects the code blocks of the documentation's pages as tests, each page in order and in a folder of its own.

Python blocks are executed as a notebook's cells would be (`await` is allowed). Every command of a shell block runs, and
of a console block those after a prompt: `marlnb` in this process, others in bash. YAML and JSON blocks are parsed. A
block whose first line is a comment with a file's name, `# corridor.py`, is written to that file, for the blocks after
it. Cells of a hosted notebook, with `!commands`, are `ipython` blocks, which are checked and not run. Blocks without a
language, such as trees of folders, are text. Every page starts in a folder of its own, without runs, that holds copies
of `data` and `notebooks`, and links to the other folders of a checkout; `$HOME` is in that folder too.

A comment before a block, invisible on the page, changes how it is tested:

    <!-- test: frames=2_000_000 -> frames=6_400; episodes=200 -> episodes=4 -->      smaller parameters
    <!-- test: warns; total=9_000 -> total=90 -->                    another library warns, which is no error here
    <!-- test: skip, REASON -->                                      not run; its commands and syntax are checked
    <!-- test: raises AnalysisError -->                                               the error that the page describes

and a comment of its own runs code that the page does not show:

    <!-- test: setup
    import torch
    -->
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from sybil import Document, Example, Region, Sybil

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/*.md", "README.md", "notebooks/README.md", "benchmarks/*.md", "CONTRIBUTING.md")
BLOCK = re.compile(
    r"^<!-- test: setup\n(?P<setup>.*?)^-->$"
    r"|^(?:<!-- test: (?P<directive>(?:(?!-->).)*?) -->\n+)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w./~-]+\.(?:py|yaml|sh|toml))\n")
SHELLS = ("sh", "bash", "console")
PROMPTS = {"console": "$ ", "ipython": "!"}
TEXT_ONLY = ("text", "ini", "toml", "dockerfile", "make", "html")  # shown, not run
TIMEOUT_S = 300  # of one command


@dataclass(frozen=True)
class Block:
    """A block as it is tested: its language, code and directive."""

    language: str
    code: str
    directive: str = ""

    def replaced(self) -> str:
        """The code with the replacements of the directive."""
        code = self.code
        for replacement in self.directive.removeprefix("warns").removeprefix("; ").split("; "):
            if not replacement:
                continue
            old, arrow, new = replacement.partition(" -> ")
            assert arrow and old in code, f"the block does not contain {old!r}, or the directive has no ' -> '"
            code = code.replace(old, new)
        return code


def parse_blocks(document: Document) -> Iterator[Region]:
    """A region for each block that is tested."""
    for match in BLOCK.finditer(document.text):
        language, group = match["language"] or "python", "setup" if match["setup"] is not None else "code"
        if language not in TEXT_ONLY:
            block = Block(language, match[group], match["directive"] or "")
            yield Region(*match.span(group), parsed=block, evaluator=evaluate)


def evaluate(example: Example) -> None:
    block: Block = example.parsed
    kind, _, detail = block.directive.partition(" ")
    if block.language == "ipython":
        assert kind.rstrip(",") == "skip", "cells with commands are not run: <!-- test: skip, REASON -->"
    if kind.rstrip(",") == "skip":
        assert detail, "a skipped block states its reason: <!-- test: skip, REASON -->"
        check(block)
        pytest.skip(detail)
    elif kind == "raises":
        with pytest.raises(Exception) as raised:
            run(block.language, block.code, example)
        assert type(raised.value).__name__ == detail, raised.value
    else:
        with warnings.catch_warnings():
            if kind.rstrip(";") == "warns":
                warnings.simplefilter("ignore")
            run(block.language, block.replaced(), example)


def run(language: str, code: str, example: Example) -> None:
    file = FILE.match(code)
    if file:
        write_file(Path(file[1]).expanduser(), code)
    elif language == "python":
        run_python(code, example)
    elif language in SHELLS:
        run_shell(commands_of(language, code))
    elif language in ("yaml", "json"):
        {"yaml": yaml.safe_load, "json": json.loads}[language](code)
    else:
        raise AssertionError(f"a block of language {language!r} cannot be tested; valid: python, sh, yaml, json")


def check(block: Block) -> None:
    """What can be checked of a block that is not run: that it is Python, and that commands exist with their options."""
    if block.language == "python":
        compile(block.code, "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if block.language == "ipython":
        compile(TransformerManager().transform_cell(block.code), "cell", "exec", dont_inherit=True)
    if block.language in (*SHELLS, "ipython"):
        for command in commands_of(block.language, block.code):
            check_command(command)


def check_command(command: str) -> None:
    """Raises AssertionError if `marlnb` or `make` has no such command, or the command no such option."""
    from marlnb.cli import COMMANDS, parser_of

    words = shlex.split(command, comments=True)
    if words[:1] == ["make"] or words[:2] == ["sudo", "make"]:
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        named = {word for word in words if word not in ("sudo", "make") and "=" not in word}
        unknown = {word for word in named - targets if not word.startswith("bench-")}
        assert not unknown, f"make has no {unknown}: {command}"
    if words[:1] == ["marlnb"] and is_simple(command):
        assert words[1] in COMMANDS, command
        try:
            parser_of(words[1]).parse_intermixed_args(words[2:])
        except SystemExit as stop:
            raise AssertionError(f"marlnb {words[1]} does not take these words: {command}") from stop


def write_file(path: Path, code: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    if path.suffix == ".yaml":
        yaml.safe_load(code)
    importlib.invalidate_caches()


def run_python(code: str, example: Example) -> None:
    source = "\n" * (example.line - 1) + code  # so that tracebacks show the page's lines
    compiled = compile(source, str(example.path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(compiled, example.namespace)
    if inspect.isawaitable(result):
        asyncio.run(_finished(result))


async def _finished(result: Any) -> None:
    await result


def commands_of(language: str, code: str) -> list[str]:
    """The commands of a shell block, of a console block's lines with a prompt, or of cells; continued lines are joined.

    A program of a folder, as a cell's `!env/bin/marlnb`, is named as the program.
    """
    lines = code.replace("\\\n", " ").splitlines()
    if language in PROMPTS:
        prompt = PROMPTS[language]
        lines = [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]
    if language == "ipython":
        lines = [re.sub(r"^\S+/bin/(?=\w)", "", line) for line in lines]
    return [line for line in lines if shlex.split(line, comments=True)]


def is_simple(command: str) -> bool:
    """Whether a command needs no shell: no pipe, redirection or expansion."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    return not any(set(word) <= set("();<>|&") or word.startswith("~") or "$" in word for word in lexer)


def run_shell(commands: list[str]) -> None:
    """Each `marlnb` command in this process, which saves its start; the whole block in bash if one needs a shell."""
    if not all(map(is_simple, commands)):
        run_bash("\n".join(commands))
        return
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[0] != "marlnb":
            run_bash(command)
            continue
        from marlnb.cli import main

        code = main(words[1:])
        assert code == 0, f"exit code {code}: {command}"


def run_bash(code: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["bash", "-e", "-c", code], check=True, env={**os.environ, "PATH": path}, timeout=TIMEOUT_S)


def open_workspace(namespace: dict[str, Any]) -> None:
    """A new user's folder, for the page's blocks."""
    from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS
    from marlnb.league_config import LEAGUES

    folder = TemporaryDirectory(prefix="marlnb-page-")
    workspace = Path(folder.name)
    for name in ("data", "notebooks"):  # which a page may write into
        copytree(ROOT / name, workspace / name, ignore=ignore_patterns("tictactoe_league"))  # a large one
    for name in ("benchmarks", "teaching-solutions"):
        (workspace / name).symlink_to(ROOT / name)
    registries = {kind: dict(kind._members) for kind in (ENVIRONMENTS, ALGORITHMS, MODELS, LEAGUES) if kind.names()}
    before = (Path.cwd(), sys.path[:], set(sys.modules), dict(os.environ), registries)
    namespace.update(__name__="__main__", _folder=folder, _before=before)
    os.chdir(workspace)
    sys.path.insert(0, str(workspace))
    (workspace / "home").mkdir()
    # caches, as matplotlib's of fonts, stay where they are
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ["HOME"] = str(workspace / "home")


def close_workspace(namespace: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    plt.close("all")
    cwd, path, modules, environ, registries = namespace["_before"]
    os.chdir(cwd)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environ)
    for registry, members in registries.items():  # a page's own environments and networks are not those of other tests
        registry._members = members
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(namespace["_folder"].name):
            del sys.modules[name]
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[parse_blocks],
    patterns=PAGES,
    path=str(ROOT),
    setup=open_workspace,
    teardown=close_workspace,
).pytest()
