"""What is made of an executed notebook: an HTML copy, and the signature by which Jupyter trusts it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import nbformat
from nbformat.sign import NotebookNotary, SQLiteSignatureStore

from marlnb.batch.job.html_page import make_page

BUSY_S = 10.0  # other jobs of the same user write signatures too


def write_html(notebook: Path) -> Path:
    """An HTML copy beside a notebook, figures included."""
    target = notebook.with_suffix(".html")
    body = make_page(notebook)
    part = target.with_name(f".{target.name}.part")
    part.write_text(body, encoding="utf-8")
    part.replace(target)
    return target


def sign(notebook: Path) -> str:
    """Signs a notebook as its user's own, so that its widgets show; says why where that cannot be done."""
    try:
        notary = NotebookNotary()
        Path(notary.db_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = _Signatures(notary.db_file)
        notary.store = store
        notary.sign(nbformat.read(notebook, as_version=4))
        store.close()
    except (OSError, sqlite3.Error) as error:
        return f"{notebook.name} is not signed ({error}); its widgets show after `jupyter trust {notebook}`"
    return ""


class _Signatures(SQLiteSignatureStore):
    """Jupyter's own file of signatures, which is left alone where it cannot be opened: Jupyter would replace it."""

    def _connect_db(self, db_file: str) -> Any:
        kinds = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
        database = sqlite3.connect(db_file, timeout=BUSY_S, detect_types=kinds)
        self.init_db(database)
        return database
