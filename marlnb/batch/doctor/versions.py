"""Checks that existing runs and batches were made with the versions that jobs have now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from marlnb.batch.batch import BATCH, Batch
from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.errors import RecordingError


@check("existing runs")
def _made_with(request: DoctorRequest) -> Iterator[Answer]:
    for path in request.existing:
        then, now = made_with(path), {"python": request.kernel_report.python, **request.kernel_report.versions}
        differences = [
            f"{name} {then[name]}, now {now[name]}" for name in then if now.get(name) not in ("", None, then[name])
        ]
        if differences:
            remedy = "continue it in the environment that made it, or give a new --out: results may differ"
            yield "warn", f"{path} was made with {'; '.join(differences)}", remedy
        elif then:
            yield "ok", f"{path} was made with the versions that jobs have now", ""
        else:
            yield "ok", f"{path} does not contain the versions it was made with", ""


def made_with(path: Path) -> Mapping[str, str]:
    """The versions in a batch, or in the newest recording of a run; empty without them."""
    if (path / BATCH).is_file():
        return Batch.open(path).made_with()
    recordings = sorted((path / "recordings").glob("*.h5"), key=lambda file: file.stat().st_mtime)
    if not recordings:
        return {}
    from marlnb.recording.file.opening import open_recording_file

    try:
        with open_recording_file(recordings[-1], None) as file:
            return {"marlnb": str(file.attrs["code_version"])} if "code_version" in file.attrs else {}
    except RecordingError:  # being written, or damaged, which `marlnb repair` handles
        return {}
