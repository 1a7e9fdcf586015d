"""Batch: a folder from which a sweep of notebooks is submitted, watched, completed and compared."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.batch.executor import Executor, Known
from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.offline import job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.batch.versions import installed_versions
from marlnb.errors import BatchError, unknown
from marlnb.registry import EXECUTORS
from marlnb.training.runs.files import read_json, write_atomically

if TYPE_CHECKING:
    import pandas as pd

BATCH = "batch.json"
SOURCE = "source.ipynb"
THEN = "then.ipynb"
JOBS = "jobs"
REPORT = "report"  # the folder, and the job's name, of the notebook that is run when all are done
SUBMISSIONS = "submissions"
EVENTS = "events.log"


@dataclass(frozen=True)
class Batch:
    """A batch's folder.

    ```
    runs/sweep/                  readable by its owner alone
      batch.json                 the sweep, the profile, where the notebook came from
      source.ipynb, then.ipynb   the notebooks as they were when the batch was made
      jobs/<name>/               one job each: job.json, job_status.json, output.log, notebook.ipynb, .html, and its run
      report/                    the job of `then.ipynb`
      submissions/<n>/           what an executor was told, as the sbatch script, and what it answered
      events.log                 submissions, resubmissions with their reasons, cancellations
    ```

    Attributes:
        path: absolute.
        notebook: the name of the notebook that was given.
        cwd: where the jobs are executed: where the batch was made.
        then: the name of the report notebook, None without one.
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
        changed: bool = False,
    ) -> Batch:
        """A new batch, or one of the same notebook that is there and gets this sweep, profile and report.

        Jobs that are there stay, those of the sweep that are missing are added.

        Args:
            changed: jobs that are not complete go on with the notebook as it is now, if it is another by now.
        Raises:
            BatchError: the folder holds something else, or a batch of a notebook that has changed since.
        """
        batch = Batch.planned(path, notebook, sweep, profile, then=then, changed=changed)
        batch.write(notebook, then)
        return batch

    @staticmethod
    def planned(
        path: str | os.PathLike[str],
        notebook: str | os.PathLike[str],
        sweep: Sweep,
        profile: Profile,
        *,
        then: str | os.PathLike[str] | None = None,
        changed: bool = False,
    ) -> Batch:
        """What `create` would make, checked alike; nothing is written."""
        folder = Path(path).expanduser().absolute()
        if folder.exists() and not folder.is_dir():
            raise BatchError(f"{folder} is a file; give the name of a folder")
        found = sorted(os.listdir(folder)) if folder.is_dir() else []
        if found and BATCH not in found:
            raise BatchError(f"{folder} is there already and holds {', '.join(found[:5])}, but no batch")
        if found and not changed and digest(folder / SOURCE) != digest(Path(notebook)):
            raise BatchError(
                f"{folder} is a batch of another notebook than {notebook} is now; give --out another folder, remove "
                f"this one, or say --changed: jobs that are not complete then go on with the notebook as it is now"
            )
        cwd = Batch.open(folder).cwd if found else Path.cwd()
        report = None if then is None else Path(then).name
        return Batch(folder, Path(notebook).name, sweep, profile, cwd, report)

    def write(self, notebook: str | os.PathLike[str], then: str | os.PathLike[str] | None) -> None:
        """Makes the folder, or completes it: the notebooks, the jobs, and `batch.json` last.

        Raises:
            BatchError: it cannot be made, or a job's folder holds another job.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for given, name in ((notebook, SOURCE), (then, THEN)):
                if given is not None and digest(self.path / name) != digest(Path(given)):
                    write_atomically(self.path / name, Path(given).read_text(encoding="utf-8"))
            for job in self.jobs():
                job.write(sync=False)
        except OSError as error:
            raise BatchError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._write()

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Batch:
        """Raises BatchError when the folder holds no batch."""
        folder = Path(path).expanduser().absolute()
        if not (folder / BATCH).is_file():
            raise BatchError(f"{folder} is no batch: it has no {BATCH}")
        data = read_json(folder / BATCH)
        sweep, profile = Sweep.from_json(data["sweep"]), Profile.from_json(data["profile"], where=str(folder / BATCH))
        return Batch(folder, data["notebook"], sweep, profile, Path(data["cwd"]), data["then"])

    def jobs(self) -> list[Job]:
        """One job a combination of values, in the sweep's order."""
        return list(self._jobs.values())

    @cached_property
    def _jobs(self) -> dict[str, Job]:
        environment, folder, source = job_environment(self.profile), self.path / JOBS, self.path / SOURCE
        return {
            name: Job(folder / name, source, parameters, self.cwd, environment)
            for name, parameters in self.sweep.jobs()
        }

    def job(self, name: str) -> Job:
        """Raises BatchError, with the names there are, for a job that the batch does not have."""
        if name == REPORT and self.then is not None:
            return self.report_job()
        if name not in self._jobs:
            raise BatchError(unknown(f"job of {self.path}", name, self._jobs))
        return self._jobs[name]

    def report_job(self) -> Job:
        """The job of `then.ipynb`, whose parameter `batch` is this folder."""
        parameters, environment = {"batch": str(self.path)}, job_environment(self.profile)
        return Job(self.path / REPORT, self.path / THEN, parameters, self.cwd, environment)

    def executor(self) -> Executor:
        """Raises ConfigError for an executor that is not known."""
        return EXECUTORS.get(self.profile.executor)(self.profile)

    def with_profile(self, profile: Profile) -> Batch:
        """The same batch under another profile, which is kept."""
        changed = replace(self, profile=profile)
        changed._write()
        return changed

    def statuses(self, known: Mapping[str, Known] | None = None) -> dict[str, JobStatus]:
        """Each job's status by name, its own files put together with what an executor knows.

        A job whose files say waiting or interrupted is given the executor's reason.
        """
        found = {}
        for job in self.jobs():
            status, heard = job.status(), (known or {}).get(job.name)
            if heard is not None and heard.reason and status.state in ("waiting", "interrupted"):
                status = replace(status, reason=heard.reason, scheduler_id=heard.id or status.scheduler_id)
            found[job.name] = status
        return found

    def unfinished(self) -> list[Job]:
        """Jobs that are not complete."""
        return [job for job in self.jobs() if job.status().state != "complete"]

    def table(self, known: Mapping[str, Known] | None = None) -> pd.DataFrame:
        """One row a job: its name, its swept parameters, state, progress, seconds, attempts, reason."""
        import pandas as pd

        rows = []
        for (name, parameters), status in zip(self.sweep.jobs(), self.statuses(known).values(), strict=True):
            swept = {key: parameters[key] for key in self.sweep.axes}
            told = {key: getattr(status, key) for key in ("state", "progress", "seconds", "attempt", "reason")}
            rows.append({"job": name, **swept, **told})
        return pd.DataFrame(rows)

    def begin_submission(self, jobs: Sequence[Job], *, then: bool, reason: str = "") -> Path:
        """A new folder `submissions/<n>` with `jobs.json`, the list of the jobs' names in the order of their index."""
        parent = self.path / SUBMISSIONS
        parent.mkdir(mode=0o700, exist_ok=True)
        number = 1 + max((int(entry.name) for entry in parent.iterdir() if entry.name.isdigit()), default=0)
        folder = parent / str(number)
        folder.mkdir(mode=0o700)
        data = {"jobs": [job.name for job in jobs], "then": then, "reason": reason, "when": time.time()}
        write_atomically(folder / "jobs.json", json.dumps(data, indent=2) + "\n")
        return folder

    def submissions(self) -> list[Path]:
        """Folders of submissions, oldest first."""
        parent = self.path / SUBMISSIONS
        found = [entry for entry in parent.iterdir() if entry.name.isdigit()] if parent.is_dir() else []
        return sorted(found, key=lambda entry: int(entry.name))

    def log_event(self, text: str) -> None:
        """Adds a line with the time to `events.log`."""
        with open(self.path / EVENTS, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")

    def made_with(self) -> dict[str, str]:
        """Versions of Python, marlnb and torch when the batch was made; empty where it does not say."""
        found = read_json(self.path / BATCH) if (self.path / BATCH).is_file() else {}
        return dict(found.get("made_with", {}))

    def _write(self) -> None:
        data: dict[str, Any] = {
            "format": 1,
            "notebook": self.notebook,
            "sweep": self.sweep.to_json(),
            "profile": self.profile.to_json(),
            "cwd": str(self.cwd),
            "then": self.then,
            "made_with": self.made_with() or installed_versions(),
        }
        write_atomically(self.path / BATCH, json.dumps(data, indent=2, allow_nan=False) + "\n")


def digest(path: Path) -> str:
    """A hash of a file; empty where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
