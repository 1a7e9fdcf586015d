"""Run notebooks like `jupyter execute`, with long timeouts for a busy machine."""

from __future__ import annotations

import tempfile
from typing import Any

from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

GUARD_S = 300
"""Timeout for a hanging kernel; by default, nbclient drops output 4 s after a cell has ended."""


def run_cells(notebook: NotebookNode, **options: Any) -> None:
    """Executes a notebook in place. The kernel uses sockets in a folder: a port could be taken."""
    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        connection = {"transport": "ipc", "ip": f"{folder}/kernel"}
        NotebookClient(
            notebook,
            kernel_name="python3",
            startup_timeout=GUARD_S,
            iopub_timeout=GUARD_S,
            config=Config({"KernelManager": connection}),
            **options,
        ).execute()
