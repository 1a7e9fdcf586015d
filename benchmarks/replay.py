"""The replay buffer with a million frames: time of a sample of 256 and memory, compared with torchrl's.

    python -m benchmarks.replay [--frames 1_000_000]

Both are filled with the same rollouts of simple_spread (8 environments, 125 steps) and store the data of a centralised
learner. torchrl's is a TensorDictReplayBuffer with a LazyTensorStorage, as BenchMARL uses it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from benchmarks.table import Row, report
from marlnb.algorithms.replay import ReplayBuffer
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.rollout import Collector

BATCH, N_ENVS, N_STEPS = 256, 8, 125


def seconds(work: Callable[[], object], calls: int) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def flat(rollout: TensorDict) -> TensorDict:
    """The data that a centralised learner needs, one row per frame."""
    group = "agent"
    keys = [(group, name) for name in ("observation", "action", "acting", "alive")]
    after = [("next", group, name) for name in ("observation", "reward", "terminated", "done", "alive")]
    return rollout.select(*keys, *after).reshape(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    env = SimpleSpreadConfig().build(N_ENVS)
    group = env.spec.groups[0]
    collector = Collector(env, {group.name: RandomPolicy(group)}, N_STEPS)
    collector.reset(0)
    ours = ReplayBuffer(arguments.frames, group=group, reads=(group.name,), seed=0)
    theirs = TensorDictReplayBuffer(storage=LazyTensorStorage(arguments.frames), batch_size=BATCH)
    for _ in range(arguments.frames // (N_ENVS * N_STEPS) + 1):
        rollout = collector.collect().to_tensordict()
        ours.add(rollout)
        theirs.extend(flat(rollout))
    sampling: dict[str, list[float]] = {"torchrl": [], "marlnb": []}
    adding: dict[str, list[float]] = {"torchrl": [], "marlnb": []}
    for _ in range(arguments.repetitions):
        sampling["marlnb"].append(1e6 * seconds(lambda: ours.sample(BATCH), 300))
        sampling["torchrl"].append(1e6 * seconds(theirs.sample, 300))
        adding["marlnb"].append(1e6 * seconds(lambda: ours.add(rollout), 20))
        adding["torchrl"].append(1e6 * seconds(lambda: theirs.extend(flat(rollout)), 20))
    held = {"torchrl": [theirs[:].bytes() / 1e6], "marlnb": [ours.size_bytes / 1e6]}
    compare("sampling", f"A sample of {BATCH} frames from {arguments.frames:,}", sampling, "CPU µs")
    compare("adding", f"Adding {N_ENVS * N_STEPS} frames", adding, "CPU µs")
    compare("memory", f"Memory of {arguments.frames:,} frames", held, "MB")


def compare(name: str, title: str, times: dict[str, list[float]], unit: str) -> None:
    theirs = Row("torchrl", tuple(times["torchrl"]), unit)
    ours = Row("marlnb", tuple(times["marlnb"]), unit, against="torchrl", target=1.0, at_most=True)
    report(f"replay-{name}", title, [theirs, ours])


if __name__ == "__main__":
    main()
