"""The comparison of a batch: executed over a small real one of hunters and prey, and over one that has trained nothing.

About a minute on two idle cores: six notebooks are executed, each with a kernel of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

import marlnb as mnb
from marlnb.batch.batch import Batch
from marlnb.batch.job.execute import execute
from marlnb.batch.job.job import CellError, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep

ROOT = Path(__file__).parents[2]
COMPARE = ROOT / "notebooks" / "compare.ipynb"
TRAIN = """\
import marlnb as mnb

experiment = mnb.Experiment.compose(
    "env=mpe/simple_tag", f"algorithm={algorithm}", "n_envs=4", "rollout_steps=25", "frames=400",
    "threads=1", "algorithm.epochs=1", "algorithm.minibatch_frames=50", "model.hidden=[8]", f"seed={seed}",
)
trained = mnb.train(experiment, run=run, resume=True, progress=False)
"""
LAST = "assert (algorithm, seed) != ('ippo', 1), 'as the test wants it'"


def notebook(path: Path, parameters: str, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def printed(executed: Path) -> tuple[str, int, str]:
    """What an executed notebook printed, its figures' number, and its tables."""
    outputs = [output for cell in nbformat.read(executed, 4).cells for output in cell.get("outputs", [])]
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    tables = "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    return "".join(output.get("text", "") for output in outputs), figures, tables


def test_a_batch_ends_in_its_comparison_and_what_failed_is_explained(tmp_path: Path) -> None:
    source = notebook(tmp_path / "train.ipynb", 'run = ""\nalgorithm = "mappo"\nseed = 0', TRAIN)
    sweep: dict[str, Any] = {"algorithm": ["mappo", "ippo"], "seed": [0, 1]}
    batch = mnb.submit(source, sweep, on="local", out=tmp_path / "b", then=COMPARE, wait=True, progress=False)
    report = batch.report_job()
    assert report.status().state == "complete", batch.table().to_string()
    text, figures, tables = printed(report.folder / "notebook.ipynb")
    assert "4 jobs of train.ipynb; 4 complete" in text
    assert "compared: algorithm; repeated: seed" in text
    assert "nothing is missing: 4 training runs of 4 jobs are compared" in text
    assert figures == 6  # curves, scores, which is better, each for both groups
    for job in batch.jobs():
        href = f"../jobs/{job.name.replace('=', '%3D').replace(',', '%2C')}/notebook.html"
        assert href in tables and tables.count(f">{job.folder}</td>") == 1 and (job.folder / "notebook.html").is_file()
    assert "image/png" in (report.folder / "notebook.html").read_text(encoding="utf-8")


def test_a_batch_without_trainings_whose_job_failed_compares_durations(tmp_path: Path) -> None:
    source = notebook(tmp_path / "plain.ipynb", 'run = ""\nalgorithm = "x"\nseed = 0', LAST)
    sweep = Sweep({"algorithm": ("mappo", "ippo"), "seed": (1,)}, {})
    batch = Batch.create(tmp_path / "b", source, sweep, Profile())
    done, failed = batch.jobs()
    done.write_status(JobStatus(state="complete", attempt=1, seconds=90.0))
    error = CellError(2, LAST, "AssertionError", "as the test wants it", "Traceback ...")
    failed.write_status(JobStatus("failed", "cell 2: AssertionError", 1, 2, 2, seconds=30.0, error=error))
    out = batch.path / "compare"
    execute(COMPARE, out, {"batch": str(batch.path)}, progress=False)
    text, figures, _ = printed(out / "notebook.ipynb")
    assert "1 complete, 1 failed" in text or "1 failed, 1 complete" in text
    assert "no training run is complete: durations and states are all that can be compared" in text
    assert "not compared: algorithm=ippo,seed=1: failed, and it has no run: cell 2: AssertionError" in text
    assert f"marlnb batch {batch.path} --only algorithm=ippo,seed=1" in text
    assert figures == 0
