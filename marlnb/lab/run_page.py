"""What a run's page shows and does: its curves, settings, events, checkpoints and recordings; requests and code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from marlnb.batch.cancel import stop
from marlnb.disk import open_log
from marlnb.errors import CheckpointError, MarlnbError, RunError, unknown
from marlnb.lab.row_index import RowIndex
from marlnb.text_files import read_bytes
from marlnb.training.control import cancel_request, is_requested, request
from marlnb.training.runs.checkpoints.manifest import read_manifest
from marlnb.training.runs.curves import Curves, hidden_at_first, metric_curves, return_curves
from marlnb.training.runs.files import EVENTS, EXPERIMENT, LOCK, METRICS, is_run, numbered, read_json
from marlnb.training.runs.listing import summary
from marlnb.training.runs.lock import is_locked

MAX_POINTS = 400  # of each kind
MAX_INDICES = 16  # of runs whose pages were read last
MAX_EVENT_BYTES = 50_000
MAX_CHECKPOINTS = 50
RECORDED_EPISODES = 20  # of a run that has no recording yet
LOG = "output.log"
RESUMED: list[subprocess.Popen[bytes]] = []  # training runs that this process started and that may still run
Action = Literal["pause", "continue", "save", "stop", "resume"]


def run_page(run: Path) -> dict[str, Any]:
    """Everything that a run's page shows. Parts that cannot be read say why in `problems`."""
    _check_run(run)
    problems: list[str] = []
    page: dict[str, Any] = {"summary": summary(run).to_json(), "requests": _requests(run)}
    parts: dict[str, Callable[[Path], Any]] = {
        "experiment": _experiment,
        "curves": partial(run_curves, problems=problems),
        "events": _events,
        "checkpoints": _checkpoints,
        "recordings": _recordings,
    }
    for name, read in parts.items():
        try:
            page[name] = read(run)
        except (OSError, MarlnbError) as error:
            page[name] = None
            problems.append(str(error))
    return {**page, "problems": list(dict.fromkeys(problems))}


def run_curves(run: Path, n_points: int = MAX_POINTS, *, problems: list[str]) -> dict[str, Any]:
    """By kind, the curves of a run: `{"returns": {name: {"x": [...], "y": [...]}}}`.

    `hidden` has the names of returns that are not drawn at first.

    Args:
        n_points: the maximum number of iterations, of those with returns, and of those with evaluations.
        problems: receives what is wrong with damaged lines, which are skipped.
    Raises:
        OSError: the metrics cannot be read.
    """
    rows = _row_index(run / METRICS).sample(n_points, problems)
    curves = {"returns": _json(return_curves(rows)), "numbers": _json(metric_curves(rows))}
    return {**curves, "hidden": hidden_at_first(rows)}


def run_code(run: Path) -> dict[str, Any]:
    """Commands and cells for a run: `command` and `code` compose it again, `attach`, `record` and `microscope` open it.

    Raises:
        RunError, ConfigError: its experiment cannot be read.
    """
    from marlnb.composition.overrides import as_code, as_command
    from marlnb.experiment import Experiment

    experiment = Experiment.from_json(read_json(run / EXPERIMENT), origin=str(run))
    recordings = {
        each["name"]: f"import marlnb as mnb\n\nmnb.microscope({each['path']!r})" for each in _recordings(run)
    }
    return {
        "command": as_command(experiment),
        "code": as_code(experiment),
        "attach": f"import marlnb as mnb\n\nmnb.attach({str(run)!r})",
        "record": "import marlnb as mnb\n\n"
        f'recording = mnb.record({str(run)!r}, episodes={RECORDED_EPISODES}, exist="open")\n'
        "mnb.microscope(recording)",
        "microscope": recordings,
    }


def act(run: Path, action: Action) -> str:
    """Sends a request to a training run, or resumes it in a process of its own; returns what happens, in words.

    Raises:
        RunError: nothing is trained there, it is trained already, or the run was deleted or renamed.
    """
    _check_run(run)
    if action == "stop":
        return stop(run)
    is_alive = is_locked(run / LOCK)
    if action == "resume":
        if is_alive:
            raise RunError(f"{run} is being trained already")
        return _resume(run)
    if not is_alive:
        raise RunError(f"nothing is trained in {run}")
    if action == "continue":
        cancel_request(run, "pause")
        return "the training continues"
    if action == "pause" or action == "save":
        request(run, action)
        return f"the training {'pauses' if action == 'pause' else 'saves'} after this iteration"
    raise RunError(unknown("action", action, ("pause", "continue", "save", "stop", "resume")))


def _check_run(run: Path) -> None:
    if not is_run(run):
        raise RunError(f"{run} is not a run folder any more")


def _resume(run: Path) -> str:
    words = [sys.executable, "-m", "marlnb", "resume", str(run), "--quiet"]
    with open_log(run / LOG) as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    RESUMED[:] = [*(each for each in RESUMED if each.poll() is None), process]
    return f"process {process.pid} on this machine resumes it; what it prints is in {LOG} of the run"


@lru_cache(MAX_INDICES)
def _row_index(metrics: Path) -> RowIndex:
    return RowIndex(metrics)


def _requests(run: Path) -> list[str]:
    kinds: tuple[Literal["stop", "pause", "save"], ...] = ("stop", "pause", "save")
    return [kind for kind in kinds if is_requested(run, kind)]


def _experiment(run: Path) -> dict[str, Any]:
    experiment = read_json(run / EXPERIMENT)
    try:
        json.dumps(experiment, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{run / EXPERIMENT} is damaged: {error}") from error
    return experiment


def _events(run: Path) -> list[str]:
    file = run / EVENTS
    size = file.stat().st_size if file.is_file() else 0
    data = read_bytes(file, offset=max(0, size - MAX_EVENT_BYTES), follow=False) if size else b""
    return data.decode("utf-8", errors="replace").splitlines()


def _checkpoints(run: Path) -> list[dict[str, Any]]:
    """The newest first. A damaged one has a `problem`; one that a training run has just removed is skipped."""
    folder = run / "checkpoints"
    rows = []
    for number in numbered(folder)[: -MAX_CHECKPOINTS - 1 : -1]:
        path, row = folder / str(number), {"iteration": number, "path": str(folder / str(number))}
        try:
            row["size_bytes"] = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            manifest = read_manifest(path)
            row |= {"frames": manifest.get("frames"), "returns": manifest.get("returns") or {}}
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            if not path.is_dir():
                continue
            row["problem"] = str(error)
        rows.append(row)
    return rows


def _recordings(run: Path) -> list[dict[str, Any]]:
    files = [file for file in sorted((run / "recordings").glob("*.h5")) if file.is_file()]
    return [{"name": file.stem, "path": str(file), "size_bytes": file.stat().st_size} for file in files]


def _json(curves: Curves) -> dict[str, Any]:
    return {name: {"x": xs, "y": ys} for name, (xs, ys) in curves.items()}
