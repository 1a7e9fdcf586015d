"""Collects the code blocks of the documentation's pages as tests, each page in order and in a folder of its own.

Python blocks are executed, shell blocks run by `bash -e`, YAML and JSON blocks parsed; a block whose first line is
`# file: NAME` is written to that file, for the blocks after it. Every page starts in an empty folder that holds
`runs/talk`, a copy of data/speaker_listener with a short recording, and links to `data`, `notebooks` and `benchmarks`.

A comment before a block, invisible on the page, changes how it is tested:

    <!-- test: frames=2_000_000 -> frames=6_400; episodes=200 -> episodes=4 -->      smaller parameters
    <!-- test: skip, REASON -->                                                       not run
    <!-- test: raises AnalysisError -->                                               the error that the page describes

and a comment of its own runs code that the page does not show:

    <!-- test: setup
    import torch
    -->
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/*.md", "README.md", "notebooks/README.md", "CONTRIBUTING.md")
BLOCK = re.compile(
    r"^<!-- test: setup\n(?P<setup>.*?)^-->$"
    r"|^(?:<!-- test: (?P<directive>(?:(?!-->).)*?) -->\n+)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# file: (\S+)\n")
SHELLS = ("sh", "bash")
TEXT_ONLY = ("console", "text", "ini", "toml", "dockerfile", "make", "html")  # shown, not run
run_python = PythonEvaluator()


def parse_blocks(document: Document) -> Iterator[Region]:
    """A region for each block that is tested."""
    for match in BLOCK.finditer(document.text):
        language, directive = match["language"] or "python", match["directive"] or ""
        if language not in TEXT_ONLY:
            group = "setup" if match["setup"] is not None else "code"
            start, end = match.span(group)
            yield Region(start, end, parsed=Block(language, match[group], directive), evaluator=evaluate)


class Block(str):
    """The code of a block as it is tested, with its language and its directive."""

    line_offset = 0

    def __new__(cls, language: str, code: str, directive: str) -> Block:
        block = super().__new__(cls, code)
        block.language, block.directive = language, directive
        return block

    language: str
    directive: str


def evaluate(example: Example) -> None:
    block: Block = example.parsed
    code, error = str(block), ""
    if block.directive.startswith("skip"):
        reason = block.directive.removeprefix("skip").strip(" ,")
        assert reason, "a skipped block states its reason: <!-- test: skip, REASON -->"
        pytest.skip(reason)
    elif block.directive.startswith("raises "):
        error = block.directive.removeprefix("raises ")
    elif block.directive:
        for replacement in block.directive.split("; "):
            old, arrow, new = replacement.partition(" -> ")
            assert arrow and old in code, f"the block does not contain {old!r}, or the directive has no ' -> '"
            code = code.replace(old, new)
    file = FILE.match(code)
    if file:
        path = Path(file[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    elif block.language == "python":
        example.parsed = Block("python", code, "")
        run_python_block(example, error)
    elif block.language in SHELLS:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run(["bash", "-e", "-c", code], check=True, env={**os.environ, "PATH": path}, timeout=300)
    elif block.language in ("yaml", "json"):
        {"yaml": yaml.safe_load, "json": json.loads}[block.language](code)
    else:
        raise AssertionError(f"a block of language {block.language!r} cannot be tested; valid: python, sh, yaml, json")


def run_python_block(example: Example, error: str) -> None:
    if not error:
        run_python(example)
        return
    with pytest.raises(Exception) as raised:
        run_python(example)
    assert type(raised.value).__name__ == error, raised.value


def open_workspace(namespace: dict[str, Any]) -> None:
    """A user's folder after the README's first five minutes, for the page's blocks."""
    folder = TemporaryDirectory(prefix="marlnb-page-")
    workspace = Path(folder.name)
    for name in ("data", "notebooks", "benchmarks"):
        (workspace / name).symlink_to(ROOT / name)
    copytree(ROOT / "data" / "speaker_listener", workspace / "runs" / "talk")
    namespace.update(__name__="__main__", _folder=folder, _before=(Path.cwd(), sys.path[:], set(sys.modules)))
    os.chdir(workspace)
    sys.path.insert(0, str(workspace))
    record_talk()


def record_talk() -> None:
    """runs/talk/recordings/recording.h5: every site, 40 episodes."""
    import marlnb

    marlnb.record("runs/talk", episodes=40, progress=False)


def close_workspace(namespace: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    plt.close("all")
    cwd, path, modules = namespace["_before"]
    os.chdir(cwd)
    sys.path[:] = path
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
