"""Runs and batches that are there already: made with which versions, against those that jobs would have now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from marlnb.batch.batch import BATCH, Batch
from marlnb.batch.doctor.check import Answer, Subject, check


@check("what is there already")
def _made_with(subject: Subject) -> Iterator[Answer]:
    for path in subject.made:
        then, now = made_with(path), {"python": subject.seen.python, **subject.seen.versions}
        differing = [
            f"{name} {then[name]}, now {now[name]}" for name in then if now.get(name) not in ("", None, then[name])
        ]
        if differing:
            remedy = "go on with it in the environment that made it, or give a fresh --out: results may differ"
            yield "warn", f"{path} was made with {'; '.join(differing)}", remedy
        elif then:
            yield "ok", f"{path} was made with the versions that jobs have now", ""
        else:
            yield "ok", f"{path} does not say with which versions it was made", ""


def made_with(path: Path) -> Mapping[str, str]:
    """The versions that a batch, or the newest recording of a run, names; empty where nothing does."""
    if (path / BATCH).is_file():
        return Batch.open(path).made_with()
    recordings = sorted((path / "recordings").glob("*.h5"), key=lambda file: file.stat().st_mtime)
    if not recordings:
        return {}
    import h5py

    try:
        with h5py.File(recordings[-1], "r") as file:
            return {"marlnb": str(file.attrs["code_version"])} if "code_version" in file.attrs else {}
    except OSError:  # being written, or damaged: `marlnb repair` is for that
        return {}
