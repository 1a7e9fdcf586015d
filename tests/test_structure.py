"""The package's files: none import each other in a circle, imports for types and inside functions included; make's
targets exist.

A new circle is cured rather than listed: move what both files need below them, or register it
(`marlnb/plugins/builders.py`). A function that opens an environment ends its worker processes after an interrupt.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp  # import-linter's
import networkx  # torch's
import pytest


def circles(package: str) -> set[frozenset[str]]:
    """The sets of modules that import each other, directly or through others."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    imports = networkx.DiGraph(
        (module, imported) for module in graph.modules for imported in graph.find_modules_directly_imported_by(module)
    )
    return {frozenset(modules) for modules in networkx.strongly_connected_components(imports) if len(modules) > 1}


def test_no_files_import_each_other() -> None:
    unexpected = circles("marlnb")
    assert not unexpected, "\n".join(", ".join(sorted(modules)) for modules in unexpected)


def test_imports_for_types_and_inside_functions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "top.py").write_text("from circular.left import x\n")
    (package / "left.py").write_text("def f():\n    from circular.right import g\n")
    code = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from circular.left import f\n"
    (package / "right.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("circular") == {frozenset({"circular.left", "circular.right"})}


def test_every_target_of_make_has_a_rule() -> None:
    """make reports success for a name that `.PHONY` lists and nothing makes."""
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    (names,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    rules = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert set(names.split()) - set(rules) == set()


OPENERS = {"build_env", "prepare", "_loop"}  # they return environments, or contexts that hold one
OPENED_BY_OTHERS = {
    "prepare": "a context: who enters it closes",
    "_loop": "a context: who enters it closes",
    "replay_steps": "a generator, which threads read: Ctrl-C interrupts the main thread alone",
    "after_iteration": "called by `train`, which closes",
    "_policies": "of a command, whose processes end with it",
}


def unclosed(source: str) -> set[str]:
    """Names of functions that open an environment in a `with`, without `@closing_pools()`.

    An interrupt before the `with` is entered leaves the environment's worker processes.
    """
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        for block in ast.walk(function)
        if isinstance(block, ast.With)
        for called in ast.walk(ast.Tuple([item.context_expr for item in block.items]))
        if isinstance(called, ast.Call) and ast.unparse(called.func).split(".")[-1] in OPENERS
        if "closing_pools()" not in map(ast.unparse, function.decorator_list)
    }


def test_an_interrupt_while_an_environment_is_opened_leaves_no_process() -> None:
    package = Path(__file__).parents[1] / "marlnb"
    names = {name for path in package.rglob("*.py") for name in unclosed(path.read_text())}
    assert names == set(OPENED_BY_OTHERS)
    assert unclosed("def play(run):\n    with closing(run.build_env(2)) as env, edited():\n        pass\n") == {"play"}
