"""The notebooks of the first hour: a clone has them, and from a wheel they are copied into the user's folder."""

from __future__ import annotations

import re
from pathlib import Path

from marlnb.disk import write_atomically
from marlnb.errors import RunError

PACKAGE = Path(__file__).parents[1]
INSTALLED = PACKAGE / "lab" / "notebooks"  # in the wheel
CHECKOUT = PACKAGE.parent / "notebooks"
START_PAGE = "README.md"
COPY = "first-hour"
_DOCS_LINK = re.compile(r"\[([^\[\]]*)\]\(\.\./docs/[^()\s]*\)")


def first_hour(folder: Path) -> Path:
    """The start page of the first hour below a folder, that of a clone or a copy in `first-hour`, which is made once.

    Notebooks that are there stay as they are. Links to pages of the documentation, which are not copied, become text.

    Raises:
        RunError: marlnb was installed without its notebooks.
        OSError: the folder cannot be written.
    """
    present = folder / "notebooks" / START_PAGE
    if present.is_file() and (folder / "notebooks" / "quickstart.ipynb").is_file():
        return present
    source = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    if not (source / START_PAGE).is_file():
        raise RunError(f"this installation of marlnb has no notebooks: {source} does not exist")
    for path in sorted([source / START_PAGE, *source.glob("*.ipynb"), *source.glob("teaching/*.ipynb")]):
        target = folder / COPY / path.relative_to(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            text = text.partition("\n## Running them elsewhere")[0] + "\n" if path.name == START_PAGE else text
            write_atomically(target, _DOCS_LINK.sub(r"\1", text))
    return folder / COPY / START_PAGE
