"""The cost of recording: CPU time over the same rollout without it, bandwidth to disk, and times of typical reads.

    python -m benchmarks.recording [--part overhead] [--rollout mpe/simple_spread] [--seconds 100]

The rollouts are of simple_spread: through mpe2 and PettingZoo, where a step costs as much as in typical environments
(the target of 5% is relative to those), and of marlnb's own, batched version, where a step costs very little. A rollout
includes acting, stepping every env, resets and counting returns. Its envs are stepped in worker processes, the default
of `record`, or in this process (`workers=0`), where the recorder and the environment's code share the processor's
caches. The CPU time is that of all threads of this process and of the workers. Every step is written to disk. "all"
records the defaults of `record`: every site of the actor (two hidden layers of 64 and the head), observations, actions,
logits, critics' values and the environment's labels, in float32. "idle" is the same with `every` larger than the
episodes' length, so that only their first steps are kept.

Within one rollout, turns of four episodes repeat in this order: without a recorder, with an idle one, without a
recorder, with one that keeps all. A group is as many rounds as fill a block of the file, so that it contains its share
of copying, networks, labels and writing. The table gives two figures, each the median over groups with the 95% interval
of bootstrapped medians:

- "calls": the thread's CPU time inside the recorder's calls, over that of the rest of the same turns. Variations of the
  machine's speed affect both, so this figure is the precise one. The cost of reading the clock is subtracted; it is
  measured in the turns without a recorder. The effect of a recorder on the environment's caches is not included.
- "paired": the CPU time of the turns with a recorder minus the mean of the turns without one around them, over that
  mean. It includes everything. Its noise is the figure "nothing": every second turn without a recorder against the
  others.

The file is created and closed once; the table shows the milliseconds, and adds them to the calls for rollouts of 1,000
and 5,000 steps. The lower bound is the cost of writing the same bytes by `ndarray.tofile` and of running the same
networks and labels over the same rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from benchmarks.table import markdown_row, markdown_table
from benchmarks.turns import TakingTurns, children
from marlnb.algorithms.configs.ppo import MAPPOConfig
from marlnb.config import ENVIRONMENTS
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.capture.schema import RecordingSchema
from marlnb.recording.capture.sources import T
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.episodes import play
from marlnb.training.learners import build_learners
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run

ROLLOUTS = (  # environment, envs, workers (-1: as many as there are cores)
    ("pettingzoo/simple_spread", 8, -1),
    ("pettingzoo/simple_spread", 8, 0),
    ("pettingzoo/simple_spread", 1, 0),
    ("mpe/simple_spread", 32, 0),
)
RECORDERS = ("idle", "all")
LENGTHS = (1000, 5000)
TARGET = 0.05
EPISODE_STEPS = 25
EPISODES = 4  # of a turn
BLOCK_ROWS = 16384  # the block size of `record` for these fields
MIN_GROUPS = 4
BOOTSTRAPS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("overhead", "bandwidth"), help="one of the two; none: both")
    parser.add_argument("--rollout", choices=sorted({name for name, _, _ in ROLLOUTS}), help="one of them; none: all")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3, help="of writing and reading")
    parser.add_argument("--seconds", type=float, default=110.0, help="of one rollout")
    parser.add_argument("--megabytes", type=int, default=512)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.part != "bandwidth":
            header = ["rollout", "envs", "workers", "bytes a step", "groups", "plain µs/step"]
            header.append("nothing, paired % (95%)")
            for case in RECORDERS:
                header += [f"{case}, calls µs", "% (95%)", "paired % (95%)"]
            header += ["floor µs", "file ms", *(f"all, {steps:,} steps" for steps in LENGTHS)]
            print(markdown_table(header, ()))
            for name, n_envs, workers in ROLLOUTS:
                if arguments.rollout in (None, name):
                    run = untrained_run(Path(folder) / f"{name.replace('/', '-')}-{n_envs}-{workers}", name, workers)
                    print(overhead(run, Path(folder), n_envs, arguments), flush=True)
        if arguments.part != "overhead":
            bandwidth_and_reads(Path(folder), arguments.megabytes, arguments.repeats)


def untrained_run(path: Path, name: str, workers: int) -> Run:
    kind = ENVIRONMENTS.get(name)
    env = kind(workers=workers) if issubclass(kind, PettingZooConfig) else kind()
    experiment = Experiment(env=env, algorithm=MAPPOConfig(), model=MLPConfig())
    run = Run.create(path, experiment)
    learners = build_learners(experiment, run.spec, "cpu")
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=0, frames=0, returns={})
    return run


def overhead(run: Run, folder: Path, n_envs: int, arguments: argparse.Namespace) -> str:
    """One line of the table."""
    # fewer episodes than envs would be played by fewer envs
    config = RecordingConfig(episodes=n_envs, dtype=arguments.dtype, seed=0, n_envs=n_envs)
    with prepare(run, config) as prepared:
        schema, worker_pids = prepared.dry_run.schema, children()
        turns = taking_turns(prepared, folder, arguments.seconds)
        floor = statistics.median(floor_s(schema, n_envs, folder / "floor.bin") for _ in range(arguments.repeats))
    plain, file_s = statistics.median(turns.plain_s), statistics.median(turns.file_s)
    cells = [run.experiment.env.name, str(n_envs), str(len(worker_pids))]
    cells += [f"{n_envs * sum(field.row_bytes for field in schema.fields):,}", str(len(turns.added_s["all"]))]
    cells += [f"{plain * 1e6:.0f}", _shown([added / plain for added in turns.added_s["nothing"]])]
    for name in RECORDERS:
        cells += [f"{statistics.median(turns.calls_s[name]) * 1e6:.1f}", _shown(turns.calls_share[name])]
        cells.append(_shown([added / plain for added in turns.added_s[name]]))
    cells += [f"{floor * 1e6:.0f}", f"{file_s * 1e3:.1f}"]
    all_share = statistics.median(turns.calls_share["all"])
    totals = [all_share + file_s / steps / plain for steps in LENGTHS]
    cells += [f"{total:+.1%} {'met' if total <= TARGET else 'missed'}" for total in totals]
    return markdown_row(cells)


def _shown(shares: list[float]) -> str:
    """The median and its bootstrapped 95% interval."""
    low, high = median_interval(shares)
    return f"{statistics.median(shares):+.1%} ({low:+.1%} to {high:+.1%})"


def median_interval(values: list[float]) -> tuple[float, float]:
    """95% interval of the median, by the percentile bootstrap."""
    drawn = np.random.default_rng(0).choice(values, (BOOTSTRAPS, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class Turns:
    """CPU seconds of a step of all envs.

    Attributes:
        plain_s: `[group]`, without a recorder; file_s: of creating and closing a file.
        added_s: by case, `[group]`, the process's time beyond that of the turns without a recorder.
        calls_s, calls_share: by recorder, `[group]`, the thread's time in its calls; over the rest of its turns.
    """

    plain_s: list[float]
    added_s: dict[str, list[float]]
    calls_s: dict[str, list[float]]
    calls_share: dict[str, list[float]]
    file_s: list[float]


def taking_turns(prepared: Prepared, folder: Path, seconds: float) -> Turns:
    """One rollout of about `seconds`; its first group, which touches new memory, is not counted."""
    n_envs, file_s = prepared.env.n_envs, []
    recorders, writers = {}, []
    for name, every in (("idle", 10**6), ("all", 1)):
        start_s = time.process_time()
        agents: dict[str, list[Any]] = {"id": [0] * 3, "name": ["a"] * 3}
        schema = prepared.dry_run.schema
        if every > 1:
            schema = replace(schema, context=(*schema.context, T))
        writer = RecordingWriter(folder / f"{name}.h5", schema.fields, {}, agents, expected_rows=BLOCK_ROWS)
        options: dict[str, Any] = {"every": every, "activations": prepared.activations}
        recorders[name] = EpisodeRecorder(prepared.env, schema, writer, **options)
        writers.append(writer)
        file_s.append(time.process_time() - start_s)
    callback = TakingTurns(recorders, EPISODES * EPISODE_STEPS)
    rounds = -(-BLOCK_ROWS // (n_envs * callback.n_steps))
    groups = MIN_GROUPS + int(seconds / (4 * rounds * callback.n_steps * prepared.dry_run.step_s))
    episodes = 4 * (groups + 1) * rounds * EPISODES * n_envs
    play(prepared.env, prepared.policies, episodes=episodes, seed=0, explore=False, callback=callback)
    for place, (recorder, writer) in enumerate(zip(recorders.values(), writers)):
        recorder.write_finished()
        writer.flush()
        start_s = time.process_time()
        writer.close(complete=True)
        file_s[place] += time.process_time() - start_s
        writer.path.unlink()
    turns = np.array([(turn.process_s, turn.calls_s) for turn in callback.turns])
    grouped = turns.reshape(groups + 1, rounds, 4, 2)[1:].mean(1)  # [group, turn of a round, process or calls]
    clock_s = float(np.median(grouped[:, ::2, 1]))
    alone = grouped[:, ::2, 0] - clock_s
    added = {"nothing": (alone[:, 1] - alone[:, 0]).tolist()}
    calls, shares = {}, {}
    for place, name in enumerate(RECORDERS):
        process, inside = grouped[:, 1 + 2 * place].T
        added[name] = (process - clock_s - alone.mean(1)).tolist()
        calls[name] = (inside - clock_s).tolist()
        shares[name] = ((inside - clock_s) / (process - inside)).tolist()
    return Turns(alone.mean(1).tolist(), added, calls, shares, file_s)


def floor_s(schema: RecordingSchema, n_envs: int, path: Path) -> float:
    """CPU seconds, for a step of all envs, of the networks and labels over the rows and of writing their bytes."""
    n_rows, passes = 1024, 16
    row_bytes = sum(field.row_bytes for field in schema.fields)
    block = np.ones((n_rows, row_bytes), np.uint8)
    fields = {field.path: field for field in schema.buffered}
    inputs = {name: each.observation for name, each in schema.inputs.items()}
    seen = {name: torch.rand(n_rows, *fields[place].shape) for name, place in inputs.items()}
    label_states = None if schema.labels is None else torch.rand(n_rows, *schema.labels.source.field.shape)
    with open(path, "wb") as file, ExitStack() as stack:
        actors = [(actor.selection.group.name, stack.enter_context(actor.evaluating())) for actor in schema.actors]
        critics = [stack.enter_context(critic.evaluating()) for critic in schema.critics]
        start_s = time.process_time()
        for _ in range(passes):
            for group, evaluate in actors:
                evaluate(seen[group], None)
            for judge in critics:
                judge(seen, None)
            if schema.labels is not None and label_states is not None:
                schema.labels.compute(label_states)
            block.tofile(file)
        spent = time.process_time() - start_s
    path.unlink()
    return spent / n_rows / passes * n_envs


def bandwidth_and_reads(folder: Path, megabytes: int, repeats: int) -> None:
    """8 agents × 256 units, episodes of 100 steps, compared with writing the same bytes by `ndarray.tofile`."""
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
            start_s = time.perf_counter()
            write()
            times[name].append(time.perf_counter() - start_s)
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
                start_s = time.perf_counter()
                read()
                spent.append(time.perf_counter() - start_s)
            print(f"| {name} | {statistics.median(spent) * 1e3:.2f} |")


if __name__ == "__main__":
    main()
