"""Links between pages: every relative link, picture and anchor exists, as GitHub and the site resolve them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    *DOCS,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted(path for pattern in ("*.md", "*.ipynb") for path in (ROOT / "notebooks").rglob(pattern)),
]
MAX_PICTURE_BYTES = 300_000
CODE = re.compile(r"^```.*?^```|<!--.*?-->", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")
URL = re.compile(r"\w+:")


def text_of(page: Path) -> str:
    """A page without code blocks; of a notebook, its text cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return CODE.sub("", text)


def anchors_of(text: str) -> Iterator[str]:
    """The anchors of a page's headings: lower case, no punctuation, hyphens for spaces; -1, -2, … if repeated."""
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", text, flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        n = seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{n}" if n else anchor


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.finditer(re.sub(r"`[^`\n]*`", "`code`", text_of(page))):
        target = link["target"]
        path, _, anchor = target.partition("#")
        file = page if not path else page.parent / path
        if URL.match(target):
            continue
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors_of(text_of(file)):
            yield f"{target}: no such heading; there are {sorted(anchors_of(text_of(file)))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_link_to_a_missing_file_or_heading_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `code` title, and more\n\n[a](#a-code-title-and-more) [b](#b) [c](c.md) `[d](d.md)` [e](https://e.org)\n"
    )
    assert [message.split(":")[0] for message in broken_links(page)] == ["#b", "c.md"]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_starts_with_what_it_answers_and_a_picture(page: Path) -> None:
    title, answer, picture, *_ = [block for block in text_of(page).split("\n\n") if block.strip()]
    assert title.startswith("# ") and "\n" not in title
    assert re.match(r"[A-Za-z]", answer), "a sentence that says what the page answers"
    alternative = re.fullmatch(r"!\[(.+)\]\(images/[\w-]+\.(?:png|svg)\)", picture.strip())
    assert alternative, "then a picture with a description"
    assert len(alternative[1].split()) >= 4, "the description says what the picture shows"


def test_the_index_leads_to_every_page() -> None:
    linked = {link["target"].partition("#")[0] for link in LINK.finditer(text_of(ROOT / "docs" / "index.md"))}
    assert {page.name for page in DOCS} - linked == {"index.md"}


def test_pictures_are_small_and_shown_somewhere() -> None:
    shown = {(page.parent / link["target"]).resolve() for page in PAGES for link in LINK.finditer(text_of(page))}
    for picture in sorted((ROOT / "docs" / "images").glob("*.[ps][nv]g")):
        assert picture.stat().st_size < MAX_PICTURE_BYTES, picture.name
        assert picture in shown, f"no page shows {picture.name}"
