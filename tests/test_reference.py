"""The API reference of `make docs`: which names its pages hold."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

import marlnb
from docs.site.reference import public_documents, reference_pages
from marlnb.analysis.results import Result

DOCUMENTED = [name for names in public_documents().values() for name in names]


def test_every_public_name_is_documented_once() -> None:
    modules = {name for name in marlnb.__all__ if isinstance(getattr(marlnb, name), ModuleType)}
    public = {f"marlnb.{name}" for name in {*marlnb.__all__} - modules - {"__version__"}}
    assert public - {name.replace("marlnb.errors.", "marlnb.") for name in DOCUMENTED} == set()
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


def test_every_documented_name_exists_and_every_result_is_documented() -> None:
    objects = {}
    for name in DOCUMENTED:
        module, _, attribute = name.rpartition(".")
        objects[name] = getattr(importlib.import_module(module), attribute)
    assert {kind.__name__ for kind in Result.__subclasses__() if kind.__module__.startswith("marlnb.")} <= {
        name.rsplit(".", 1)[1] for name in objects
    }


def test_the_first_page_lists_all_names() -> None:
    pages = reference_pages()
    table = pages["reference/index.md"]
    for name in DOCUMENTED:
        assert f"#{name})" in table
        assert sum(f"::: {name}\n" in text for text in pages.values()) == 1


def test_the_help_of_every_option_is_read_also_that_of_a_constant() -> None:
    griffe = pytest.importorskip("griffe", reason="make docs installs it")
    from docs.site.options import OptionHelp

    package = griffe.load("marlnb", extensions=griffe.load_extensions(OptionHelp))
    role = package["populations.builders.alphastar.LeagueExploiterOptions"]
    assert role["count"].docstring.value.endswith("(players)") and role["gate"].docstring.value
