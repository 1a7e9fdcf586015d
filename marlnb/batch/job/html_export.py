"""The HTML copy of an executed notebook, and the signature with which Jupyter trusts the notebook."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import nbformat
from nbformat.sign import NotebookNotary, SQLiteSignatureStore

from marlnb.batch.job.html_page import make_page
from marlnb.training.runs.files import write_atomically

LOCK_TIMEOUT_S = 10.0  # other jobs of the same user write to the same database


def write_html(notebook: Path) -> Path:
    """Writes an HTML copy next to a notebook, with its figures."""
    target = notebook.with_suffix(".html")
    write_atomically(target, make_page(notebook), sync=False)
    return target


def sign(notebook: Path) -> str:
    """Signs a notebook, so that Jupyter shows its widgets; returns the problem if that fails, else an empty text."""
    try:
        notary = NotebookNotary()
        Path(notary.db_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = _Signatures(notary.db_file)
        notary.store = store
        notary.sign(nbformat.read(notebook, as_version=4))
        store.close()
    except (OSError, sqlite3.Error) as error:
        return f"{notebook.name} could not be signed ({error}); to show its widgets: jupyter trust {notebook}"
    return ""


class _Signatures(SQLiteSignatureStore):
    """Jupyter's database of signatures. Jupyter replaces one that it cannot open; this class leaves it as it is."""

    def _connect_db(self, db_file: str) -> Any:
        kinds = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
        database = sqlite3.connect(db_file, timeout=LOCK_TIMEOUT_S, detect_types=kinds)
        self.init_db(database)
        return database
