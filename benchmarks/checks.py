"""What it costs to check an environment's numbers: a training iteration with the checks and without them.

    python -m benchmarks.checks [--iterations 40]

IPPO with one thread: on native simple_spread, and on the same game of PettingZoo, stepped in this process. The checks
are those of every step (five values, each observation's shape) and of every iteration (rewards, observations, losses
and weights are finite). The two kinds of iterations take turns in one training run, so that load on the machine meets
both alike. CPU time of the process; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.table import Row, report
from marlnb.envs.regroup import build_env
from marlnb.envs.workers import env_batch
from marlnb.envs.workers.rows import GroupRows
from marlnb.experiment import Experiment
from marlnb.training import loop
from marlnb.training.loop import build_loop

WORK = {
    "native, 64 envs": ("env=mpe/simple_spread", "n_envs=64", "rollout_steps=25"),
    "PettingZoo, 8 envs": ("env=pettingzoo/simple_spread", "n_envs=8", "rollout_steps=125", "env.workers=0"),
}
WARM_UP = 4
TARGET = 1.05


def write_unchecked(
    self: GroupRows, observations: Mapping[str, Any], rewards: Mapping[str, Any], infos: Mapping[str, Any]
) -> None:
    """`GroupRows.write` without a look at the observations' shapes, where all agents live and none has a mask."""
    assert self.all_present and self.plain and self.mask is None
    self.reward[:] = [rewards[agent] for agent in self.agents]
    for agent, row, _ in self.rows:
        row[...] = observations[agent]


@contextmanager
def without_checks() -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, instead in (
            (env_batch, "check_step", lambda returned: returned),
            (GroupRows, "write", write_unchecked),
            (loop, "check_rollout", lambda *_: None),
            (loop.Loop, "_check_finite", lambda *_: None),
        ):
            stack.enter_context(patch.object(target, name, instead))
        yield


def measure(overrides: tuple[str, ...], n: int, folder: Path) -> dict[str, list[float]]:
    """CPU milliseconds of iterations, with and without checks."""
    experiment = Experiment.compose(*overrides, "algorithm=ippo", "frames=100_000_000", "threads=1")
    times: dict[str, list[float]] = {"checked": [], "unchecked": []}
    with build_env(experiment, experiment.n_envs) as env:
        training = build_loop(experiment, env, torch.device("cpu"), folder)
        training.begin(0)
        for _ in range(WARM_UP):
            training.advance()
        for k in range(n):
            for kind in sorted(times, reverse=bool(k % 2)):
                with ExitStack() as stack:
                    if kind == "unchecked":
                        stack.enter_context(without_checks())
                    start = time.process_time()
                    training.advance()
                    times[kind].append(1e3 * (time.process_time() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=40, help="of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, overrides in WORK.items():
        with tempfile.TemporaryDirectory() as folder:
            times = measure(overrides, arguments.iterations, Path(folder))
        unchecked = f"{name}, without checks"
        rows += [
            Row(unchecked, tuple(times["unchecked"]), "CPU ms"),
            Row(f"{name}, with checks", tuple(times["checked"]), "CPU ms", unchecked, TARGET, at_most=True),
        ]
    report("checks", "A training iteration with and without checks of the environment's numbers", rows)


if __name__ == "__main__":
    main()
