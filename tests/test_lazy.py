from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import marlnb
import marlnb.plots
import marlnb.widgets

PACKAGES = (marlnb, marlnb.plots, marlnb.widgets)


def imports_for_types(package: ModuleType) -> dict[str, str]:
    """Module by name, from the imports under `if TYPE_CHECKING:` as Python's own parser reads them."""
    assert package.__file__ is not None
    nodes = ast.parse(Path(package.__file__).read_text()).body
    (block,) = (node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_that_type_checkers_see_is_public_and_the_same_object(package: ModuleType) -> None:
    modules = imports_for_types(package)
    assert package.__all__ == sorted(modules)
    for name, module in modules.items():
        home = importlib.import_module(module)
        assert getattr(package, name) is getattr(home, name)
        assert name in dir(package)


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(AttributeError, match="module 'marlnb' has no attribute 'Experimnt'; did you mean 'Experiment'"):
        marlnb.Experimnt  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'marlnb.plots' has no attribute 'tuning_curve'; did you mean"):
        marlnb.plots.tuning_curve  # noqa: B018
