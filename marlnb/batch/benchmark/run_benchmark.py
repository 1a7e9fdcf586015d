"""benchmark: brings every run of a plan to its end, writes what they measured, and reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marlnb.batch.benchmark.benchmark import REPORT, Benchmark
from marlnb.batch.benchmark.launch import check_runs, run_in_turn, run_side_by_side
from marlnb.batch.benchmark.progress_display import BenchmarkProgress, SilentProgress, frames_done
from marlnb.batch.benchmark.results import is_complete
from marlnb.batch.benchmark.spec import BenchmarkSpec, Overrides, read_spec
from marlnb.errors import AnalysisError, ConfigError
from marlnb.training.runs.files import is_run

NOTEBOOK = Path(__file__).with_name("report.ipynb")


def benchmark(
    spec: BenchmarkSpec | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    algorithms: Overrides | None = None,
    environments: Overrides | None = None,
    seeds: int | Iterable[int] = 3,
    overrides: Sequence[str] = (),
    evaluations: int = 10,
    compare: Sequence[Any] = (),
    config_dir: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    report: bool = True,
    progress: bool = True,
) -> Benchmark:
    """Trains and evaluates algorithms × environments × seeds, and compares them.

    A run that is complete is skipped, one that was interrupted or has failed goes on from its last checkpoint, a
    missing one is begun: the same call goes on with what an earlier one left. A run that fails is told in `failed` of
    what is returned, and the others go on.

    Args:
        plan: a Plan, or a YAML file that states one; otherwise it is made of the arguments up to `config_dir`.
        out: the benchmark's folder; none: `runs/<name of the file>`, else `runs/benchmark`.
        algorithms: names, `["ippo", "mappo"]`, or overrides by label, `{"gru": ["algorithm=mappo", "model=gru"]}`.
        environments: likewise.
        seeds: how many (from 0 on), or which.
        overrides: of every run, as `["frames=1_000_000", "n_envs=64"]`.
        evaluations: of each run, evenly spread, where no `evaluate_every` is given.
        compare: BenchMARL's results, or others in marl-eval's layout: paths, or mappings with path, label and tasks.
        jobs: processes side by side, each with its share of the cores; 1: all runs in this process.
        report: execute the report notebook into `<out>/report`.
    Raises:
        ConfigError: the plan cannot be read or composed; nothing has been started.
        RunError: the folder holds something else, or a run of another experiment.
        PapermillExecutionError: a cell of the report failed; the runs are there.
    """
    if jobs < 1:
        raise ConfigError(f"jobs: 1 or more; got {jobs}")
    spec = _plan(spec, algorithms, environments, seeds, overrides, evaluations, compare, config_dir)
    runs = spec.runs()
    folder = Path(out).expanduser() if out is not None else _default_folder(spec)
    check_runs(folder, runs)
    found = Benchmark.create(folder, spec)
    progress_display: BenchmarkProgress = SilentProgress()
    if progress:
        progress_display = BenchmarkProgress(runs, {run.folder: frames_done(folder / run.folder, run) for run in runs})
    todo = []
    for run in runs:
        if is_run(folder / run.folder) and is_complete(folder / run.folder):
            progress_display.end(run, "complete already")
        else:
            todo.append(run)
    try:
        outcomes = (
            run_in_turn(folder, todo, progress_display)
            if jobs == 1
            else run_side_by_side(folder, todo, progress_display, jobs)
        )
    finally:
        progress_display.close()
    found = replace(
        found,
        failed={str(outcome.run): outcome.message for outcome in outcomes if outcome.end == "failed"},
        stopped=any(outcome.end == "stopped" for outcome in outcomes) or len(outcomes) < len(todo),
    )
    if found.stopped:
        return found
    found.write_marl_eval()
    if report:
        try:
            write_report(found, progress=progress)
        except AnalysisError as error:
            if not found.failed:
                raise
            progress_display.say(f"no report, since runs have failed: {error}")
    return found


def write_report(found: Benchmark, *, notebook: str | os.PathLike[str] = NOTEBOOK, progress: bool = True) -> Path:
    """Executes the report notebook into `<benchmark>/report`, as `.ipynb` and `.html`; measures references first.

    Raises:
        AnalysisError: nothing that can be compared.
        PapermillExecutionError: a cell failed; the notebook shows it.
    """
    from marlnb.batch.job.execute import execute

    found.compare()
    parameters = {"folder": str(found.path.absolute())}
    return execute(Path(notebook), found.path / REPORT, parameters, progress=progress)


def _plan(
    spec: BenchmarkSpec | str | os.PathLike[str] | None,
    algorithms: Overrides | None,
    environments: Overrides | None,
    seeds: int | Iterable[int],
    overrides: Sequence[str],
    evaluations: int,
    compare: Sequence[Any],
    config_dir: str | os.PathLike[str] | None,
) -> BenchmarkSpec:
    if spec is None:
        if algorithms is None or environments is None:
            raise ConfigError("benchmark needs a plan, or algorithms and environments")
        return BenchmarkSpec.make(
            algorithms,
            environments,
            seeds,
            overrides=overrides,
            evaluations=evaluations,
            compare=compare,
            config_dir=config_dir,
        )
    if algorithms is not None or environments is not None:
        raise ConfigError("benchmark takes a plan, or algorithms and environments, not both")
    made = spec if isinstance(spec, BenchmarkSpec) else read_spec(spec, config_dir=config_dir)
    return replace(made, overrides=(*made.overrides, *overrides))


def _default_folder(spec: Any) -> Path:
    return Path("runs") / ("benchmark" if spec is None or isinstance(spec, BenchmarkSpec) else Path(spec).stem)
