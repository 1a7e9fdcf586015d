"""What recording costs: CPU over the same rollout without it, bandwidth to disk, and times of the usual reads.

    python -m benchmarks.recording [--part overhead] [--rollout mpe/simple_spread] [--repeats 3] [--seconds 4]

Rollouts of simple_spread through mpe2 and PettingZoo, whose steps cost what steps of real environments do (the target
of 3% is set against those), and of marlnb's own, batched one, where a step costs next to nothing. CPU time is the
process's own, with every step to disk. Within one rollout the recorder takes turns with nothing, 25 steps each, so
that both see the same machine; the last rows' way to disk counts too. The medians over repeats are shown. "all" is
both hidden layers and everything that `record` keeps beside activations by default; "nothing" records nothing in its
turns: what the measurement itself scatters by; "idle" is all of it with `every` beyond the episodes' length, so that
only their first steps are kept; "rows" has neither activations, critics' values nor labels; "captured" is all of it
with hooks at every step instead of one pass over the rows of ended episodes. The file is made and closed once, in the
milliseconds shown, which are added for rollouts of 1,000 and 5,000 steps. The floor is what the same bytes cost by
`ndarray.tofile`, and the same networks and labels over the same rows, 1,024 at a time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import torch

from marlnb.algorithms.ppo import MAPPOConfig
from marlnb.config import Experiment
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.envs.vector import Step
from marlnb.models.mlp import MLPConfig
from marlnb.recording.contents import Contents
from marlnb.recording.episode_recorder import EpisodeRecorder
from marlnb.recording.layout import Field
from marlnb.recording.preparation import Prepared, prepare
from marlnb.recording.request import Request
from marlnb.recording.writer import RecordingWriter
from marlnb.registry import ENVIRONMENTS
from marlnb.training.checkpoint import save_checkpoint
from marlnb.training.episodes import Moment, play
from marlnb.training.learners import build_learners
from marlnb.training.run import Run

ROLLOUTS = (("pettingzoo/simple_spread", 1), ("pettingzoo/simple_spread", 8), ("mpe/simple_spread", 32))
CASES = ("nothing", "idle", "rows", "captured", "all")
LENGTHS = (1000, 5000)
TARGET = 0.03
EPISODE_STEPS = 25
FIRST_TURNS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("overhead", "bandwidth"), help="one of the two; none: both")
    parser.add_argument("--rollout", choices=sorted({name for name, _ in ROLLOUTS}), help="one of them; none: all")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one rollout, by the plain steps' time")
    parser.add_argument("--megabytes", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.part != "bandwidth":
            totals = " | ".join(f"all, {steps:,} steps | floor" for steps in LENGTHS)
            print(f"| rollout | copies | plain µs/step | {' | '.join(CASES)} | file ms | {totals} | ≤ {TARGET:.0%} |")
            print("| --- " * (5 + len(CASES) + 2 * len(LENGTHS)) + "|")
            for name, copies in ROLLOUTS:
                if options.rollout in (None, name):
                    run = untrained_run(Path(folder) / f"{name.replace('/', '-')}-{copies}", name)
                    print(overhead(run, Path(folder), copies, options), flush=True)
        if options.part != "overhead":
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


def overhead(run: Run, folder: Path, copies: int, options: argparse.Namespace) -> str:
    """One line of the table: medians over interleaved repeats."""
    request = Request(
        episodes=copies,  # fewer would be played by fewer copies
        sites="*/actor/hidden_*",
        agents=None,
        every=1,
        dtype=options.dtype,
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
        cases: dict[str, tuple[Prepared, Contents | None, int]] = {
            "nothing": (prepared, None, 1),
            "idle": (prepared, everything, 10**6),
            "rows": (prepared, rows, 1),
            "captured": (hooked, hooked.trial.contents, 1),
            "all": (prepared, everything, 1),
        }
        first = taking_turns(prepared, None, 1, folder / "overhead.h5", FIRST_TURNS)
        n_turns = max(FIRST_TURNS, int(options.seconds / 2 / EPISODE_STEPS / first.plain_s))
        spent: dict[str, list[Turns]] = {name: [] for name in cases}
        for _ in range(options.repeats):
            for name, (by, contents, every) in cases.items():
                spent[name].append(taking_turns(by, contents, every, folder / "overhead.h5", n_turns))
        floor = statistics.median(floor_s(everything, copies, folder / "floor.bin") for _ in range(options.repeats))
    plain = statistics.median(turns.plain_s for all_turns in spent.values() for turns in all_turns)
    shares = {name: statistics.median(turns.share for turns in found) for name, found in spent.items()}
    file_s = statistics.median(turns.file_s for turns in spent["all"])
    totals = [shares["all"] + file_s / steps / plain for steps in LENGTHS]
    floors = [floor / plain + file_s / steps / plain for steps in LENGTHS]
    met = " ".join("met" if total <= TARGET else "missed" for total in totals)
    each = " | ".join(f"{shares[name]:+.1%}" for name in CASES)
    both = " | ".join(f"{total:+.1%} | {least:+.1%}" for total, least in zip(totals, floors))
    name = run.experiment.env.name
    return f"| {name} | {copies} | {plain * 1e6:.0f} | {each} | {file_s * 1e3:.1f} | {both} | {met} |"


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


@dataclass(frozen=True)
class Turns:
    """CPU seconds of a step of all copies without the recorder, what it adds as a share of them, and of the file."""

    plain_s: float
    share: float
    file_s: float


class TakingTurns:
    """Tells a watcher every second turn of `EPISODE_STEPS` steps; all copies begin an episode with each."""

    def __init__(self, watcher: EpisodeRecorder | None) -> None:
        self.watcher, self.is_on, self.steps = watcher, False, 0
        self.spent_s = {False: 0.0, True: 0.0}
        self.began = time.process_time()

    def before_step(self, moment: Moment) -> None:
        if self.is_on and self.watcher is not None:
            self.watcher.before_step(moment)

    def after_step(self, moment: Moment, step: Step) -> None:
        if self.is_on and self.watcher is not None:
            self.watcher.after_step(moment, step)
        self.steps += 1
        if self.steps == EPISODE_STEPS:
            assert bool(step.done.all()), "copies whose episodes end at different times cannot take turns"
            now = time.process_time()
            self.spent_s[self.is_on] += now - self.began
            self.began, self.is_on, self.steps = now, not self.is_on, 0


def taking_turns(prepared: Prepared, contents: Contents | None, every: int, path: Path, n_turns: int) -> Turns:
    """One rollout with `n_turns` turns of each kind; without contents, nothing is recorded in either."""
    n_envs, began = prepared.env.n_envs, time.process_time()
    recorder, writer = None, None
    if contents is not None:
        agents: dict[str, list[Any]] = {"id": [0] * 3, "name": ["a"] * 3}
        rows = n_turns * n_envs * -(-EPISODE_STEPS // every)
        writer = RecordingWriter(path, contents.fields, {}, agents, expected_rows=rows)
        recorder = EpisodeRecorder(prepared.env, contents, writer, every=every, activations=prepared.activations)
    file_s, watcher = time.process_time() - began, TakingTurns(recorder)
    play(
        prepared.env,
        prepared.policies,
        episodes=2 * n_turns * n_envs,
        seed=0,
        explore=False,
        watcher=watcher,
    )
    if writer is not None and recorder is not None:
        began = time.process_time()
        recorder.settle()
        writer.flush()
        on_disk = time.process_time()
        writer.close(complete=True)
        watcher.spent_s[True] += on_disk - began
        file_s += time.process_time() - on_disk
    path.unlink(missing_ok=True)
    plain, with_it = watcher.spent_s[False], watcher.spent_s[True]
    return Turns(plain / n_turns / EPISODE_STEPS, with_it / plain - 1, file_s)


def floor_s(contents: Contents, copies: int, path: Path) -> float:
    """CPU seconds, for a step of all copies, of the networks and labels over the rows and of writing their bytes."""
    n_rows, passes = 1024, 16
    row_bytes = sum(field.row_bytes for field in contents.fields)
    block = np.ones((n_rows, row_bytes), np.uint8)
    fields = {field.path: field for field in contents.buffered}
    inputs = {name: each.observation for name, each in contents.inputs.items()}
    seen = {name: torch.rand(n_rows, *fields[place].shape) for name, place in inputs.items()}
    moments = None if contents.labels is None else torch.rand(n_rows, *contents.labels.source.field.shape)
    began = time.process_time()
    with open(path, "wb") as file:
        for _ in range(passes):
            for actor in contents.actors:
                actor.evaluate(seen[actor.selection.group.name], None)
            for critic in contents.critics:
                critic.evaluate(seen, None)
            if contents.labels is not None and moments is not None:
                contents.labels.tell(moments)
            block.tofile(file)
    spent = time.process_time() - began
    path.unlink()
    return spent / n_rows / passes * copies


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
