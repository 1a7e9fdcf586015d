"""A batch with a job that fails, for real, to its report: four kernels, about 15 s alone on an idle core."""

from __future__ import annotations

from pathlib import Path

import nbformat

import marlnb as mnb


def real(path: Path, parameters: str, *cells: str) -> Path:
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[first, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def test_a_failing_job_is_mended_and_the_report_follows(tmp_path: Path) -> None:
    """The local executor for real: two jobs, one fails; run again, only that one runs, and then the report."""
    cell = "import pathlib\nassert n != 1 or pathlib.Path(mended).exists(), 'not mended'"
    ran = "with open(f'{run}/ran', 'a') as file: file.write('x')"
    source = real(tmp_path / "a.ipynb", 'run = ""\nn = 0\nmended = ""', cell, ran)
    report = "import json, marlnb as mnb\nstates = [s.state for s in mnb.Batch.open(batch).statuses().values()]"
    then = real(
        tmp_path / "r.ipynb", 'batch = ""\nrun = ""', f"{report}\njson.dump(states, open(f'{{run}}/states.json', 'w'))"
    )
    asked = {"n": range(2), "mended": str(tmp_path / "mended")}
    batch = mnb.submit(source, asked, out=tmp_path / "batch", then=then, progress=False)
    statuses = batch.statuses()
    assert [status.state for status in statuses.values()] == ["complete", "failed"]
    error = statuses["n=1"].error
    assert error is not None and (error.name, error.message) == ("AssertionError", "not mended")
    assert batch.report_job().status().state == "waiting"
    (tmp_path / "mended").touch()
    batch = mnb.submit(source, asked, out=tmp_path / "batch", then=then, progress=False)
    assert [(status.state, status.attempt) for status in batch.statuses().values()] == [
        ("complete", 1),
        ("complete", 2),
    ]
    assert [(job.folder / "ran").read_text() for job in batch.jobs()] == ["x", "x"]
    assert (batch.path / "report" / "states.json").read_text() == '["complete", "complete"]'
