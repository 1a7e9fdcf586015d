"""Open JupyterLab on a folder, at its start page, with Markdown pages rendered.

In a clone of marlnb the start page is notebooks/README.md: the first hour, step by step. Elsewhere it is the README.md
of the folder, if there is one. The server prints its address, and opens a browser if this machine has one. If a port is
taken, it uses the next free one. Ctrl-C twice ends it.

  marlnb lab
  marlnb lab ~/project --port 8890
  marlnb lab --ip 0.0.0.0 --no-browser      # in a container: reachable from outside
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from marlnb.errors import ConfigError
from marlnb.paths import expanded

START_PAGES = ("notebooks/README.md", "README.md")
SETTINGS = Path(__file__).parent / "jupyter"  # a folder of Jupyter's configuration
CONFIG_PATH = "JUPYTER_CONFIG_PATH"
MAX_PORT = 2**16 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=Path(), metavar="FOLDER", type=Path, help="what JupyterLab shows (default: here)")
    add("--start", metavar="FILE", type=Path, help="the file to open first, within FOLDER")
    add("--port", type=int, help="(default 8888)")
    add("--ip", help="the address to listen on (default localhost)")
    add("--no-browser", action="store_true", help="open no browser")


def run(arguments: argparse.Namespace) -> int:
    words = command(arguments)
    sys.stdout.flush()
    os.execve(words[0], words, environment(os.environ))


def command(arguments: argparse.Namespace) -> list[str]:
    """The words that start JupyterLab.

    Raises:
        ConfigError: a port that does not exist, there is no such folder, or no such start page in it.
    """
    if arguments.port is not None and not 0 <= arguments.port <= MAX_PORT:
        raise ConfigError(f"--port must be 0 to {MAX_PORT} (0: any free one); got {arguments.port}")
    folder = expanded(arguments.folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; give the one that JupyterLab should show")
    start = _start_page(folder, arguments.start)
    url = f"/lab/tree/{quote(start.as_posix())}" if start else "/lab"
    words = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", f"--LabApp.default_url={url}"]
    words.append("--LanguageServerManager.autodetect=False")  # its list of what is missing would hide the address
    if arguments.port is not None:
        words.append(f"--ServerApp.port={arguments.port}")
    if arguments.ip is not None:
        words.append(f"--ServerApp.ip={arguments.ip}")
    if arguments.no_browser:
        words.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in a container; Jupyter refuses to run as root otherwise
        words.append("--allow-root")
    return words


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of the server: marlnb's defaults for JupyterLab come after those of the user."""
    paths = [*filter(None, [inherited.get(CONFIG_PATH)]), str(SETTINGS)]
    return {**inherited, CONFIG_PATH: os.pathsep.join(paths)}


def _start_page(folder: Path, requested: Path | None) -> Path | None:
    """The page to open, relative to the folder; None: JupyterLab's launcher."""
    if requested is None:
        return next((Path(page) for page in START_PAGES if (folder / page).is_file()), None)
    page = (folder / requested).resolve()
    if not page.is_file() or not page.is_relative_to(folder):
        raise ConfigError(f"--start {requested}: there is no such file in {folder}")
    return page.relative_to(folder)
