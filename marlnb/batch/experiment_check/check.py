"""Check a sweep's experiments before its jobs start: names, options, values, and networks that do not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marlnb.batch.experiment_check.cells import Cell, read_cells
from marlnb.batch.experiment_check.follow import Reached, follow
from marlnb.batch.experiment_check.judge import Judge
from marlnb.batch.sweep.sweep import Sweep
from marlnb.display.formatting import count
from marlnb.errors import ConfigError, UnknownNameError

TIME_LIMIT_S = 1.0  # of composing, apart from imports
MAX_JOBS = 200  # whose notebooks are followed
MAX_LINES = 5


def check_experiments(notebook: Path, sweep: Sweep, cwd: Path) -> list[str]:
    """Composes the experiments that the notebook would compose in each job, without training, reading or writing.

    They are composed in `cwd`, the jobs' working folder, to which `./conf` and other relative paths belong.

    An unknown name or option counts only if the cell composes something valid with the notebook's own defaults and the
    error is not there with the defaults too: a notebook may define the environments or variants that it uses. Names
    that its decorators register, and cells tagged `raises-exception`, do not count; nor do unknown names where it
    chooses the folder of variants by a variable of the environment, or registers a computed name. That an experiment
    cannot be trained counts where it is trained as it is composed: a notebook may change it before.

    Returns:
        Notes: what could not be checked, and overrides without effect.
    Raises:
        ConfigError: an experiment of a job is invalid; the message names the job, the cell and the reason.
    """
    cells = read_cells(notebook)
    if not any(statement.composes for cell in cells for statement in cell.statements):
        return []
    if not cwd.is_dir():
        return [f"the experiments were not checked, since the jobs' working folder {cwd} does not exist"]
    judge = Judge(TIME_LIMIT_S)
    with _working_folder(cwd):
        baseline = follow(cells, {}, judge)
        jobs = {name: follow(cells, values, judge) for name, values in _chosen_jobs(sweep).items()}
    errors, notes = _errors(cells, baseline, jobs, names_jobs=bool(sweep.axes))
    unused_errors, unused_notes = _unused(baseline, jobs)
    if errors := [*errors, *unused_errors]:
        more = f"\nand {len(errors) - MAX_LINES} more" if len(errors) > MAX_LINES else ""
        raise ConfigError("\n".join(errors[:MAX_LINES]) + more)
    unknown = sorted(set().union(*(reached.unknown_cells for reached in (baseline, *jobs.values()))))
    notes += [f"cell {number}: its experiment depends on results, so only the job can check it" for number in unknown]
    if n_late := len(judge.late):
        notes.append(f"{count(n_late, 'experiment')} of {judge.n_experiments} were not checked, to save time")
    return list(dict.fromkeys([*unused_notes, *notes]))[:MAX_LINES]


@contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = os.open(os.curdir, os.O_RDONLY)  # not its path: it may have been deleted
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _errors(
    cells: Sequence[Cell], baseline: Reached, jobs: Mapping[str, Reached], *, names_jobs: bool
) -> tuple[list[str], list[str]]:
    """Errors that end a job, and errors that may come from the check, in words."""
    may_raise = {cell.number for cell in cells if cell.may_raise}
    registered = {repr(name) for cell in cells for name in cell.registers if name is not None}
    may_define_names = any(cell.chooses_folder or None in cell.registers for cell in cells)
    valid_cells = {each.cell for each in baseline.compositions if each.verdict and each.verdict.error is None}
    of_defaults = {(each.cell, str(each.verdict.error)) for each in baseline.compositions if each.verdict}
    errors: list[str] = []
    notes: list[str] = []
    for name, reached in jobs.items():
        for each in reached.compositions:
            if each.verdict is None or each.cell in may_raise:
                continue
            if each.verdict.training_error is not None and not each.is_trained:
                reason = f"cannot be trained as it is composed: {each.verdict.training_error}"
                notes.append(f"cell {each.cell}: its experiment {reason}")
            if not each.is_fatal:
                continue
            text = str(each.verdict.error)
            may_be_defined = (each.cell, text) in of_defaults or any(known in text for known in registered)
            may_be_defined |= may_define_names and isinstance(each.verdict.error, UnknownNameError)
            counts = each.verdict.composed or (each.cell in valid_cells and not may_be_defined)
            if counts and not each.verdict.doubtful:
                job = f"job {name}, " if names_jobs else ""
                errors.append(f"{job}cell {each.cell}: {text}")
            else:
                notes.append(f"cell {each.cell} could not be checked: {text}")
    return errors, notes


def _unused(baseline: Reached, jobs: Mapping[str, Reached]) -> tuple[list[str], list[str]]:
    """Overrides without effect: errors if they have none in any job and the parameters are the reason, else notes."""

    def texts(reached: Reached) -> set[str]:
        judged = [(each.cell, each.verdict) for each in reached.compositions if each.verdict is not None]
        return {f"cell {cell}: {text}" for cell, verdict in judged for text in verdict.unused}

    by_job = {name: texts(reached) for name, reached in jobs.items()}
    errors: list[str] = []
    notes: list[str] = []
    for text in sorted(set().union(*by_job.values())):
        n_jobs = sum(text in texts_of_job for texts_of_job in by_job.values())
        is_new = text not in texts(baseline)
        (errors if n_jobs == len(jobs) and is_new else notes).append(f"{text} (in {count(n_jobs, 'job')})")
    return errors, notes


def _chosen_jobs(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """The jobs' parameters; of many, first those that differ from the first job in one parameter, then the others."""
    jobs = list(sweep.jobs())
    first = jobs[0][1]
    if len(jobs) > MAX_JOBS:
        jobs.sort(key=lambda job: sum(job[1][name] != first[name] for name in sweep.axes))
    return dict(jobs[:MAX_JOBS])
