"""The first hour without a clone: its notebooks are copied once, and every link in them leads to a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from marlnb.lab.first_hour import CHECKOUT, first_hour
from marlnb.lab.verbs import Session
from tests.lab.test_service import ask

LINK = re.compile(r"\]\(([^()\s#]+)")


def test_notebooks_are_copied_once_and_their_links_work(tmp_path: Path) -> None:
    page = Path(ask(Session(), "first_hour", folder=str(tmp_path))["answer"])
    assert page == tmp_path / "first-hour" / "README.md"
    files = [path for path in page.parent.rglob("*") if path.is_file()]
    assert page.parent / "quickstart.ipynb" in files and len(files) > 10
    for path in files:
        text = path.read_text()
        if path.suffix == ".ipynb":
            text = "\n".join(
                "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
            )
        missing = [link for link in LINK.findall(text) if "://" not in link and not (path.parent / link).exists()]
        assert missing == [], path
    (page.parent / "quickstart.ipynb").write_text("mine")
    first_hour(tmp_path)
    assert (page.parent / "quickstart.ipynb").read_text() == "mine"


def test_a_clone_has_its_own() -> None:
    assert first_hour(CHECKOUT.parent) == CHECKOUT / "README.md"
