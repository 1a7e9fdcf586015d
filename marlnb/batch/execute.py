"""Executes a notebook into a run folder: `python -m marlnb.batch.execute NOTEBOOK --out RUN -p key=value`.

The executed notebook and its HTML copy land beside the run that it made. Interrupted, by Ctrl-C or a signal, it asks a
training to stop and save; the same command then goes on from there, since a notebook opens the run that it finds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import papermill
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from marlnb.batch.parameters import checked_parameters, parse_parameters
from marlnb.errors import MarlnbError, RunError
from marlnb.training.run import STOP, Run, is_run

ENGINE = "marlnb"
POLL_S = 1.0
INTERRUPTED = 130


def execute(
    notebook: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None, *, progress: bool = True
) -> Path:
    """Runs a notebook from top to bottom and returns the path of the executed copy, `<out>/notebook.ipynb`.

    Both copies (`notebook.html` is the other) are written even when a cell fails. A parameter `run` of the notebook is
    set to `out`. The kernel is reached over ipc: nothing of it can be seen from the network.

    Args:
        parameters: plain JSON values by name, for the notebook's cell tagged `parameters`.
    Raises:
        ConfigError: no such notebook, or a parameter that it does not have; nothing has run.
        RunError: the folder holds something that is no run.
        PapermillExecutionError: a cell failed.
    """
    source, folder = Path(notebook), Path(out).expanduser().absolute()
    given = checked_parameters(source, {} if parameters is None else parameters, folder)
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).unlink(missing_ok=True)  # asked of the execution before this one
    target = folder / "notebook.ipynb"
    try:
        with _short_runtime_folder():
            papermill.execute_notebook(
                source,
                target,
                given,
                engine_name=ENGINE,
                progress_bar=progress,
                config=Config({"KernelManager": {"transport": "ipc"}}),
                run_folder=folder,
            )
    finally:
        if target.exists():
            write_html(target)
    return target


def write_html(notebook: Path) -> Path:
    """An HTML copy beside a notebook, figures included."""
    target = notebook.with_suffix(".html")
    body, _ = HTMLExporter().from_filename(str(notebook))
    part = target.with_name(f".{target.name}.part")
    part.write_text(body, encoding="utf-8")
    part.replace(target)
    return target


class Engine(NBClientEngine):
    """papermill's engine, with the run's own progress beside the count of cells, and signals turned into a request."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> NotebookNode:
        folder = kwargs.pop("run_folder")
        with _showing_run(nb_man, folder), _stopping_on_signals(folder):
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)


papermill_engines.register(ENGINE, Engine)


@contextmanager
def _showing_run(nb_man: Any, folder: Path) -> Iterator[None]:
    """Writes how far the run is behind papermill's bar, once a second."""
    bar: Any = getattr(nb_man, "pbar", None)
    if bar is None:
        yield
        return
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(POLL_S):
            bar.set_postfix_str(describe_progress(folder))

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def describe_progress(folder: Path) -> str:
    """`training 120,000 of 3,000,000 frames, 40,000 a second` while a run in the folder is running, else nothing."""
    if not is_run(folder):
        return ""
    try:
        status = Run.open(folder).status()
    except MarlnbError:
        return ""
    if status.get("state") != "running":
        return ""
    text = f"training: {status.get('frames', 0):,} of {status.get('frames_total', 0):,} frames"
    rate = status.get("frames_per_second")
    return text + (f", {rate:,.0f} a second" if rate else "")


@contextmanager
def _stopping_on_signals(folder: Path) -> Iterator[None]:
    """The first signal asks a running training to stop and save; one more, or one at another time, interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def heed(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not describe_progress(folder):
            raise KeyboardInterrupt
        asked = True
        (folder / STOP).touch()
        os.write(2, b"\nasked the training to stop and save; once more to end at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, heed) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def _short_runtime_folder() -> Iterator[None]:
    """A private folder for the kernel's sockets, whose paths may not be longer than about 100 characters."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["JUPYTER_RUNTIME_DIR"]
            if before is not None:
                os.environ["JUPYTER_RUNTIME_DIR"] = before


def _check_folder(folder: Path) -> None:
    ours = {"notebook.ipynb", "notebook.html", "job.json", STOP}
    if folder.is_dir() and not is_run(folder):
        found = sorted(path.name for path in folder.iterdir() if path.name not in ours)
        if found:
            raise RunError(f"{folder} is there already and holds {', '.join(found[:5])}, but no run; give another name")
    elif folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give the name of a folder")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 when every cell ran, 1 when one failed, 2 for a bad request, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m marlnb.batch.execute", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("notebook", help="the notebook to execute")
    parser.add_argument(
        "--out", required=True, metavar="RUN", help="the run folder; an interrupted one is gone on with"
    )
    parser.add_argument(
        "-p", "--parameter", action="append", default=[], metavar="KEY=VALUE", help="a value for the parameters cell"
    )
    asked = parser.parse_args(arguments)
    again = f"the same command goes on with {asked.out}"
    try:
        executed = execute(asked.notebook, asked.out, parse_parameters(asked.parameter))
    except MarlnbError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {again}", file=sys.stderr)
        return INTERRUPTED
    except PapermillExecutionError as error:
        print(f"{error}\na cell failed; {Path(asked.out) / 'notebook.ipynb'} shows it. {again}", file=sys.stderr)
        return 1
    print(f"{executed}\n{executed.with_suffix('.html')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
