"""Benchmark: a folder from which a comparison is read, with nothing else needed."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.analysis.benchmarking import marl_eval
from marlnb.analysis.benchmarking.comparison import Comparison, Scale, compare_runs
from marlnb.analysis.benchmarking.marl_eval import RETURN, EvaluatedRun, ScoreKind
from marlnb.batch.benchmark.references import find_references, levels_of
from marlnb.batch.benchmark.results import is_complete, measured
from marlnb.batch.benchmark.spec import BenchmarkRun, BenchmarkSpec, PlannedRun
from marlnb.batch.trainings.progress_display import frames_done, planned_frames
from marlnb.display.formatting import count
from marlnb.display.notebook_html import frame_html, title_html
from marlnb.errors import ConfigError, RunError, TrustError
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run, read_json, write_atomically
from marlnb.training.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

SPEC = "benchmark.json"
MARL_EVAL = "marl_eval.json"
REPORT = "report"
MAX_ROWS = 20  # of the table that a notebook shows


@dataclass(frozen=True, repr=False)
class Benchmark:
    """A benchmark's folder: `benchmark.json` (the spec), `runs/<env>/<algorithm>/seed_<k>`, `marl_eval.json`,
    `references.json` and `report/notebook.ipynb`.

    Attributes:
        path: the folder.
        spec: its algorithms, environments and seeds.
        failed: by run, why it failed in this process; empty for an opened benchmark.
        without_report: by metric, why this process made no report of it; empty for an opened benchmark.
        stopped: whether it was stopped before its end in this process.
    """

    path: Path
    spec: BenchmarkSpec
    failed: dict[str, str]
    without_report: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    @staticmethod
    def open(path: str | os.PathLike[str], *, trust: bool = False) -> Benchmark:
        """An existing benchmark. Nothing that its folder names is imported; what needs its code asks for trust.

        Args:
            trust: allow the code that the folder names, and remember it. Your own benchmarks need none.
        Raises:
            RunError: the folder is not a benchmark.
        """
        folder = expanded(path)
        if not (folder / SPEC).is_file():
            raise RunError(f"{folder} is not a benchmark: it has no {SPEC}; `marlnb benchmark` creates one")
        spec = BenchmarkSpec.from_json(read_json(folder / SPEC), origin=str(folder))
        if trust:
            spec.trust(str(folder), "granted")
        return Benchmark(folder, spec, {})

    @staticmethod
    def create(path: str | os.PathLike[str], spec: BenchmarkSpec) -> Benchmark:
        """Creates a benchmark, or gives an existing one this spec; runs that the spec no longer has stay in the folder.

        Raises:
            RunError: the folder holds something else.
        """
        folder = expanded(path)
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        if names and SPEC not in names:
            raise RunError(
                f"{folder} already exists and is not a benchmark: it holds {', '.join(names[:5])} but no {SPEC}; give "
                "--out a new folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / SPEC, json.dumps(spec.to_json(), indent=2) + "\n")
        return Benchmark(folder, spec, {})

    @property
    def report(self) -> Path:
        """The executed report."""
        return self.path / REPORT / "notebook.ipynb"

    @property
    def reports(self) -> list[Path]:
        """The executed reports: one, or one for each of several metrics."""
        return sorted((self.path / REPORT).rglob("notebook.ipynb"))

    def metrics(self) -> list[str]:
        """The metrics to compare: `return`; and `<group>_return` of tasks whose groups are rewarded differently."""
        common: dict[str, list[str]] = {}  # by task, the metrics of all of its runs
        for run in self.runs():
            common[run.task] = [name for name in common.get(run.task, run.metrics) if name in run.metrics]
        names = [[RETURN] if RETURN in of_task else of_task for of_task in common.values()]
        return list(dict.fromkeys(itertools.chain(*names))) or [RETURN]

    def table(self) -> pd.DataFrame:
        """One row per run: task, algorithm, seed, state, frames done and planned, folder.

        Planned frames are missing for runs that have not started, if the folder names code that the user does not
        trust.
        """
        import pandas as pd

        return pd.DataFrame(describe_runs(self.path, self.spec))

    def __repr__(self) -> str:
        states = Counter(state_of(self.path / run.folder) for run in self.spec.labels())
        shown = ", ".join(f"{n:,} {state}" for state, n in states.items())
        what = f"{', '.join(self.spec.algorithms)} on {', '.join(self.spec.environments)}"
        missing = "".join(f"; no report of {metric}: {why}" for metric, why in self.without_report.items())
        return f"<Benchmark {self.path}: {what}, {count(len(self.spec.seeds), 'seed')}; runs: {shown}{missing}>"

    def _repr_html_(self) -> str:
        return title_html(repr(self).strip("<>")) + frame_html(self.table(), index=False, max_rows=MAX_ROWS)

    def runs(self) -> list[EvaluatedRun]:
        """The evaluations of all complete runs, and of the external runs of `compare`.

        Raises:
            AnalysisError: an external file is not in marl-eval's layout.
        """
        runs = self.complete_runs() + external_runs(self.spec)
        marl_eval.check_unique(runs)
        return runs

    def complete_runs(self) -> list[EvaluatedRun]:
        """The evaluations of the spec's complete runs."""
        folders = [(run, self.path / run.folder) for run in self.spec.labels()]
        return [measured(run, folder) for run, folder in folders if is_run(folder) and is_complete(folder)]

    def references(self, metric: str = RETURN) -> dict[str, dict[str, float]]:
        """Reference returns by task and name: `random`, and those of scripted policies where they are known.

        The random policy of a new task is measured now.

        Raises:
            TrustError: that needs code that the folder names and the user does not trust.
        """
        started = {run.task: run for run in reversed(self.spec.labels()) if is_run(self.path / run.folder)}
        experiments = {task: Run.open(self.path / run.folder).experiment for task, run in started.items()}
        if set(experiments) < set(self.spec.environments):
            experiments = {run.task: run.experiment for run in reversed(self.spec.runs())} | experiments
        return levels_of(find_references(self.path, experiments), metric)

    def compare(self, *, metric: str = RETURN, which: ScoreKind = "final", scale: Scale = "references") -> Comparison:
        """Normalised scores of all complete runs; see `compare_runs`.

        Raises:
            AnalysisError: no run can be compared.
        """
        references = self.references(metric) if scale == "references" else None
        return compare_runs(self.runs(), metric=metric, which=which, references=references, scale=scale)

    def write_marl_eval(self) -> Path:
        """Writes the complete runs in marl-eval's layout, `marl_eval.json`."""
        target = self.path / MARL_EVAL
        layout = marl_eval.to_layout(self.complete_runs())
        write_atomically(target, json.dumps(layout, allow_nan=False, indent=1) + "\n")
        return target


