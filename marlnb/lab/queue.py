"""The batches under some folders with the state of each job, and what can be done with jobs.

All pages of a kernel share one Queue, so that a scheduler is called once per interval, however many pages ask.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, Batch
from marlnb.batch.cancel import cancel
from marlnb.batch.executor import EXECUTORS
from marlnb.batch.job.failures import describe_failure, read_tail, rerun_command
from marlnb.batch.job.job import UNKNOWN, JobInfo
from marlnb.batch.job.training_progress import run_of_job
from marlnb.batch.overview import JobRow, find_batch_folders, job_rows, query_executors, summarize
from marlnb.batch.submit import plan_submission, submit_plan
from marlnb.display.formatting import count
from marlnb.errors import BatchError, MarlnbError, unknown
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run

SEARCH_INTERVAL_S = 10.0
MAX_SEARCH_SHARE = 0.05  # of the time is spent on searching for batches
N_LOG_LINES = 500
WAITING = ("waiting", "queued")


@dataclass(frozen=True)
class _Answer:
    """What an executor answered at a time: by batch, the state of its jobs; and why it did not answer."""

    at: float
    infos: Mapping[Path, Mapping[str, JobInfo]]
    problem: str


@dataclass
class _Search:
    """Folders of batches by the folder that was searched, and the time of the next search."""

    folders: dict[Path, list[Path]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    next_at: float = 0.0


class Queue:
    """Batches, with the newest answers of their executors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches: dict[tuple[str, ...], _Search] = {}
        self._batches: dict[Path, Batch] = {}
        self._answers: dict[str, _Answer] = {}

    def read(self, folders: Sequence[str], *, fresh: bool = False) -> dict[str, Any]:
        """The batches under some folders.

        Args:
            fresh: search for new batches now.
        Returns:
            batches: path, name, notebook, executor, summary, and jobs as `read_job` returns them. problems: what could
            not be read, and why. asked_s: by executor that is not asked each time, the age of its answer in seconds.
        """
        with self._lock:
            search = self._search(folders, fresh)
            problems = list(search.problems)
            opened = self._open(search, problems)
            executors = sorted({batch.profile.executor for _, batch in opened})
            answers = {executor: self._ask(executor) for executor in executors}
        problems += [answer.problem for answer in answers.values()]
        batches = []
        for name, batch in opened:
            infos = answers[batch.profile.executor].infos.get(batch.path, {})
            try:
                batches.append({"name": name, **_batch(batch, infos)})
            except Exception as error:  # a file may hold anything
                problems.append(f"{batch.path} cannot be read: {error}")
        now = time.monotonic()
        asked_s = {name: now - answer.at for name, answer in answers.items() if _interval_s(name) > 0}
        return {"batches": batches, "problems": list(dict.fromkeys(filter(None, problems))), "asked_s": asked_s}

    def read_job(self, path: str, name: str) -> dict[str, Any]:
        """One job: its state, folder, output, failure and rerun_command, and its run if it has one."""
        batch = Batch.open(path)
        with self._lock:
            self._batches[batch.path] = batch
            answer = self._ask(batch.profile.executor)
        infos = answer.infos.get(batch.path, {})
        rows = {row.job.name: row for row in job_rows(batch, infos)}
        if name not in rows:
            raise BatchError(unknown(f"job of {batch.path}", name, rows))
        row = rows[name]
        run = run_of_job(row.job.folder)
        has_ended_early = row.state in ("failed", "interrupted", "stopped")
        return {
            "job": _job(row, infos.get(name, UNKNOWN), batch.profile.time_limit_s),
            "folder": str(row.job.folder),
            "run": str(run) if is_run(run) else "",
            "output": "\n".join(read_tail(row.job.log, N_LOG_LINES)),
            "failure": describe_failure(row.job, row.status) if has_ended_early else "",
            "rerun_command": rerun_command(row.job),
            "problem": answer.problem,
        }

    def cancel(self, path: str, names: Sequence[str]) -> str:
        """Ends jobs as `marlnb cancel` does, all that have not ended if names is empty; what happens, in words."""
        effects = Counter(cancel(Batch.open(path), names).values())
        self._forget_answers()
        lines = [f"{count(n, 'job')}: {effect}" for effect, n in effects.items()]
        return "; ".join(lines) or "no job is running or queued"

    def requeue(self, path: str, names: Sequence[str]) -> str:
        """Submits jobs that are not complete as `marlnb batch BATCH --only JOB` does; all of them if names is empty."""
        Batch.open(path)  # the path of a notebook would make a new batch
        plan = plan_submission(path, {}, only=names)
        submit_plan(plan)
        self._forget_answers()
        n = len(plan.submits) or int(plan.report is not None and plan.report.submits)
        if n:
            return f"{count(n, 'job')} submitted"
        actions = {planned.action.partition(":")[0] for planned in plan.jobs if planned.job.name in names or not names}
        return f"nothing to submit: {', '.join(sorted(actions))}"

    def _search(self, folders: Sequence[str], fresh: bool) -> _Search:
        """Searches the folders, at most once in SEARCH_INTERVAL_S unless `fresh`."""
        search = self._searches.setdefault(tuple(folders), _Search())
        started = time.monotonic()
        if started < search.next_at and not fresh:
            return search
        search.folders, search.problems = {}, []
        for folder in dict.fromkeys(expanded(folder).absolute() for folder in folders):
            try:
                search.folders[folder] = find_batch_folders(folder)
            except (MarlnbError, OSError) as error:
                search.problems.append(str(error))
        ended = time.monotonic()
        search.next_at = ended + max(SEARCH_INTERVAL_S, (ended - started) / MAX_SEARCH_SHARE)
        return search

    def _open(self, search: _Search, problems: list[str]) -> list[tuple[str, Batch]]:
        """The batches that can be read, each with its name within the folder that was searched."""
        opened: dict[Path, tuple[str, Batch]] = {}
        for folder, paths in search.folders.items():
            for path in paths:
                if path in opened or not (path / BATCH).is_file():  # found twice, or deleted since the search
                    continue
                try:
                    self._batches[path] = Batch.open(path)
                    opened[path] = (str(path.relative_to(folder)), self._batches[path])
                except Exception as error:  # the file may hold anything
                    self._batches.pop(path, None)
                    problems.append(f"{path} cannot be read: {error}")
        return list(opened.values())

    def _ask(self, executor: str) -> _Answer:
        """What an executor knows of all batches that are shown: its last answer, unless that is too old."""
        self._batches = {path: batch for path, batch in self._batches.items() if (path / BATCH).is_file()}
        batches = [batch for batch in self._batches.values() if batch.profile.executor == executor]
        last = self._answers.get(executor)
        is_known = last is not None and all(batch.path in last.infos for batch in batches)
        if last is None or not is_known or time.monotonic() - last.at > _interval_s(executor):
            infos, problem = query_executors(batches)
            paths = [batch.path for batch in batches]
            last = self._answers[executor] = _Answer(time.monotonic(), dict(zip(paths, infos)), problem)
        return last

    def _forget_answers(self) -> None:
        """After an action, what it changed is read at once."""
        with self._lock:
            self._answers.clear()


