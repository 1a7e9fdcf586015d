"""Benchmark: train and evaluate every run of a spec, write the evaluations, and make the report."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from marlnb.batch.benchmark.benchmark import REPORT, Benchmark, external_runs
from marlnb.batch.benchmark.results import evaluate_if_missing, finish, is_complete
from marlnb.batch.benchmark.spec import BenchmarkSpec, Overrides, PlannedRun, read_spec
from marlnb.batch.trainings.launch import Outcome, check_runs, run_in_turn, run_side_by_side
from marlnb.batch.trainings.launch_together import groups_of_seeds, is_faster_together, run_together
from marlnb.batch.trainings.progress_display import TrainingsProgress, frames_done
from marlnb.errors import AnalysisError, ConfigError
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run

NOTEBOOK = Path(__file__).with_name("report.ipynb")


def benchmark(
    spec: BenchmarkSpec | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    algorithms: Overrides | None = None,
    environments: Overrides | None = None,
    seeds: int | Iterable[int] | None = None,
    evaluations: int | None = None,
    overrides: Sequence[str] = (),
    compare: Sequence[Any] = (),
    config_dir: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    report: bool = True,
    progress: bool = True,
) -> Benchmark:
    """Trains and evaluates algorithms × environments × seeds, and compares them.

    Complete runs are skipped, interrupted and failed ones resume from their last checkpoint, missing ones start: the
    same call continues an earlier one. If a run fails, the others continue, and `failed` of the result says why;
    `without_report` says why a metric has no report, as where no run differs from a random policy.

    Args:
        spec: a BenchmarkSpec or a YAML file; None: made from the arguments up to `evaluations`.
        out: the benchmark's folder; None: `runs/<name of the file>`, else `runs/benchmark`.
        algorithms: names, `["ippo", "mappo"]`, or overrides by label, `{"gru": ["algorithm=mappo", "model=gru"]}`.
        environments: names, or overrides by label.
        seeds: number of seeds (from 0), or the seeds; None: three.
        evaluations: number of evaluations of each run, unless `evaluate_every` is given; None: ten. One follows every
            `iterations // evaluations` iterations, so there can be more.
        overrides: of every run, such as `["frames=1_000_000", "n_envs=64"]`; after those of a spec.
        compare: results of BenchMARL or others in marl-eval's layout: paths, or mappings with path, label and tasks;
            besides those of a spec.
        config_dir: folder of YAML variants, instead of that of a spec.
        jobs: parallel processes, each with its share of the cores; 1: all runs in this process.
        report: execute the report notebook into `<out>/report`.
        progress: show progress.
    Raises:
        ConfigError: the spec cannot be read or composed; nothing was started.
        AnalysisError: a file of `compare` is not in marl-eval's layout; nothing was started.
        TrustError: the spec is of another person's folder, and names code that the user does not trust.
        RunError: the folder holds something else, or a run of another experiment.
        PapermillExecutionError: a cell of the report failed; the runs are complete.
    """
    if jobs < 1:
        raise ConfigError(f"jobs: expected at least 1; got {jobs}")
    stated = {"algorithms": algorithms, "environments": environments, "seeds": seeds, "evaluations": evaluations}
    full_spec = _spec(spec, {name: value for name, value in stated.items() if value is not None})
    full_spec = full_spec.extended(overrides=overrides, compare=compare, config_dir=config_dir)
    runs = [replace(run, experiment=run.experiment.loaded()) for run in full_spec.runs()]
    folder = _folder(spec, out)
    check_runs(folder, runs)
    external_runs(full_spec)  # a file that cannot be read is an error now, not after the training runs
    result = Benchmark.create(folder, full_spec)
    full_spec.trust(str(folder), "trained")
    frames = {run.folder: frames_done(folder / run.folder, run) for run in runs}
    display = TrainingsProgress(runs, frames, None if progress else io.StringIO())
    pending = _pending(runs, folder, display)
    together, others = _faster_together(pending)
    try:
        outcomes = _train(folder, together, others, display, jobs)
    finally:
        display.close()
    result = replace(
        result,
        failed={str(outcome.run): outcome.message for outcome in outcomes if outcome.end == "failed"},
        stopped=any(outcome.end == "stopped" for outcome in outcomes) or len(outcomes) < len(pending),
    )
    if result.stopped:
        return result
    result.write_marl_eval()
    if report:
        result = replace(result, without_report=write_reports(result, progress=progress))
    return result


def _spec(spec: BenchmarkSpec | str | os.PathLike[str] | None, stated: Mapping[str, Any]) -> BenchmarkSpec:
    """A spec, or one that is made from what is stated in its place."""
    if spec is None:
        if not {"algorithms", "environments"} <= stated.keys():
            raise ConfigError("benchmark needs a spec (or a YAML file), or algorithms and environments")
        return BenchmarkSpec.make(**stated)
    if stated:
        raise ConfigError(
            f"the spec states algorithms, environments, seeds and evaluations; got {', '.join(stated)} too: remove "
            "them, or change the spec"
        )
    return spec if isinstance(spec, BenchmarkSpec) else read_spec(spec)


def _folder(spec: BenchmarkSpec | str | os.PathLike[str] | None, out: str | os.PathLike[str] | None) -> Path:
    """`out`, or a folder named like the spec's file."""
    if out is not None:
        return expanded(out)
    return Path("runs", "benchmark" if spec is None or isinstance(spec, BenchmarkSpec) else Path(spec).stem)


