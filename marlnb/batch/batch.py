"""Batch: the folder of a sweep, from which its jobs are submitted, monitored, completed and compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.batch.job.job import Job, JobInfo, JobStatus
from marlnb.batch.offline import job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.submission import SUBMITTED, Submission
from marlnb.batch.sweep.sweep import Sweep
from marlnb.disk import append_line, problem_of, writing
from marlnb.display.formatting import count
from marlnb.display.notebook_html import frame_html, title_html
from marlnb.errors import BatchError, unknown
from marlnb.paths import expanded
from marlnb.training.runs.files import final_name, numbered, remove_temporaries, write_atomically
from marlnb.training.runs.records import read_record

if TYPE_CHECKING:
    import pandas as pd

BATCH = "batch.json"
SOURCE = "source.ipynb"
THEN = "then.ipynb"
JOBS = "jobs"
REPORT = "report"  # folder and job name of the notebook that runs when all jobs are complete
SUBMISSIONS = "submissions"
EVENTS = "events.log"
SUBMIT_LOCK = "submit.lock"
WRITTEN = (SOURCE, THEN, BATCH)
MAX_ROWS = 20  # of the table that a notebook shows


@dataclass(frozen=True, repr=False)
class Batch:
    """The folder of a batch.

    ```
    runs/sweep/                  readable by its owner alone
      batch.json                 the sweep, the profile, the notebook's name and the SHA-256 of its copy
      source.ipynb, then.ipynb   copies of the notebooks
      jobs/<name>/               a job: job.json, job_status.json, output.log, notebook.ipynb, notebook.html, its run
      report/                    the job of `then.ipynb`
      submissions/<n>/           what the executor was given, as the sbatch script, and what it answered
      events.log                 submissions, restarts with their reasons, cancellations
    ```

    Attributes:
        path: absolute path of the folder.
        notebook: file name of the notebook.
        sweep: values of the notebook's parameters.
        profile: where the jobs run and what they need.
        cwd: the folder in which the jobs run: the working folder in which the batch was created; or that of the last
            submission of its notebook, if the former does not exist any more.
        then: file name of the report notebook; None without one.
    """

    path: Path
    notebook: str
    sweep: Sweep
    profile: Profile
    cwd: Path
    then: str | None = None

    @staticmethod
    def create(
        path: str | os.PathLike[str],
        notebook: str | os.PathLike[str],
        sweep: Sweep,
        profile: Profile,
        *,
        then: str | os.PathLike[str] | None = None,
        update_notebook: bool = False,
        write: bool = True,
    ) -> Batch:
        """Creates a batch, or gives an existing batch of the same notebook this sweep, profile and report.

        Existing jobs stay; missing jobs of the sweep are added.

        Args:
            update_notebook: if the notebook has changed, jobs that are not complete continue with the new one.
            write: False makes all checks and writes nothing.
        Raises:
            BatchError: the folder holds something else, jobs of these names with other values, or a batch of a
                notebook that has changed since.
        """
        folder = expanded(path).absolute()
        if folder.exists() and not folder.is_dir():
            raise BatchError(f"{folder} is a file; a batch needs a folder: give --out another name")
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        if _is_half_made(folder, names, Path(notebook)):
            names = []
        if names and BATCH not in names:
            raise BatchError(
                f"{folder} already exists and is not a batch: it holds {', '.join(names[:5])} but no {BATCH}; "
                "give --out a new folder"
            )
        if names and not update_notebook and digest(folder / SOURCE) != digest(Path(notebook)):
            raise BatchError(
                f"{folder} is a batch of another version of {notebook}, or of another notebook. Give --out another "
                "folder, delete this one, or give --update-notebook to continue the jobs that are not complete with "
                "the notebook as it is now"
            )
        cwd = Batch.open(folder).cwd if names else Path.cwd()
        if not cwd.is_dir():  # the project was renamed or moved
            cwd = Path.cwd()
        report = None if then is None else Path(then).name
        batch = Batch(folder, Path(notebook).name, sweep, profile, cwd, report)
        for job in batch.jobs():
            job.check()
        if write:
            batch.write(notebook, then)
        return batch

    def write(self, notebook: str | os.PathLike[str], then: str | os.PathLike[str] | None) -> None:
        """Creates or completes the folder: the notebooks, the jobs, and last `batch.json`.

        Raises:
            BatchError: the folder cannot be written, or a job's folder holds another job.
        """
        self.make_folder()
        try:
            remove_temporaries(self.path, WRITTEN)
            for source, name in ((notebook, SOURCE), (then, THEN)):
                if source is not None and digest(self.path / name) != digest(Path(source)):
                    # read_text would change \r\n, and with it the digest
                    write_atomically(self.path / name, Path(source).read_bytes().decode())
            for job in self.jobs():
                job.write(sync=False)
        except OSError as error:
            raise self._write_error(error) from error
        data = _BatchFile(
            notebook=self.notebook,
            notebook_sha256=digest(self.path / SOURCE),
            sweep=self.sweep,
            profile=self.profile.to_json(),
            cwd=str(self.cwd),
            then=self.then,
            made_with=self.made_with() or _installed_versions(),
        )
        write_atomically(self.path / BATCH, json.dumps(asdict(data), indent=2, allow_nan=False) + "\n")

    def make_folder(self) -> None:
        """Creates the folder. Raises BatchError: it cannot be created."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> BatchError:
        return BatchError(f"the batch {self.path} cannot be written: {problem_of(error, self.path)}")

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Batch:
        """An existing batch.

        Raises:
            BatchError: the folder holds no batch.
        """
        folder = expanded(path).absolute()
        if not (folder / BATCH).is_file():
            raise BatchError(f"{folder} is not a batch: it has no {BATCH}; `marlnb jobs FOLDER` lists batches")
        data = read_record(folder / BATCH, _BatchFile)
        profile = Profile.from_json(data.profile, where=str(folder / BATCH))
        return Batch(folder, data.notebook, data.sweep, profile, Path(data.cwd), data.then)

    def jobs(self) -> list[Job]:
        """One job for each combination of values, in the sweep's order."""
        return list(self._jobs.values())

    @cached_property
    def _jobs(self) -> dict[str, Job]:
        folder, source, environment = self.path / JOBS, self.path / SOURCE, job_environment(self.profile)
        jobs = [Job(folder / name, source, values, self.cwd, environment) for name, values in self.sweep.jobs()]
        return {job.name: job for job in jobs}

    def job(self, name: str) -> Job:
        """The job with a name.

        Raises:
            BatchError: the batch has no such job; the message lists the jobs.
        """
        if name == REPORT and self.then is not None:
            return self.report_job()
        if name not in self._jobs:
            raise BatchError(unknown(f"job of {self.path}", name, self._jobs))
        return self._jobs[name]

    def report_job(self) -> Job:
        """The job of `then.ipynb`; its parameter `batch` is this folder."""
        parameters, environment = {"batch": str(self.path)}, job_environment(self.profile)
        return Job(self.path / REPORT, self.path / THEN, parameters, self.cwd, environment, replaces=True)

    def statuses(self, infos: Mapping[str, JobInfo] | None = None) -> dict[str, JobStatus]:
        """The status of each job by name.

        Args:
            infos: what an executor knows; its reasons are shown for jobs that wait or were interrupted.
        """
        statuses = {}
        for job in self.jobs():
            status, info = job.status(), (infos or {}).get(job.name)
            if info is not None and info.reason and status.state in ("waiting", "interrupted"):
                status = replace(status, reason=info.reason, scheduler_id=info.id or status.scheduler_id)
            statuses[job.name] = status
        return statuses

    def unfinished(self) -> list[Job]:
        """Jobs that are not complete."""
        return [job for job in self.jobs() if job.status().state != "complete"]

    def table(self, infos: Mapping[str, JobInfo] | None = None) -> pd.DataFrame:
        """One row per job: name, swept parameters, state, progress, seconds, attempt, reason.

        A swept parameter with the name of another column is shown as `parameter <name>`.
        """
        import pandas as pd

        rows = []
        for (name, parameters), status in zip(self.sweep.jobs(), self.statuses(infos).values(), strict=True):
            columns = {key: getattr(status, key) for key in ("state", "progress", "seconds", "attempt", "reason")}
            names = {key: f"parameter {key}" if key in ("job", *columns) else key for key in self.sweep.axes}
            swept = {name: parameters[key] for key, name in names.items()}
            rows.append({"job": name, **swept, **columns})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        states = Counter(status.state for status in self.statuses().values())
        shown = ", ".join(f"{n:,} {state}" for state, n in states.items())
        return f"<Batch {self.path}: {self.notebook}, {count(sum(states.values()), 'job')}: {shown}>"

    def _repr_html_(self) -> str:
        return title_html(repr(self).strip("<>")) + frame_html(self.table(), index=False, max_rows=MAX_ROWS)

    def create_submission(self, jobs: Sequence[Job], *, then: bool, reason: str = "") -> Path:
        """Creates the folder `submissions/<n>` with `jobs.json`, the names of the jobs in order of their index."""
        folder = self.next_submission()
        with writing(folder, kind=BatchError):
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
            for earlier in self.submissions():
                remove_temporaries(earlier, [SUBMITTED])
        updated = {job.name: job.status().updated for job in [*jobs, *([self.report_job()] if then else [])]}
        Submission(tuple(job.name for job in jobs), then, reason, updated=updated).write(folder)
        return folder

    def submissions(self) -> list[Path]:
        """Folders of the submissions, oldest first."""
        parent = self.path / SUBMISSIONS
        return [parent / str(number) for number in numbered(parent)]

    def submitted(self) -> set[str]:
        """Names of the jobs of all submissions. Raises RunError: the file of one cannot be read."""
        folders = [folder for folder in self.submissions() if (folder / SUBMITTED).exists()]
        return {name for folder in folders for name in Submission.read(folder).jobs}

    def next_submission(self) -> Path:
        """Folder of the next submission, which does not exist yet."""
        return self.path / SUBMISSIONS / str(1 + max((int(folder.name) for folder in self.submissions()), default=0))

    def log_event(self, text: str) -> None:
        """Adds a line with the time to `events.log`."""
        append_line(self.path / EVENTS, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}")

    def made_with(self) -> dict[str, str]:
        """Versions of Python, marlnb and torch with which the batch was created; empty if the file has none."""
        return dict(read_record(self.path / BATCH, _BatchFile).made_with) if (self.path / BATCH).is_file() else {}


@dataclass(frozen=True)
class _BatchFile:
    """Content of `batch.json`; the profile and the fields of the batch as `Batch` has them."""

    notebook: str
    sweep: Sweep
    profile: Mapping[str, Any]
    cwd: str
    then: str | None = None
    format: int = 1
    notebook_sha256: str = ""
    made_with: Mapping[str, str] = field(default_factory=dict)


def digest(path: Path) -> str:
    """SHA-256 of a file; empty if it does not exist."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _is_half_made(folder: Path, names: Sequence[str], notebook: Path) -> bool:
    """Whether a process that was creating a batch of this notebook was killed: it has all but `batch.json`."""
    made = all(final_name(name) in (*WRITTEN, JOBS, SUBMIT_LOCK) for name in names) and BATCH not in names
    return made and (SOURCE not in names or digest(folder / SOURCE) == digest(notebook))


def _installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages on which results depend."""
    versions = {"python": platform.python_version()}
    for name in ("marlnb", "torch"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