def _interval_s(executor: str) -> float:
    """Between two calls of a scheduler; 0 of an executor that is unknown, whose problem is shown each time."""
    return EXECUTORS.get(executor).query_interval_s if executor in EXECUTORS else 0.0


def _batch(batch: Batch, infos: Mapping[str, JobInfo]) -> dict[str, Any]:
    rows, limit_s = job_rows(batch, infos), batch.profile.time_limit_s
    return {
        "path": str(batch.path),
        "notebook": batch.notebook,
        "executor": batch.profile.executor,
        "summary": summarize(rows),
        "jobs": [_job(row, infos.get(row.job.name, UNKNOWN), limit_s) for row in rows],
    }


def _job(row: JobRow, info: JobInfo, limit_s: int | None) -> dict[str, Any]:
    """A job in JSON; `time_left_s` until the time limit ends this attempt, `node` where it runs or last ran.

    `notebook` is the path of the executed notebook, empty while there is none.
    """
    status, is_running, executed = row.status, row.state == "running", row.job.folder / "notebook.ipynb"
    time_left_s = None
    if is_running and (status.ends or limit_s is not None):
        time_left_s = max(0.0, (status.ends or status.started + (limit_s or 0)) - time.time())
    return {
        "name": row.job.name,
        "state": row.state,
        "reason": status.reason,
        "progress": row.progress if is_running else "",
        "attempt": status.attempt,
        "seconds": status.seconds,
        "id": info.id or status.scheduler_id,
        "node": "" if row.state in WAITING else info.node or status.host,
        "time_left_s": time_left_s,
        "notebook": str(executed) if executed.is_file() else "",
    }
