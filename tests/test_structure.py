"""The package's files: none import each other in a circle, imports for types and inside functions included; make's
targets exist.

A new circle is cured rather than listed: move what both files need below them, or register it
(`marlnb/plugins/builders.py`).
"""

from __future__ import annotations

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
