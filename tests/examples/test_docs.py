"""docs/extending.md shows the examples as they are tested, and CONTRIBUTING.md names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import marlnb as mnb

ROOT = Path(__file__).parents[2]


def test_page_shows_the_tested_code() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n# (tests/examples/\S+)\n(.*?)```\n", page, re.DOTALL)
    assert len(blocks) == 9
    for path, code in blocks:
        assert code == (ROOT / path).read_text(), f"docs/extending.md shows another version of {path}"


def test_contributing_names_what_exists() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## Add something")[1].split("##")[0]
    names, files = set(re.findall(r"mnb\.(\w+)", table)), set(re.findall(r"`((?:marlnb|tests|docs)/[\w./]+)`", table))
    assert names and [name for name in names if not hasattr(mnb, name)] == []
    assert files and [file for file in files if not (ROOT / file).exists()] == []
