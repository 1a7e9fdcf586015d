"""The pages of the site, a hook of MkDocs.

The site has the repository's layout: README.md is its home, docs/ and notebooks/ are folders of it. So every relative
link works on GitHub and in the site. Notebooks become pages without their outputs, other files that a page links to are
copied, and reference/ is made from the docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

from docs.site.reference import reference_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/*.md", "data/README.md"),
    *("docs/*.md", "notebooks/**/*.md", "notebooks/**/*.ipynb"),
)
OUTSIDE = "../"  # not in the repository
INDEX = "docs/index.md"
STYLE = "docs/site/site.css"
LINK = re.compile(r"(?<=\]\()(?!\w+:)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Arranges the pages as docs/index.md lists them: a section for each of its headings; then pages it leaves out."""
    parts = re.split(r"^## (.+)$", (ROOT / INDEX).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    sections = {title: list(linked_pages(INDEX, text)) for title, text in zip(parts[::2], parts[1::2])}
    listed = {"README.md", INDEX, *(page for pages in sections.values() for page in pages)}
    more = [as_page(path.relative_to(ROOT).as_posix()) for path in repository_pages()]
    sections |= {"More": [page for page in more if page not in listed], "API reference": list(reference_pages())}
    config.extra_css.append(STYLE)
    config.nav = ["README.md", INDEX, *({title: pages} for title, pages in sections.items() if pages)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Moves docs/ into a folder of the site, and adds the other pages and the files that pages link to."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    texts = {as_page(path.relative_to(ROOT).as_posix()): read_page(path) for path in repository_pages()}
    copied = {target for page, text in texts.items() for target in linked_files(page, text) if target not in texts}
    for page, text in {**texts, **reference_pages()}.items():
        files.append(File.generated(config, page, content=text))
    for path in sorted({*copied, STYLE}):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to a notebook lead to its page."""

    def target(link: re.Match[str]) -> str:
        path = link["path"]
        return (as_page(path) if is_page(repository_path(page.file.src_uri, path)) else path) + (link["anchor"] or "")

    return LINK.sub(target, markdown)


def repository_pages() -> list[Path]:
    paths = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path for path in paths if is_page(path.relative_to(ROOT).as_posix()))


def is_page(path: str) -> bool:
    return path.endswith((".md", ".ipynb")) and not path.startswith(OUTSIDE)


def as_page(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(".md")) if path.endswith(".ipynb") else path


def repository_path(page: str, link: str) -> str:
    return normpath(PurePosixPath(page).parent / link)


def linked_pages(page: str, text: str) -> Iterator[str]:
    """The pages that a page links to, each once."""
    paths = (repository_path(page, link["path"]) for link in LINK.finditer(text))
    return (as_page(path) for path in dict.fromkeys(paths) if is_page(path))


def linked_files(page: str, text: str) -> Iterator[str]:
    """The files in the repository that a page links to and shows, except pages."""
    for link in LINK.finditer(text):
        path = repository_path(page, link["path"])
        if not is_page(path) and (ROOT / path).is_file():
            yield path


def read_page(path: Path) -> str:
    """A page's text; of a notebook, its text and code."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    text, _ = MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4))
    return text
