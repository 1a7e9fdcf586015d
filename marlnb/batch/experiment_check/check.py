"""Check a sweep's experiments before its jobs start: names, options, values, and networks that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marlnb.batch.experiment_check.compose_all import compose_all
from marlnb.batch.experiment_check.compositions import Composition, UnknownText, find_compositions
from marlnb.batch.experiment_check.verdict import Verdict
from marlnb.batch.sweep.parameters import TAG
from marlnb.batch.sweep.sweep import Sweep
from marlnb.display.formatting import count
from marlnb.errors import ConfigError

TIME_LIMIT_S = 1.0  # of composing, apart from imports
MAX_JOBS = 200  # whose notebooks are followed
MAX_LINES = 5
_PARTS = ("env", "algorithm", "model", "critic", "algorithms", "models", "critics", "experiment")
_SEED = re.compile(r"seed=\d{1,9}")

_MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)

Words = tuple[str, ...]
Verdicts = Mapping[Words | None, Verdict | None]


def check_experiments(notebook: Path, sweep: Sweep) -> list[str]:
    """Composes the experiments that the notebook would compose in each job, without executing it.

    A composition is judged only if it can be followed from the parameters, and if it is valid with the notebook's own
    defaults: a notebook may define the environments or variants that it uses.

    Returns:
        Notes: what could not be checked, and overrides without effect.
    Raises:
        ConfigError: an experiment of a job is invalid; the message names the job, the cell and the reason.
    """
    cells, defaults = _read_cells(notebook)
    if not any("Experiment" in source and ".compose" in source for _, source in cells):
        return []
    baseline = find_compositions(cells, {}, defaults)
    jobs = {name: find_compositions(cells, values, defaults) for name, values in _chosen_jobs(sweep)}
    everything = [each for compositions in (baseline, *jobs.values()) for each in compositions]
    words = list(dict.fromkeys(known for each in everything if (known := _known_words(each)) is not None))
    verdicts = dict(zip(words, compose_all(words, time_limit_s=TIME_LIMIT_S), strict=True))
    errors, notes = _errors(baseline, jobs, verdicts)
    unused_errors, unused_notes = _unused(baseline, jobs, verdicts)
    if errors := [*errors, *unused_errors]:
        more = f"\nand {len(errors) - MAX_LINES} more" if len(errors) > MAX_LINES else ""
        raise ConfigError("\n".join(errors[:MAX_LINES]) + more)
    unknown = sorted({each.cell for each in everything if _known_words(each) is None})
    notes += [f"cell {number}: its experiment depends on results, so only the job can check it" for number in unknown]
    if n_late := list(verdicts.values()).count(None):
        notes.append(f"{count(n_late, 'experiment')} of {len(words)} were not checked, to save time")
    return list(dict.fromkeys([*unused_notes, *notes]))[:MAX_LINES]


def _errors(
    baseline: Sequence[Composition], jobs: Mapping[str, Sequence[Composition]], verdicts: Verdicts
) -> tuple[list[str], list[str]]:
    """Errors of compositions, and those that may not be the job's: in words."""
    valid_cells = {e.cell for e in baseline if (verdict := verdicts.get(_known_words(e))) and not verdict.error}
    errors: list[str] = []
    notes: list[str] = []
    for name, compositions in jobs.items():
        for each in compositions:
            verdict = verdicts.get(_known_words(each))
            if verdict is None or not verdict.error or not each.certain:
                continue
            if each.cell in valid_cells and not verdict.doubtful:
                errors.append(f"job {name}, cell {each.cell}: {verdict.error}")
            else:
                notes.append(f"cell {each.cell} could not be checked: {verdict.error}")
    return errors, notes


def _unused(
    baseline: Sequence[Composition], jobs: Mapping[str, Sequence[Composition]], verdicts: Verdicts
) -> tuple[list[str], list[str]]:
    """Overrides without effect: errors if they have none in any job and the parameters are the reason, else notes."""

    def texts(compositions: Sequence[Composition]) -> set[str]:
        present = [(each.cell, verdict) for each in compositions if (verdict := verdicts.get(_known_words(each)))]
        return {f"cell {cell}: {text}" for cell, verdict in present for text in verdict.unused}

    by_job = {name: texts(compositions) for name, compositions in jobs.items()}
    errors: list[str] = []
    notes: list[str] = []
    for text in sorted(set().union(*by_job.values())):
        n_jobs = sum(text in texts_of_job for texts_of_job in by_job.values())
        is_new = text not in texts(baseline)
        (errors if n_jobs == len(jobs) and is_new else notes).append(f"{text} (in {count(n_jobs, 'job')})")
    return errors, notes


def _known_words(composition: Composition) -> Words | None:
    """The overrides that are known; None if a part's name is not, so that nothing can be said.

    The seed does not matter here, and jobs that differ in nothing else are checked once.
    """
    if not composition.complete:
        return None
    words = []
    for word in composition.overrides:
        if isinstance(word, UnknownText):
            key, equals, _ = word.prefix.partition("=")
            if not equals or _chooses_part(key):
                return None
            continue
        words.append("seed=0" if _SEED.fullmatch(word) else word)
    return tuple(words)


def _chooses_part(key: str) -> bool:
    """Whether a key names a part, as `algorithm` and `models.speaker`, on whose name the valid options depend."""
    head, _, rest = key.partition(".")
    return head in _PARTS and (not rest or (head.endswith("s") and "." not in rest))


def _chosen_jobs(sweep: Sweep) -> Iterable[tuple[str, dict[str, Any]]]:
    """The jobs; of many, first those that differ from the first job in one parameter, then the others."""
    jobs = list(sweep.jobs())
    if len(jobs) <= MAX_JOBS:
        return jobs
    first = jobs[0][1]
    by_distance = sorted(jobs, key=lambda job: sum(job[1][name] != first[name] for name in sweep.axes))
    return by_distance[:MAX_JOBS]


def _read_cells(notebook: Path) -> tuple[list[tuple[int, str]], int]:
    """Number and code of each code cell without magics, and the number of the cell with the parameters."""
    data = json.loads(notebook.read_text(encoding="utf-8"))
    cells, defaults = [], 0
    for number, cell in enumerate(data["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if not source.lstrip().startswith("%%"):
            cells.append((number, _MAGIC.sub(r"\1pass", source)))
        if TAG in cell["metadata"].get("tags", []) and not defaults:
            defaults = number
    return cells, defaults