def _pending(runs: Sequence[PlannedRun], folder: Path, display: TrainingsProgress) -> list[PlannedRun]:
    """The runs that are not complete; the display shows that the others are."""
    pending = []
    for run in runs:
        if is_run(folder / run.folder) and is_complete(folder / run.folder):
            display.end(run, "already complete")
        else:
            pending.append(run)
    return pending


def _train(
    folder: Path, together: Sequence[PlannedRun], others: Sequence[PlannedRun], display: TrainingsProgress, jobs: int
) -> list[Outcome]:
    """Trains and evaluates the runs that train together, then, unless stopped, the others."""
    outcomes = run_together(folder, together, display, jobs=jobs, after=evaluate_if_missing)
    if not any(outcome.end == "stopped" for outcome in outcomes):
        launch = run_in_turn if jobs == 1 else partial(run_side_by_side, jobs=jobs)
        outcomes += launch(folder, others, display, finish)
    return outcomes


def _faster_together(runs: Sequence[PlannedRun]) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """Runs of several seeds that train in less time together, and the others."""
    groups = groups_of_seeds(runs)
    faster = [group for group in groups if len(group) > 1 and is_faster_together(group[0].experiment)]
    together = [run for group in faster for run in group]
    return together, [run for group in groups if group not in faster for run in group]


def write_reports(result: Benchmark, *, progress: bool = True) -> dict[str, str]:
    """Executes the report notebook into `<benchmark>/report`, as `.ipynb` and `.html`, after measuring the references.

    If there are several metrics, as where groups are rewarded differently, each has a report in `report/<metric>`.
    Reports of an earlier call that are not made again are deleted.

    Returns:
        By metric, why it has no report.
    Raises:
        PapermillExecutionError: a cell failed; the notebook shows it.
    """
    from marlnb.batch.job.execute import execute

    metrics, folders, without = result.metrics(), set[Path](), {}
    for metric in metrics:
        folder = result.path / REPORT / ("" if len(metrics) == 1 else metric)
        try:
            result.compare(metric=metric)
        except AnalysisError as error:
            without[metric] = str(error)
            continue
        parameters = {"folder": str(result.path.absolute()), "metric": metric}
        execute(NOTEBOOK, folder, parameters, progress=progress)
        folders.add(folder)
    for outdated in {report.parent for report in result.reports} - folders:
        for name in ("notebook.ipynb", "notebook.html"):
            (outdated / name).unlink(missing_ok=True)
    return without
