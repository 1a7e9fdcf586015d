"""Submit: a sweep of notebooks from a call, begun or completed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, SOURCE, THEN, Batch
from marlnb.batch.plan import Plan, Step, make_plan
from marlnb.batch.profile import Profile, find_profile, with_changes
from marlnb.batch.sweep.grammar import Values, make_sweep, values_of_python
from marlnb.batch.sweep.parameters import known, read_parameters
from marlnb.errors import BatchError, ConfigError, RunError
from marlnb.training.runs.files import STOP
from marlnb.training.runs.lock import RunLock

LOCK = "submit.lock"
COMPARISON = "compare"  # as a report: the notebook of that name that comes with marlnb


def submit(
    notebook: str | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    *,
    on: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    then: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    retry_failed: bool = True,
    changed: bool = False,
    force: bool = False,
    wait: bool | None = None,
    progress: bool = True,
) -> Batch:
    """Executes a notebook once for every combination of values; called again, it completes only what is missing.

    Jobs that are complete are left, jobs that run or are queued are not begun twice, jobs that failed are run again,
    and jobs that were stopped or interrupted go on.

    ```python
    batch = mnb.submit("notebooks/quickstart.ipynb", {"algorithm": ["mappo", "ippo"], "seed": range(5)}, on="local")
    batch.table()
    ```

    Args:
        notebook: one with a cell tagged `parameters`; or the folder of a batch, which is then completed as it is.
        parameters: by name; a list, a tuple, a range or an array is an axis of the sweep, anything else one value, and
            `[[64, 64]]` is one value that is a list.
        on: the name of a profile, as "local" or "slurm", or a YAML file; for a new batch "local", else as before.
        changes: keys of the profile that are different here, as `{"cores": 4, "time_limit": "20:00:00"}`.
        out: the batch's folder; without one `runs/<name of the notebook>-batch`.
        then: a notebook that is run when all jobs are complete; its parameter `batch` is set to the folder. "compare"
            is the comparison that comes with marlnb.
        only: names of jobs; the others are left alone.
        retry_failed: False leaves jobs that failed.
        changed: jobs that are not complete go on with the notebook as it is now, though it is another by now.
        force: begins though the disk seems too small.
        wait: returns when all have ended, and begins killed ones again meanwhile; None: yes for local jobs. An
            interrupt then ends local jobs, each saved; those of a cluster go on.
        progress: whether what happens is shown while it waits.
    Raises:
        ConfigError: no such notebook, profile or parameter, or a value that a parameter does not take.
        BatchError: the folder holds something else, the executor cannot do it or refuses, the disk is too small.
    """
    given = values_of_python(parameters or {})
    plan = plan_submission(
        notebook,
        given,
        on=on,
        changes=changes,
        out=out,
        then=then,
        only=only,
        retry_failed=retry_failed,
        changed=changed,
    )
    batch = begin(plan, force=force)
    if wait if wait is not None else batch.profile.executor == "local":
        from marlnb.batch.watch import watch

        return watch(batch, progress=progress, owns=batch.profile.executor == "local")
    return batch


def plan_submission(
    notebook: str | os.PathLike[str],
    given: Mapping[str, Values],
    *,
    on: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    then: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    retry_failed: bool = True,
    changed: bool = False,
) -> Plan:
    """What `submit` would do; nothing is written or begun, and the executor has said that it can do it.

    Raises:
        ConfigError, BatchError: as `submit`.
    """
    source, report = Path(notebook).expanduser(), None if then is None else _find_report(then)
    if (source / BATCH).is_file():
        batch, source, report = _again(source, given, on, changes, out, report, changed)
    else:
        sweep = make_sweep(source, given)
        folder = Path("runs", f"{source.stem}-batch") if out is None else Path(out)
        _check_report(report)
        profile = _profile(folder, on, changes or {})
        batch = Batch.planned(folder, source, sweep, profile, then=report, changed=changed)
    batch.executor().check()
    return make_plan(batch, source, report, only=only, retry_failed=retry_failed)


def begin(plan: Plan, *, force: bool = False) -> Batch:
    """Writes the batch and submits what the plan says.

    Raises:
        BatchError: somebody else submits the same batch at this moment, the disk is too small, the executor refuses.
    """
    if not plan.cost.fits and not force:
        raise BatchError(f"{plan.batch.path}: there is no room for that: {plan.cost.lines()[1]}; --force begins anyway")
    batch = plan.batch
    batch.write(plan.notebook, plan.then)
    with _alone(batch):
        if len(batch.submissions()) != plan.n_submissions:
            raise BatchError(f"{batch.path} was submitted by another process meanwhile; look again at what is missing")
        steps = [step for step in plan.steps if step.begins]
        if steps:
            _submit(batch, steps, then=plan.report is not None)
        elif plan.report is not None and plan.report.begins:
            _submit(batch, [plan.report], then=False)
    return batch


def _submit(batch: Batch, steps: Sequence[Step], *, then: bool) -> None:
    for step in steps:
        _make_ready(step)
    if then:
        report = batch.report_job()
        if report.status().state != "waiting":
            report.write_status(replace(report.status(), state="waiting", reason="the jobs are not complete"))
    id = batch.executor().submit(batch, [step.job for step in steps], then=then)
    names = ", ".join(step.job.name for step in steps[:10]) + (", ..." if len(steps) > 10 else "")
    batch.log_event(f"submitted {len(steps)} jobs as {id}: {names}")


def _make_ready(step: Step) -> None:
    """An end that was reached before is no end any more: whoever watches would take it for one."""
    step.job.write(sync=False)
    (step.job.folder / STOP).unlink(missing_ok=True)
    if step.status.state not in ("waiting", "complete") or step.job.name == "report":
        step.job.write_status(replace(step.status, state="waiting", reason=f"{step.what}", error=None))


def _again(
    folder: Path,
    given: Mapping[str, Values],
    on: str | None,
    changes: Mapping[str, Any] | None,
    out: str | os.PathLike[str] | None,
    then: Path | None,
    changed: bool,
) -> tuple[Batch, Path, Path | None]:
    """A batch as it is, perhaps under another profile or with another report."""
    if given or out is not None or changed:
        raise ConfigError(
            f"{folder} is a batch: its notebook, parameters and place are known; give the notebook to change them"
        )
    batch = Batch.open(folder)
    profile = _profile(folder, on, changes or {})
    if then is None and batch.then is not None:
        return replace(batch, profile=profile), batch.path / SOURCE, batch.path / THEN
    _check_report(then)
    return replace(batch, profile=profile, then=then.name if then else None), batch.path / SOURCE, then


def _profile(folder: Path, on: str | None, changes: Mapping[str, Any]) -> Profile:
    """The one asked for, else that of the batch if it is there, else the local one; with some keys changed."""
    there = (folder.expanduser() / BATCH).is_file()
    return with_changes(Batch.open(folder).profile if on is None and there else find_profile(on or "local"), changes)


def _find_report(then: str | os.PathLike[str]) -> Path:
    path = Path(then).expanduser()
    if str(then) != COMPARISON or path.exists():
        return path
    from marlnb.batch.report.comparison import NOTEBOOK

    return NOTEBOOK


def _check_report(then: Path | None) -> None:
    if then is None:
        return
    have = read_parameters(then)
    known(have, "batch", then)
    missing = [name for name, parameter in have.items() if parameter.is_required and name not in ("batch", "run")]
    if missing:
        raise ConfigError(f"{then.name} needs a value for {', '.join(missing)}: a report is given `batch` alone")


@contextmanager
def _alone(batch: Batch) -> Iterator[None]:
    """One submission of a batch at a time."""
    try:
        lock = RunLock(batch.path / LOCK)
    except RunError:
        raise BatchError(f"{batch.path} is being submitted by another process at this moment") from None
    with lock:
        yield
