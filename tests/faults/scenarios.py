"""What is killed in the middle, and then given again: commands that write, and everything that they leave."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.result import Attribution
from marlnb.batch.batch import Batch
from marlnb.batch.job import run_job
from marlnb.batch.job.html_page import make_page
from marlnb.batch.job.job import Job
from marlnb.batch.monitor import watch
from marlnb.batch.submit import plan_submission, submit_plan
from marlnb.batch.sweep.grammar import values_of_python
from marlnb.cli import parser_of
from marlnb.cli.recordings import export
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.recording.file import layout
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.backfill import backfill
from marlnb.recording.tools.merge import merge
from marlnb.recording.tools.repair import repair
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from tests.batch.batches import notebook
from tests.batch.jobs import make as make_job
from tests.batch.jobs import texts
from tests.faults.processes import call_in_fork
from tests.recording.runs import LivesConfig, make_run

Result = dict[str, str]
SECONDS = {"seconds", "frames_per_second", "stepping_s", "acting_s", "learning_s"}
PROGRAM = "marlnb.batch.job.run_job"
SET_ASIDE = re.compile(r"incomplete-\d+")


@dataclass(frozen=True)
class Scenario:
    """A command that may be given again after it was killed.

    Attributes:
        prepare: what is there before.
        command: of a folder; it returns nothing of interest.
        result: everything that the folder holds, by name, without what differs between two undisturbed commands.
        program: part of the command line of the process that meets the fault; empty: the command's own.
        in_process: whether the command starts no process or thread that lives on.
        warm_up: does once what the command would do in each attempt; None: the command, if it is `in_process`.
    """

    prepare: Callable[[Path], object]
    command: Callable[[Path], object]
    result: Callable[[Path], Result]
    program: str = ""
    in_process: bool = True
    warm_up: Callable[[Path], object] | None = None


_SPREAD = ("env=mpe/simple_spread", "env.N=2", "env.max_cycles=5")
_SMALL = (
    *("algorithm=ippo", "algorithm.epochs=1", "model.hidden=[4]", "n_envs=2", "rollout_steps=5", "threads=1"),
    *("keep_checkpoints=2", "evaluation_episodes=2"),
)


@cache
def _experiment(*overrides: str) -> Experiment:
    """Composed once, in the process of which all attempts are forks."""
    return Experiment.compose(*_SMALL, *overrides)


def _train(folder: Path) -> None:
    experiment = _experiment(*_SPREAD, "frames=40", "checkpoint_every=1", "evaluate_every=2")
    train(experiment, folder / "run", resume=True, progress=False)


def _evolve(folder: Path) -> None:
    overrides = ("evolution=tournament", "evolution.population=2", "evolution.generation_frames=10")
    experiment = _experiment(*_SPREAD, *overrides, "frames=120", "checkpoint_every=3")
    train(experiment, folder / "run", resume=True, progress=False)


def _evolved(folder: Path) -> Result:
    result = _trained(folder)
    result["lineage"] = (folder / "run" / "population" / "lineage.jsonl").read_text()
    return result


def _league(folder: Path, frames: int = 80) -> None:
    """Two rounds of four players that learn, with snapshots."""
    experiment = _experiment("env=tests.populations.training.games:RockPaperScissors", "league=alphastar", "frames=40")
    train(replace(experiment, checkpoint_every=3, frames=frames), folder / "run", resume=True, progress=False)


def _make_request(folder: Path) -> None:
    """A league after its first round, of which a player is to retire."""
    _league(folder, frames=40)
    Run.open(folder / "run").league.retire("league_exploiter_1", "a test")


def _retire(folder: Path) -> None:
    resume(folder / "run", frames=80, progress=False)


def _with_league(folder: Path) -> Result:
    names = ("matches.jsonl", "players.jsonl", "requests.jsonl")
    files = {name: folder / "run" / "league" / name for name in names}
    return _trained(folder) | {name: path.read_text() for name, path in files.items() if path.exists()}


def _trained(folder: Path) -> Result:
    run = Run.open(folder / "run")
    status = run.status()
    result = {"state": f"{status['state']}, {status['frames']} frames", "files": _files(folder)}
    result |= {name: (run.path / name).read_text() for name in ("experiment.json", "spec.json")}
    result["metrics"] = run.metrics().drop(columns=list(SECONDS)).to_csv()
    result["evaluations"] = json.dumps([_without_seconds(row) for row in run.evaluations()])
    for checkpoint in run.checkpoints:
        state = _without_seconds(checkpoint.load())
        result[f"checkpoint {checkpoint.iteration}"] = _digest(state)
    return result


def _record(folder: Path, **options: Any) -> None:
    record(folder / "run", episodes=12, n_envs=4, exist="open", progress=False, **options).close()


def _recorded(folder: Path) -> Result:
    result = {"files": _files(folder)}
    for path in sorted(folder.rglob("*.h5")):
        name = str(path.relative_to(folder))
        if SET_ASIDE.search(name):
            Recording.open(path).close()  # it opens
        elif not path.parent.name.endswith((".segments", ".attributions")):
            result |= {f"{name}: {key}": value for key, value in contents(path).items()}
    return result


def contents(path: Path) -> Result:
    """Everything that a recording holds."""
    with Recording.open(path) as recording:
        result = {"complete": str(recording.complete), "settings": json.dumps(recording.settings, sort_keys=True)}
        result["tables"] = recording.episodes.to_csv() + recording.checkpoints.to_csv()
        for name in row_paths(recording.file):
            result[name] = _digest(recording._array(name).to_numpy())
        if "frames" in recording.file:
            result["frames"] = _digest(recording.file["frames/image"][:])
        return result


def _make_recordings(folder: Path, seeds: tuple[int, ...] = ()) -> None:
    run = make_run(folder / "run", LivesConfig(), centralised=False)
    for seed in seeds:
        record(run, name=f"seed{seed}", seed=seed, episodes=6, n_envs=2, progress=False).close()


def _merge(folder: Path) -> None:
    recordings = folder / "run" / "recordings"
    try:
        merge([recordings / "seed0.h5", recordings / "seed100.h5"], recordings / "both.h5").close()
    except MarlnbError as error:
        if "already exists" not in str(error):  # a kill after the last step
            raise


def _make_damaged(folder: Path) -> None:
    run = make_run(folder / "run", LivesConfig(), centralised=False)
    layout.MAX_BLOCK_ROWS = 32  # several chunks, of which one is damaged
    record(run, name="seed0", episodes=40, n_envs=4, progress=False).close()
    path = folder / "run" / "recordings" / "seed0.h5"
    with Recording.open(path) as recording:
        offsets: list[int] = []
        recording.file["steps/a/observation"].id.chunk_iter(lambda info: offsets.append(info.byte_offset))
    with open(path, "r+b") as file:
        file.seek(offsets[0] + 100)
        file.write(b"changed afterwards")


def _repair(folder: Path) -> None:
    repair(folder / "run" / "recordings" / "seed0.h5", keep=True)


def _backfill(folder: Path) -> None:
    with Recording.open(folder / "run" / "recordings" / "seed0.h5") as recording:
        try:
            backfill(recording, sites=["a/actor/head"])
        except MarlnbError as error:
            if "already has" not in str(error):  # a kill after its commit
                raise


def _attribute(folder: Path) -> None:
    path = folder / "run" / "recordings" / "seed0.h5"
    saved = path.with_suffix(".attributions") / "a.h5"
    if saved.exists() and not Attribution.load(saved).file_warnings:
        return  # a kill after the last step
    with Recording.open(path) as recording:
        attribute(recording, group="a", to="action", method="saliency", batch_size=16, save="a", progress=False)


def _attributed(folder: Path) -> Result:
    attribution = Attribution.load(folder / "run" / "recordings" / "seed0.attributions" / "a.h5")
    return _recorded(folder) | {"values": _digest(np.array(attribution.values)), "meta": json.dumps(attribution.meta())}


def _export(folder: Path) -> None:
    for ending in ("csv", "nc"):
        words = [str(folder / "run" / "recordings" / "seed0.h5"), "--to", {"nc": "xarray"}.get(ending, ending)]
        if not (out := folder / f"data.{ending}").exists():  # a kill after it
            export.run(parser_of("export").parse_args([*words, "--out", str(out)]))


def _exported(folder: Path) -> Result:
    return _recorded(folder) | {
        "csv": (folder / "data.csv").read_text(),
        "nc": str(xr.load_dataset(folder / "data.nc")),
    }


def _make_without_sites(folder: Path) -> None:
    run = make_run(folder / "run", LivesConfig(), centralised=False)
    record(run, name="seed0", sites=[], episodes=6, n_envs=2, progress=False).close()


def _make_notebook(folder: Path) -> None:
    """A notebook; and in the place of Python a script that says its job is complete."""
    notebook(folder / "n.ipynb", "print(n)")
    script = folder / "python"
    script.write_text('#!/bin/sh\ncd $3 && echo \'{"state": "complete", "attempt": 1}\' > job_status.json\n')
    script.chmod(0o700)


def _submit(folder: Path) -> None:
    values = values_of_python({"n": [0, 1]})
    changes = {"python": str(folder / "python"), "at_once": 1, "cores": 1}
    plan = plan_submission(folder / "n.ipynb", values, on="local", profile_overrides=changes, out=folder / "batch")
    watch(submit_plan(plan), progress=False, poll_s=0.1)


def _submitted(folder: Path) -> Result:
    batch = Batch.open(folder / "batch")
    names = [path.name for path in folder.rglob(".*") if "supervisor" not in path.name]
    return {name: status.state for name, status in batch.statuses().items()} | {"temporary files": " ".join(names)}


def _run_job(folder: Path) -> None:
    job = make_job(folder / "job", "print(n)")
    call_in_fork(partial(run_job.main, [str(job.folder)]))


def _import_for_jobs(folder: Path) -> None:
    """Imports what a job imports when it needs it."""
    run_job.skip_url_grammar()
    from marlnb.batch.job import execute_notebook, html_export  # noqa: F401

    make_page(notebook(folder / "n.ipynb", "1"))


def _job_has_run(folder: Path) -> Result:
    job = Job.open(folder / "job")
    names = " ".join(path.name for path in sorted(job.folder.iterdir()))
    return {"state": job.status().state, "files": names, "output": texts(job)[-1]}


def _files(folder: Path) -> str:
    """The names of all files, without recordings that were set aside."""
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    return "\n".join(name for name in names if not SET_ASIDE.search(name))


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if key not in SECONDS}
    return value


def _digest(value: Any) -> str:
    digest = hashlib.sha256()

    def add(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            item = item.contiguous().numpy()
        if isinstance(item, np.ndarray):
            digest.update(repr((item.dtype, item.shape)).encode() + np.ascontiguousarray(item).tobytes())
        elif isinstance(item, dict):
            for key in item:
                add(key), add(item[key])
        elif isinstance(item, list | tuple):
            for part in item:
                add(part)
        else:
            digest.update(repr(item).encode())

    add(value)
    return digest.hexdigest()


def copy(prepared: Path, folder: Path) -> Path:
    """A copy of what was prepared, to work on."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    return folder


