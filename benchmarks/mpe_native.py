"""Native MPE's speed on one core: environment steps a second at several numbers of copies, against mpe2's own.

    python -m benchmarks.mpe_native [--scenario simple_spread] [--copies 1 32 1024 8192] [--repeats 5]

Actions are random and drawn before the clock starts; every number is in CPU time.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import cast

import torch

import marlnb.envs.mpe  # noqa: F401  registers the scenarios
from benchmarks.table import Row, report
from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.config import MPEConfig

STEPS_AT_LEAST = 250
SECONDS_AT_LEAST = 0.5
TARGETS = {("mpe/simple_spread", 1024): 500_000.0}


def native_rates(config: MPEConfig, n_envs: int, repeats: int) -> tuple[float, ...]:
    """Steps of the environment a CPU second, all copies together, episode ends included."""
    env = config.build(n_envs)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    shapes = {g.name: (n_envs, g.n_agents, *g.action.shape) for g in env.spec.groups}

    def draw() -> dict[str, torch.Tensor]:
        if config.continuous_actions:
            return {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
        return {g.name: torch.randint(g.action.n[0], shapes[g.name], generator=generator) for g in env.spec.groups}

    actions = [draw() for _ in range(25)]
    return tuple(n_envs * rate for rate in _rates(lambda k: env.step(actions[k % 25]), repeats))


def mpe2_rates(config: MPEConfig, repeats: int) -> tuple[float, ...]:
    """Steps a CPU second of mpe2's parallel environment."""
    env = importlib.import_module(config.mpe2_module).parallel_env(**config.mpe2_options())
    env.reset(seed=0)
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    actions = [{agent: env.action_space(agent).sample() for agent in env.possible_agents} for _ in range(25)]

    def step(k: int) -> None:
        env.step(actions[k % 25])
        if not env.agents:
            env.reset()

    return _rates(step, repeats)


def _rates(step: Callable[[int], object], repeats: int) -> tuple[float, ...]:
    """Calls a CPU second, for each repeat after one that does not count."""
    rates = []
    for _ in range(repeats + 1):
        start, k = time.process_time(), 0
        while k < STEPS_AT_LEAST or time.process_time() - start < SECONDS_AT_LEAST:
            step(k)
            k += 1
        rates.append(k / (time.process_time() - start))
    return tuple(rates[1:])


def measure(name: str, copies: list[int], repeats: int, continuous: bool) -> list[Row]:
    """mpe2's rate, then the native one's for each number of copies."""
    config = cast("type[MPEConfig]", ENVIRONMENTS.get(name))(continuous_actions=continuous)
    reference = f"{name} in mpe2"
    rows = [Row(reference, mpe2_rates(config, repeats), "steps/s")]
    for n_envs in copies:
        rates = native_rates(config, n_envs, repeats)
        rows.append(Row(f"{name}, {n_envs} copies", rates, "steps/s", against=reference))
        if not continuous and (name, n_envs) in TARGETS:
            rows.append(Row(f"{name}, {n_envs} copies, target", rates, "steps/s", target=TARGETS[name, n_envs]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="simple_spread", help="a scenario of mpe2, or all")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 32, 1024, 8192])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--continuous", action="store_true", help="continuous actions")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in ENVIRONMENTS.names() if name.startswith("mpe/")]
    chosen = names if arguments.scenario == "all" else [f"mpe/{arguments.scenario}"]
    rows = [row for name in chosen for row in measure(name, arguments.copies, arguments.repeats, arguments.continuous)]
    report("mpe-native", "Stepping native MPE on one core", rows)


if __name__ == "__main__":
    main()
