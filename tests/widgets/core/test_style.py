"""The classes of the widgets on a page that the JupyterLab extension styles too."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CLASS = re.compile(r"marlnb-[a-z-]+")


def test_the_extension_does_not_style_the_notebooks_widgets() -> None:
    sources = [path for kind in ("*.py", "*.js") for path in (ROOT / "marlnb" / "widgets").rglob(kind)]
    ours = {name for path in sources if path.parent.name != "bundles" for name in CLASS.findall(path.read_text())}
    assert {"marlnb-form", "marlnb-table"} <= ours
    rules = "".join(path.read_text() for path in (ROOT / "extensions" / "lab" / "style").glob("*.css"))
    selectors = [part for text in re.findall(r"([^{}]+)\{", rules) for part in text.split(",")]
    ours.add("marlnb-controls")  # of the charts
    assert [part for part in selectors if ours & {*CLASS.findall(part)} and ".marlnb-lab" not in part] == []
