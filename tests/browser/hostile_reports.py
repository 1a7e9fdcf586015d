"""Reports that notebooks make of hostile names: of algorithms and tasks in another person's JSON, and of a batch."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat

from marlnb.batch.batch import Batch
from marlnb.batch.benchmark.run_benchmark import benchmark
from marlnb.batch.job.execute import execute
from marlnb.batch.job.job import CellError, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from tests.batch.test_benchmark import BENCHMARL, MPE
from tests.display.pages import HOSTILE
from tests.notebooks.test_compare import COMPARE

FORMULA = r"$\frac{$ and a $"  # figures are text as well, no formulas


def benchmark_report(folder: Path) -> Path:
    """The page of a benchmark that is compared with runs of hostile names."""
    raw = json.loads((BENCHMARL / "ippo_simple_spread_seed_0.json").read_text())
    seeds = raw["pettingzoo"]["simple_spread"]["ippo"]
    theirs = folder / "theirs.json"
    names = {HOSTILE: seeds, FORMULA: seeds}
    theirs.write_text(json.dumps({"mpe": {"simple_spread": names}, HOSTILE: {HOSTILE: names, FORMULA: names}}))
    result = benchmark(
        out=folder / "benchmark",
        algorithms=["ippo"],
        environments=["mpe/simple_spread"],
        seeds=1,
        overrides=MPE,
        evaluations=2,
        compare=[str(theirs)],
        progress=False,
    )
    return result.report.with_suffix(".html")


def comparison_page(folder: Path) -> Path:
    """The page of a batch of hostile values, whose jobs failed with hostile errors."""
    cells = [nbformat.v4.new_code_cell('x = ""\nseed = 0', metadata={"tags": ["parameters"]})]
    source = folder / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    batch = Batch.create(folder / "batch", source, Sweep({"x": (HOSTILE, FORMULA), "seed": (1,)}, {}), Profile())
    done, failed = batch.jobs()
    done.write_status(JobStatus(state="complete", attempt=1, seconds=90.0))
    error = CellError(2, HOSTILE, "AssertionError", HOSTILE, HOSTILE)
    failed.write_status(JobStatus("failed", f"cell 2: {HOSTILE}", 1, 2, 2, seconds=30.0, error=error))
    execute(COMPARE, folder / "compare", {"batch": str(batch.path)}, progress=False)
    return folder / "compare" / "notebook.html"