SCENARIOS = {
    "train": Scenario(lambda folder: None, _train, _trained),
    "evolve": Scenario(lambda folder: None, _evolve, _evolved),
    "league": Scenario(lambda folder: None, _league, _with_league),
    "retire": Scenario(_make_request, _retire, _with_league),
    "record": Scenario(_make_recordings, partial(_record, frames=True), _recorded),
    "segments": Scenario(_make_recordings, partial(_record, segment_bytes=9_000, sites=["a/actor/head"]), _recorded),
    "merge": Scenario(partial(_make_recordings, seeds=(0, 100)), _merge, _recorded),
    "repair": Scenario(_make_damaged, _repair, _recorded),
    "backfill": Scenario(_make_without_sites, _backfill, _recorded),
    "attribute": Scenario(partial(_make_recordings, seeds=(0,)), _attribute, _attributed),
    "export": Scenario(partial(_make_recordings, seeds=(0,)), _export, _exported),
    "batch": Scenario(_make_notebook, _submit, _submitted, in_process=False),
    "supervisor": Scenario(
        _make_notebook, _submit, _submitted, program="marlnb.batch.local.supervisor", in_process=False
    ),
    "job": Scenario(
        lambda folder: None, _run_job, _job_has_run, program=PROGRAM, in_process=False, warm_up=_import_for_jobs
    ),
}