def external_runs(spec: BenchmarkSpec) -> list[EvaluatedRun]:
    """The evaluations of the files of `compare`.

    Raises:
        AnalysisError: one is not in marl-eval's layout.
    """
    sources = [marl_eval.read_marl_eval(source.path, label=source.label, tasks=source.tasks) for source in spec.compare]
    return [run for runs in sources for run in runs]


def describe_runs(folder: Path, spec: BenchmarkSpec) -> list[dict[str, Any]]:
    """One row per run: its state is "missing", "complete", "to evaluate" or the state of its training.

    `of`, its planned frames, is None where only code could say them that the user does not trust, or does not have.
    """
    runs = {run: _planned(run, folder) for run in spec.labels()}
    if None in runs.values():
        with suppress(TrustError, ConfigError):
            composed = {run.folder: run for run in spec.runs()}
            runs = {run: planned or composed[run.folder] for run, planned in runs.items()}
    return [
        {
            "task": run.task,
            "algorithm": run.algorithm,
            "seed": run.seed,
            "state": state_of(folder / run.folder),
            "frames": 0 if planned is None else frames_done(folder / run.folder, planned),
            "of": None if planned is None else planned_frames(planned),
            "folder": run.folder,
        }
        for run, planned in runs.items()
    ]


def _planned(run: BenchmarkRun, folder: Path) -> PlannedRun | None:
    """A run with the experiment in its folder; None if it has not started."""
    if not is_run(folder / run.folder):
        return None
    return PlannedRun(run.task, run.algorithm, run.seed, Run.open(folder / run.folder).experiment)


def state_of(folder: Path) -> str:
    """The state of a run: "complete" after training and final evaluation, "missing", or the state of its training."""
    if not is_run(folder):
        return "missing"
    state = str(Run.open(folder).status()["state"])
    return "to evaluate" if state == "complete" and not is_complete(folder) else state
