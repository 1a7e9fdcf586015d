"""Native MPE's speed on one core: environment steps a second at several numbers of copies, against mpe2's own.

    python -m benchmarks.mpe_native [--scenario simple_spread] [--copies 1 32 1024 8192] [--repeats 5]

Actions are random and drawn before the clock starts; every number is the median of the repeats, in CPU time.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from statistics import median

import torch

import marlnb.envs.mpe  # noqa: F401  registers the scenarios
from marlnb.envs.mpe.scenario import MPEConfig
from marlnb.registry import ENVIRONMENTS

STEPS_AT_LEAST = 250
SECONDS_AT_LEAST = 0.5


def native_step_s(config: MPEConfig, n_envs: int, repeats: int) -> float:
    """CPU seconds of one step of all copies, episode ends included."""
    env = config.build(n_envs)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    shapes = {g.name: (n_envs, g.n_agents, *g.action.shape) for g in env.spec.groups}

    def draw() -> dict[str, torch.Tensor]:
        if config.continuous_actions:
            return {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
        return {g.name: torch.randint(g.action.n[0], shapes[g.name], generator=generator) for g in env.spec.groups}

    actions = [draw() for _ in range(25)]
    return _median_s(lambda k: env.step(actions[k % 25]), repeats)


def mpe2_step_s(config: MPEConfig, repeats: int) -> float:
    """CPU seconds of one step of mpe2's parallel environment."""
    env = importlib.import_module(config.mpe2_module).parallel_env(**config.mpe2_options())
    env.reset(seed=0)
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    actions = [{agent: env.action_space(agent).sample() for agent in env.possible_agents} for _ in range(25)]

    def step(k: int) -> None:
        env.step(actions[k % 25])
        if not env.agents:
            env.reset()

    return _median_s(step, repeats)


def _median_s(step: Callable[[int], object], repeats: int) -> float:
    """Median over repeats of the CPU time of a step, after one repeat that does not count."""
    times = []
    for _ in range(repeats + 1):
        start, k = time.process_time(), 0
        while k < STEPS_AT_LEAST or time.process_time() - start < SECONDS_AT_LEAST:
            step(k)
            k += 1
        times.append((time.process_time() - start) / k)
    return median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="simple_spread", help="a scenario of mpe2, or all")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 32, 1024, 8192])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--continuous", action="store_true", help="continuous actions")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in ENVIRONMENTS.names() if name.startswith("mpe/")]
    chosen = names if asked.scenario == "all" else [f"mpe/{asked.scenario}"]
    print(f"{'environment':28s} {'copies':>7s} {'µs a batch step':>16s} {'env steps/s':>14s} {'against mpe2':>13s}")
    for name in chosen:
        config = ENVIRONMENTS.get(name)(continuous_actions=asked.continuous)
        reference_s = mpe2_step_s(config, asked.repeats)
        print(f"{name + ' (mpe2)':28s} {1:7d} {reference_s * 1e6:16,.0f} {1 / reference_s:14,.0f} {1:12.1f}×")
        for n_envs in asked.copies:
            step_s = native_step_s(config, n_envs, asked.repeats)
            rate = n_envs / step_s
            print(f"{name:28s} {n_envs:7d} {step_s * 1e6:16,.0f} {rate:14,.0f} {rate * reference_s:12.1f}×")


if __name__ == "__main__":
    main()
