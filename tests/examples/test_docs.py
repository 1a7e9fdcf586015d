"""docs/extending.md shows the examples as they are tested."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_page_shows_the_tested_code() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n# (tests/examples/\S+)\n(.*?)```\n", page, re.DOTALL)
    assert len(blocks) == 9
    for path, code in blocks:
        assert code == (ROOT / path).read_text(), f"docs/extending.md shows another version of {path}"
