"""Notebooks run as `jupyter execute` runs them, waited for however busy the machine is."""

from __future__ import annotations

import tempfile
from typing import Any

from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

GUARD_S = 300
"""After which a kernel that hangs is given up; by default what a cell showed is lost 4 s after it has ended."""


def run_cells(notebook: NotebookNode, **options: Any) -> None:
    """Executes a notebook in place. The kernel is reached over sockets in a folder: a port could be taken by others."""
    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        reached = {"transport": "ipc", "ip": f"{folder}/kernel"}
        NotebookClient(
            notebook,
            kernel_name="python3",
            startup_timeout=GUARD_S,
            iopub_timeout=GUARD_S,
            config=Config({"KernelManager": reached}),
            **options,
        ).execute()
