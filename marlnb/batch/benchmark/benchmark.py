"""Benchmark: a folder from which a comparison is read, with nothing else needed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.analysis.benchmarking.comparison import Comparison, Scale, compare_runs
from marlnb.analysis.benchmarking.marl_eval import (
    RETURN,
    EvaluatedRun,
    ScoreKind,
    check_unique,
    read_marl_eval,
    to_layout,
)
from marlnb.batch.benchmark.progress_display import frames_done
from marlnb.batch.benchmark.references import find_references, levels_of
from marlnb.batch.benchmark.results import is_complete, measured
from marlnb.batch.benchmark.spec import BenchmarkSpec, PlannedRun
from marlnb.errors import RunError
from marlnb.training.runs.files import is_run, read_json, write_atomically
from marlnb.training.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

PLAN = "benchmark.json"
MARL_EVAL = "marl_eval.json"
REPORT = "report"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's folder: `benchmark.json` (the plan), `runs/<env>/<algorithm>/seed_<k>`, `marl_eval.json`,
    `references.json` and `report/notebook.ipynb`.

    Attributes:
        failed: by run, why it failed when the benchmark was last run here; empty for one that was opened.
        stopped: whether it was stopped before its end.
    """

    path: Path
    spec: BenchmarkSpec
    failed: dict[str, str]
    stopped: bool = False

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Benchmark:
        """An existing benchmark.

        Raises:
            RunError: the folder holds none.
        """
        folder = Path(path).expanduser()
        if not (folder / PLAN).is_file():
            raise RunError(f"{folder} is no benchmark: it has no {PLAN}")
        return Benchmark(folder, BenchmarkSpec.from_json(read_json(folder / PLAN)), {})

    @staticmethod
    def create(path: str | os.PathLike[str], spec: BenchmarkSpec) -> Benchmark:
        """A folder for a plan, or one whose runs the plan goes on with: runs that the plan no longer has stay there.

        Raises:
            RunError: it holds something else.
        """
        folder = Path(path).expanduser()
        found = sorted(os.listdir(folder)) if folder.is_dir() else []
        if found and PLAN not in found:
            raise RunError(f"{folder} is there already and holds {', '.join(found[:5])}, but no benchmark")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / PLAN, json.dumps(spec.to_json(), indent=2) + "\n")
        return Benchmark(folder, spec, {})

    @property
    def report(self) -> Path:
        """The executed report."""
        return self.path / REPORT / "notebook.ipynb"

    def table(self) -> pd.DataFrame:
        """One row a run: task, algorithm, seed, state, frames done and planned, folder."""
        import pandas as pd

        return pd.DataFrame(describe_runs(self.path, self.spec.runs()))

    def runs(self) -> list[EvaluatedRun]:
        """The evaluations of every complete run of the plan, and of those made elsewhere that it compares with.

        Raises:
            AnalysisError: a file to compare with is not in marl-eval's layout.
        """
        found = self.own_runs()
        for source in self.spec.compare:
            found += read_marl_eval(source.path, label=source.label, tasks=source.tasks)
        check_unique(found)
        return found

    def own_runs(self) -> list[EvaluatedRun]:
        places = [(run, self.path / run.folder) for run in self.spec.runs()]
        return [measured(run, place) for run, place in places if is_run(place) and is_complete(place)]

    def references(self, metric: str = RETURN) -> dict[str, dict[str, float]]:
        """By task, named levels in units of reward: `random`, and what scripted policies reach where that is known.

        A task whose random policy was not yet measured is measured now.
        """
        return levels_of(find_references(self.path, self.spec.runs()), metric)

    def compare(self, *, metric: str = RETURN, which: ScoreKind = "final", scale: Scale = "references") -> Comparison:
        """Normalised scores of all complete runs; see `compare_runs`.

        Raises:
            AnalysisError: nothing that can be compared.
        """
        references = self.references(metric) if scale == "references" else None
        return compare_runs(self.runs(), metric=metric, which=which, references=references, scale=scale)

    def write_marl_eval(self) -> Path:
        """The complete runs of the plan in marl-eval's layout, `marl_eval.json`."""
        target = self.path / MARL_EVAL
        write_atomically(target, json.dumps(to_layout(self.own_runs()), allow_nan=False, indent=1) + "\n")
        return target


def describe_runs(folder: Path, runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """What the plan comes to: each run's state is missing, complete, or that in which its training was left."""
    return [
        {
            "task": run.task,
            "algorithm": run.algorithm,
            "seed": run.seed,
            "state": state_of(folder / run.folder),
            "frames": frames_done(folder / run.folder, run),
            "of": run.experiment.frames,
            "folder": run.folder,
        }
        for run in runs
    ]


def state_of(folder: Path) -> str:
    """complete: trained and evaluated at length; else what `Run.status` says, or missing."""
    if not is_run(folder):
        return "missing"
    state = str(Run.open(folder).status()["state"])
    return "to evaluate" if state == "complete" and not is_complete(folder) else state
