"""Submit: run a notebook once for each combination of parameter values, or complete an earlier submission."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, REPORT, SOURCE, SUBMIT_LOCK, THEN, Batch
from marlnb.batch.executor import NoSchedulerError, executor_of
from marlnb.batch.experiment_check.check import check_experiments
from marlnb.batch.monitor import watch
from marlnb.batch.profile import Profile, find_profile, with_changes
from marlnb.batch.submission_plan import PlannedJob, SubmissionPlan, make_plan
from marlnb.batch.sweep.grammar import Values, make_sweep, values_of_python
from marlnb.batch.sweep.parameters import find_kernel, find_parameter, read_parameters
from marlnb.disk import writing
from marlnb.display.formatting import count
from marlnb.errors import BatchError, ConfigError, RunError
from marlnb.paths import expanded
from marlnb.training.runs.files import STOP
from marlnb.training.runs.lock import RunLock

COMPARISON = "compare"  # as a report: the notebook of that name in marlnb


def submit(
    notebook: str | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    *,
    on: str | None = None,
    profile_overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    then: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    retry_failed: bool = True,
    update_notebook: bool = False,
    force: bool = False,
    wait: bool | None = None,
    progress: bool = True,
) -> Batch:
    """Executes a notebook once for each combination of values; a second call completes what is missing.

    Complete jobs are kept, running and queued jobs are not started twice, failed jobs run again, stopped and
    interrupted jobs continue.

    ```python
    batch = mnb.submit("notebooks/quickstart.ipynb", {"algorithm": ["mappo", "ippo"], "seed": range(5)}, on="local")
    batch.table()
    ```

    Args:
        notebook: a notebook with a cell tagged `parameters`; or the folder of a batch, to complete it as it is.
        parameters: values by name. A list, tuple, range or array is an axis of the sweep, anything else is one value;
            `[[64, 64]]` is one value that is a list.
        on: name of a profile, as "local" or "slurm", or a YAML file; by default "local", or the batch's own profile.
        profile_overrides: changed keys of the profile, such as `{"cores": 4, "time_limit": "20:00:00"}`.
        out: the batch's folder; by default `runs/<name of the notebook>-batch`.
        then: a notebook that runs when all jobs are complete; its parameter `batch` is set to the folder. "compare" is
            the comparison in marlnb.
        only: names of jobs; the others are neither submitted nor waited for.
        retry_failed: False does not run failed jobs again.
        update_notebook: if the notebook has changed since, jobs that are not complete continue with the new one.
        force: start even if the disk seems too small, or if the scheduler does not say which jobs are queued.
        wait: return when all jobs have ended, and restart killed ones until then; by default True for local jobs. An
            interrupt then ends local jobs after they have saved; jobs on a cluster continue.
        progress: show progress while waiting.
    Raises:
        ConfigError: no such notebook, profile or parameter, an invalid value of a parameter, or the notebook names no
            kernel.
        BatchError: the folder holds something else, the executor cannot run the jobs, the disk is too small, or the
            scheduler does not say which jobs are queued.
    """
    plan = plan_submission(
        notebook,
        values_of_python(parameters or {}),
        on=on,
        profile_overrides=profile_overrides,
        out=out,
        then=then,
        only=only,
        retry_failed=retry_failed,
        update_notebook=update_notebook,
    )
    batch = submit_plan(plan, force=force)
    is_local = batch.profile.executor == "local"
    should_wait = is_local if wait is None else wait
    return watch(batch, only=plan.awaited, progress=progress, owns=is_local) if should_wait else batch


def plan_submission(
    notebook: str | os.PathLike[str],
    values: Mapping[str, Values],
    *,
    on: str | None = None,
    profile_overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    then: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    retry_failed: bool = True,
    update_notebook: bool = False,
    dry_run: bool = False,
) -> SubmissionPlan:
    """The plan of `submit`; nothing is written or started. The experiments and the executor have been checked.

    Args:
        dry_run: accept a machine without the scheduler; the plan notes it.
    Raises:
        ConfigError, BatchError: as `submit`.
    """
    source, report = expanded(notebook), None if then is None else _find_report(then)
    if (source / BATCH).is_file():
        if values or out is not None or update_notebook:
            raise ConfigError(
                f"{source} is a batch, which has its notebook, parameters and folder; to change them, give the "
                "notebook instead of the batch"
            )
        folder = source
        batch = replace(Batch.open(folder), profile=_find_profile(folder, on, profile_overrides))
        if report is None and batch.then is not None:
            report = batch.path / THEN
        else:
            _check_report(report)
            batch = replace(batch, then=report.name if report else None)
        source = batch.path / SOURCE
    else:
        sweep = make_sweep(source, values)
        folder = Path("runs", f"{source.stem}-batch") if out is None else Path(out)
        _check_report(report)
        profile = _find_profile(folder, on, profile_overrides)
        batch = Batch.create(folder, source, sweep, profile, then=report, update_notebook=update_notebook, write=False)
    find_kernel(source)
    notes = check_experiments(source, batch.sweep, batch.cwd)
    if (batch.path / BATCH).is_file() and (before := Batch.open(batch.path).cwd) != batch.cwd:
        notes.append(f"the jobs run in {batch.cwd}, since their working folder {before} does not exist any more")
    try:
        executor_of(batch).check()
    except NoSchedulerError as error:
        if not dry_run:
            raise
        notes.append(f"this machine has no {batch.profile.executor}: {str(error).partition(';')[0].splitlines()[0]}")
    plan = make_plan(batch, source, report, only=only, retry_failed=retry_failed)
    return replace(plan, notes=(*plan.notes, *notes))


def submit_plan(plan: SubmissionPlan, *, force: bool = False) -> Batch:
    """Writes the batch and submits the jobs of the plan.

    Raises:
        BatchError: another process submits the same batch, the disk is too small, the executor refuses, or it is not
            known which jobs are queued.
    """
    batch = plan.batch
    if not plan.cost.fits and not force:
        raise BatchError(
            f"{batch.path}: not enough disk space: {plan.cost.lines()[1]}; free some, give --out a folder on another "
            "disk, or give --force to start anyway"
        )
    if plan.query_error and not force and not plan.starts_nothing:
        raise BatchError(
            f"{batch.path}: nothing was submitted, since jobs could run twice: {plan.query_error}\nTry again later, "
            "or give --force if none of these jobs is queued"
        )
    batch.make_folder()
    try:
        lock = RunLock(batch.path / SUBMIT_LOCK)
    except RunError:
        raise BatchError(f"another process is submitting {batch.path} now; try again when it has finished") from None
    with lock:
        if len(batch.submissions()) != plan.n_submissions:
            raise BatchError(
                f"another process submitted {batch.path} after this plan was made; run the command again to submit "
                "what is still missing"
            )
        batch.write(plan.notebook, plan.then)
        if jobs := [planned for planned in plan.jobs if planned.submits]:
            _submit(batch, jobs, then=plan.report is not None)
        elif plan.report is not None and plan.report.submits:
            _submit(batch, [plan.report], then=False)
    return batch


def _submit(batch: Batch, jobs: Sequence[PlannedJob], *, then: bool) -> None:
    for planned in jobs:
        planned.job.write(sync=False)
        stop = planned.job.folder / STOP
        with writing(stop):
            stop.unlink(missing_ok=True)
    with _waiting(batch, jobs, then=then):
        id = executor_of(batch).submit(batch, [planned.job for planned in jobs], then=then)
    names = ", ".join(planned.job.name for planned in jobs[:10]) + (", ..." if len(jobs) > 10 else "")
    batch.log_event(f"submitted {count(len(jobs), 'job')} as {id}: {names}")


@contextmanager
def _waiting(batch: Batch, jobs: Sequence[PlannedJob], *, then: bool) -> Iterator[None]:
    """Resets the statuses of finished jobs, whose old results a monitor would take for new ones.

    If the executor refuses the jobs, those that did not start get their statuses back.
    """
    resets = [
        (planned.job, planned.status, planned.action)
        for planned in jobs
        if planned.status.state not in ("waiting", "complete") or planned.job.name == REPORT
    ]
    if then and (status := batch.report_job().status()).state != "waiting":
        resets.append((batch.report_job(), status, "the jobs are not complete"))
    for job, status, reason in resets:
        job.write_status(replace(status, state="waiting", reason=reason, error=None))
    try:
        yield
    except BaseException:
        for job, status, _ in resets:
            if not job.is_executing and job.status().state == "waiting":
                job.write_status(status)
        raise


def _find_profile(folder: Path, on: str | None, overrides: Mapping[str, Any] | None) -> Profile:
    """The requested profile, else that of an existing batch, else the local one; with the overrides."""
    exists = on is None and (expanded(folder) / BATCH).is_file()
    return with_changes(Batch.open(folder).profile if exists else find_profile(on or "local"), overrides or {})


def _find_report(then: str | os.PathLike[str]) -> Path:
    path = expanded(then)
    if str(then) != COMPARISON or path.exists():
        return path
    from marlnb.batch.report.comparison import NOTEBOOK

    return NOTEBOOK


def _check_report(then: Path | None) -> None:
    if then is None:
        return
    find_kernel(then)
    parameters = read_parameters(then)
    find_parameter(parameters, "batch", then)
    missing = [name for name, parameter in parameters.items() if parameter.is_required and name not in ("batch", "run")]
    if missing:
        raise ConfigError(
            f"the report {then.name} has no default for {', '.join(missing)}; a report is given only `batch`, so give "
            "its other parameters a default"
        )
