"""What recording costs: CPU over the same rollout without it, bandwidth to disk, and times of the usual reads.

    python -m benchmarks.recording [--repeats 9] [--megabytes 512]

Rollouts of simple_spread through mpe2 and PettingZoo, whose steps cost what steps of real environments do (the target
of 3% is set against those), and of marlnb's own, batched one, where a step costs next to nothing. CPU time is the
process's own, with every step to disk; recorded and plain rollouts alternate, and medians are shown. "all" is both
hidden layers and everything that `record` keeps beside activations by default; the columns before it leave parts out:
"rows" has neither activations, critics' values nor labels; "idle" is all of it with `every` beyond the episodes'
length, so that only their first steps are kept; "captured" is all of it with hooks at every step instead of one pass
an episode.
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
from unittest import mock

import h5py
import numpy as np
import torch

from marlnb.algorithms.ppo import MAPPOConfig
from marlnb.config import Experiment
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.models.mlp import MLPConfig
from marlnb.recording.contents import Contents
from marlnb.recording.episode_recorder import EpisodeRecorder
from marlnb.recording.layout import Field
from marlnb.recording.preparation import Prepared, prepare
from marlnb.recording.request import Request
from marlnb.recording.writer import RecordingWriter
from marlnb.registry import ENVIRONMENTS
from marlnb.training.checkpoint import save_checkpoint
from marlnb.training.episodes import play
from marlnb.training.learners import build_learners
from marlnb.training.run import Run

STEPS_A_COPY = 1000
ROLLOUTS = (("pettingzoo/simple_spread", (1, 8)), ("mpe/simple_spread", (32, 256)))
TARGET = 0.03
EPISODE_STEPS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        columns = "idle | rows | + values | + hidden sites | captured | all"
        print(f"| rollout | copies | type | plain µs/step | {columns} | ≤ {TARGET:.0%} |")
        print("| --- " * 11 + "|")
        for name, copies in ROLLOUTS:
            run = untrained_run(Path(folder) / name.replace("/", "-"), name)
            for n_envs in copies:
                for dtype in ("float32", "float16"):
                    print(overhead(run, Path(folder), n_envs, dtype, options.repeats), flush=True)
        bandwidth_and_reads(Path(folder), options.megabytes, options.repeats)


def untrained_run(path: Path, name: str) -> Run:
    kind = ENVIRONMENTS.get(name)
    env = kind(workers=0) if issubclass(kind, PettingZooConfig) else kind()  # all CPU time is this process's
    experiment = Experiment(env=env, algorithm=MAPPOConfig(), model=MLPConfig())
    run = Run.create(path, experiment)
    learners = build_learners(experiment, run.spec, "cpu")
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=0, frames=0, score=None)
    return run


def overhead(run: Run, folder: Path, copies: int, dtype: str, repeats: int) -> str:
    """One line of the table: medians over interleaved repeats."""
    episodes = copies * (STEPS_A_COPY // EPISODE_STEPS)
    request = Request(
        episodes=episodes,
        sites="*/actor/hidden_*",
        agents=None,
        every=1,
        dtype=dtype,
        seed=0,
        explore=False,
        values=True,
        frames=False,
        checkpoint="last",
        n_envs=copies,
        env=None,
        device="cpu",
    )
    with (
        prepare(run, request) as prepared,  # no hooks are left in its policies, so that they play the plain ones too
        mock.patch("marlnb.recording.trial.agrees", lambda *given: False),
        prepare(run, request) as hooked,
    ):
        everything = prepared.trial.contents
        rows = without(everything, "labels", "critics", "activations")
        values = without(everything, "labels", "activations")
        sites = without(everything, "labels", "critics")
        cases: dict[str, tuple[Prepared, Contents | None, int]] = {
            "plain": (prepared, None, 1),
            "idle": (prepared, everything, 10**6),
            "rows": (prepared, rows, 1),
            "values": (prepared, values, 1),
            "sites": (prepared, sites, 1),
            "captured": (hooked, hooked.trial.contents, 1),
            "all": (prepared, everything, 1),
        }
        spent: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, (by, contents, every) in cases.items():
                spent[name].append(played(by, contents, every, folder / "overhead.h5"))
    plain, *others = (statistics.median(spent[name]) for name in cases)
    shares = " | ".join(f"{other / plain - 1:+.1%}" for other in others)
    met = "met" if others[-1] / plain - 1 <= TARGET else "missed"
    name = run.experiment.env.name
    return f"| {name} | {copies} | {dtype} | {plain / STEPS_A_COPY * 1e6:.0f} | {shares} | {met} |"


def without(contents: Contents, *parts: str) -> Contents:
    """What is left when activations, critics or labels are not recorded."""
    left = replace(contents, critics=()) if "critics" in parts else contents
    dropped = tuple(f"{part}/" for part in parts)
    left = replace(left, actors=()) if "activations" in parts else left
    left = replace(left, before=[source for source in left.before if not source.field.path.startswith(dropped)])
    if "labels" not in parts or left.labels is None:
        return left
    context = [source for source in left.context if source is not left.labels.source]
    return replace(left, labels=None, context=context)


def played(prepared: Prepared, contents: Contents | None, every: int, path: Path) -> float:
    """CPU seconds of one rollout, with `contents` to disk."""
    request = prepared.request
    began = time.process_time()
    watcher, writer = None, None
    if contents is not None:
        agents: dict[str, list[Any]] = {"id": [0] * 3, "name": ["a"] * 3}
        writer = RecordingWriter(path, contents.fields, {}, agents, expected_rows=10**6)
        watcher = EpisodeRecorder(prepared.env, contents, writer, every=every, activations=prepared.activations)
    play(
        prepared.env,
        prepared.policies,
        episodes=request.episodes,
        seed=request.seed,
        explore=False,
        watcher=watcher,
    )
    if writer is not None and watcher is not None:
        watcher.settle()
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
