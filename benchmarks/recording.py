"""What recording costs: CPU over the same rollout without it, bandwidth to disk, and times of the usual reads.

    python -m benchmarks.recording [--copies 32 256] [--repeats 9] [--megabytes 512]

CPU time is the process's own; recorded and plain rollouts alternate, and medians are shown. "rows" counts everything
that `record` adds but what is asked of the policies and the environment besides: critics' values and built-in labels
have columns of their own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from marlnb.algorithms.ppo import MAPPOConfig
from marlnb.config import Experiment
from marlnb.models.mlp import MLPConfig
from marlnb.recording.episode_recorder import Contents, EpisodeRecorder
from marlnb.recording.layout import Field
from marlnb.recording.preparation import Prepared, prepare
from marlnb.recording.request import Request
from marlnb.recording.writer import RecordingWriter
from marlnb.registry import ENVIRONMENTS
from marlnb.training.checkpoint import save_checkpoint
from marlnb.training.episodes import play
from marlnb.training.learners import build_learners
from marlnb.training.run import Run

EPISODES_A_COPY = 120


class Idle:
    """A watcher that does nothing: what `play` itself spends on being watched, built-in labels above all."""

    def before_step(self, moment: object) -> None: ...

    def after_step(self, moment: object, step: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--env", default="mpe/simple_spread")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = untrained_run(Path(folder) / "run", options.env)
        print("| copies | type | plain ms/step | watched | + rows | + values | + hidden sites |")
        print("|---|---|---|---|---|---|---|")
        for copies in options.copies:
            for dtype in ("float32", "float16"):
                print(overhead(run, Path(folder), copies, dtype, options.repeats), flush=True)
        bandwidth_and_reads(Path(folder), options.megabytes, options.repeats)


def untrained_run(path: Path, env: str) -> Run:
    experiment = Experiment(env=ENVIRONMENTS.get(env)(), algorithm=MAPPOConfig(), model=MLPConfig())
    run = Run.create(path, experiment)
    learners = build_learners(experiment, run.spec, "cpu")
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=0, frames=0, score=None)
    return run


def overhead(run: Run, folder: Path, copies: int, dtype: str, repeats: int) -> str:
    """One line of the table: medians over interleaved repeats."""
    request = Request(
        copies * EPISODES_A_COPY, "*/actor/hidden_*", None, 1, dtype, 0, False, True, False, "last", copies, None, "cpu"
    )
    with prepare(run, request) as prepared:
        contents = prepared.trial.contents
        unlabelled = [source for source in contents.before if not source.field.path.startswith("labels/")]
        steps_alone = [source for source in unlabelled if not source.field.path.startswith("activations/")]
        rows = replace(contents, critics=(), before=steps_alone)
        values = replace(rows, critics=contents.critics)
        sites = replace(rows, before=unlabelled)
        cases: dict[str, Callable[[], object]] = {
            "plain": lambda: None,
            "watched": lambda: Idle(),
            "rows": lambda: rows,
            "values": lambda: values,
            "sites": lambda: sites,
        }
        spent: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, make in cases.items():
                spent[name].append(played(prepared, make(), folder / "overhead.h5"))
    steps = EPISODES_A_COPY * (prepared.env.spec.max_steps or 1)
    plain, watched, *others = (statistics.median(spent[name]) for name in cases)
    shares = " | ".join(f"{(other - watched) / plain:+.1%}" for other in others)
    return f"| {copies} | {dtype} | {plain / steps * 1e3:.3f} | {watched / plain - 1:+.1%} | {shares} |"


def played(prepared: Prepared, what: object, path: Path) -> float:
    """CPU seconds of one rollout, with everything to disk where `what` says what to record."""
    request = prepared.request
    began = time.process_time()
    watcher, writer = what, None
    if isinstance(what, Contents):
        writer = RecordingWriter(path, what.fields, {}, {"id": [0] * 3, "name": ["a"] * 3}, expected_rows=10**6)
        watcher = EpisodeRecorder(prepared.env, what, writer, every=1, activations=prepared.activations)
    play(
        prepared.env,
        prepared.policies,
        episodes=request.episodes,
        seed=request.seed,
        explore=False,
        watcher=watcher,  # type: ignore[arg-type]
    )
    if writer is not None:
        writer.close(complete=True)
    spent = time.process_time() - began
    path.unlink(missing_ok=True)
    return spent


def bandwidth_and_reads(folder: Path, megabytes: int, repeats: int) -> None:
    """8 agents × 256 units, episodes of 100 steps, against the same bytes by `ndarray.tofile`."""
    rows = megabytes * 2**20 // (8 * 256 * 4) // 1600 * 1600
    block = np.random.default_rng(0).standard_normal((16, 100, 8, 256), dtype=np.float32)
    field = Field("activations/a/actor/x", ("agent", "unit"), (8, 256), "float32", "a")

    def recorded() -> None:
        (folder / "a.h5").unlink(missing_ok=True)
        agents: dict[str, list[Any]] = {"id": list(range(8)), "name": [f"a_{i}" for i in range(8)]}
        writer = RecordingWriter(folder / "a.h5", [field], {}, agents, expected_rows=rows)
        for _ in range(rows // 1600):
            writer.append([block])
        writer.close(complete=True)

    def plain() -> None:
        (folder / "a.bin").unlink(missing_ok=True)
        with open(folder / "a.bin", "wb") as file:
            for _ in range(rows // 1600):
                block.tofile(file)

    times: dict[str, list[float]] = {"tofile": [], "recorder": []}
    for _ in range(repeats):
        for name, write in (("tofile", plain), ("recorder", recorded)):
            began = time.perf_counter()
            write()
            times[name].append(time.perf_counter() - began)
    size_mb = rows * 8 * 256 * 4 / 1e6
    tofile, recorder = (statistics.median(values) for values in times.values())
    print(f"\n| writing {size_mb:.0f} MB | MB/s |\n|---|---|\n| ndarray.tofile | {size_mb / tofile:.0f} |")
    print(f"| recorder | {size_mb / recorder:.0f} ({tofile / recorder:.0%} of it) |")
    with h5py.File(folder / "a.h5") as file:
        data, random = file[field.path], np.random.default_rng(1)

        def episode() -> slice:
            start = 100 * int(random.integers(rows // 100))
            return slice(start, start + 100)

        reads: dict[str, Callable[[], object]] = {
            "a random episode of 100 steps": lambda: data[episode()],
            "one agent's": lambda: data[episode(), 3],
            f"one unit over {rows:,} rows": lambda: data[:, 3, int(random.integers(256))],
        }
        print("\n| reading | ms, warm |\n|---|---|")
        for name, read in reads.items():
            spent = []
            for _ in range(max(5, repeats)):
                began = time.perf_counter()
                read()
                spent.append(time.perf_counter() - began)
            print(f"| {name} | {statistics.median(spent) * 1e3:.2f} |")


if __name__ == "__main__":
    main()
