"""Stepping alone, with random actions: marlnb against SuperSuit, torchrl's ParallelEnv and the raw environment.

    python -m benchmarks.stepping [--quick]

8 copies on the cores that this process may use, without learning or acting; actions are drawn beforehand. Each
contender runs in a process of its own, repetitions are interleaved, and the figure is steps of one copy per wall-clock
second. The raw environment is one process with one core. torchrl's ParallelEnv is measured once: its 8 workers import
torch, so that starting them takes most of a minute. The memory of a worker is its proportional set size, in which
shared memory is divided among the processes that share it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, report

N_ENVS, N_WORKERS = 8, 2
TARGET_MB = 80.0
CONTENDERS = ("marlnb", "supersuit", "torchrl", "raw")


@dataclass(frozen=True)
class Work:
    """One environment, and how many steps of the 8 copies are timed."""

    name: str
    kwargs: dict[str, Any]
    n_steps: int


WORK = {
    "multiwalker": Work("multiwalker", {}, 600),
    "simple_spread": Work("simple_spread", {}, 2000),
    "knights_archers_zombies": Work("knights_archers_zombies", {}, 800),
    "pistonball": Work("pistonball", {"render_mode": "rgb_array"}, 100),
}


def parallel_env(work: Work) -> Any:
    import importlib

    from marlnb.envs.pettingzoo import installed

    module, _, attribute = installed()[work.name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**work.kwargs)


def drawn(space: Any, *rows: int, generator: np.random.Generator) -> np.ndarray:
    """Random actions of one space, `[*rows, ...]`."""
    if hasattr(space, "n"):
        return generator.integers(0, space.n, rows)
    shape = (*rows, *space.shape)
    return generator.uniform(space.low, space.high, shape).astype(np.float32)


def marlnb(work: Work) -> Iterator[Callable[[], None]]:
    import torch

    from marlnb.config import ENVIRONMENTS

    env = ENVIRONMENTS.get(f"pettingzoo/{work.name}")(kwargs=work.kwargs, workers=N_WORKERS).build(N_ENVS)  # type: ignore[call-arg]
    generator = torch.Generator().manual_seed(0)
    drawings = []
    for _ in range(64):
        actions = {}
        for group in env.spec.groups:
            rows, spec = (N_ENVS, group.n_agents), group.action
            if spec.kind == "continuous":
                low, high = torch.tensor(spec.low), torch.tensor(spec.high)
                actions[group.name] = low + (high - low) * torch.rand(*rows, len(spec.low), generator=generator)
            else:
                actions[group.name] = torch.randint(spec.n[0], rows, generator=generator)
        drawings.append(actions)
    env.reset(0)
    turn = iter(range(10**9))

    def step() -> None:
        env.step(drawings[next(turn) % 64])

    yield step
    env.close()


def supersuit(work: Work) -> Iterator[Callable[[], None]]:
    import supersuit as ss

    env = parallel_env(work)
    space, n_agents = env.action_space(env.possible_agents[0]), len(env.possible_agents)
    if work.name == "knights_archers_zombies":
        env = ss.black_death_v3(env)
    vec = ss.pettingzoo_env_to_vec_env_v1(env)
    vec = ss.concat_vec_envs_v1(vec, N_ENVS, num_cpus=N_WORKERS, base_class="gymnasium")
    generator = np.random.default_rng(0)
    drawings = [drawn(space, N_ENVS * n_agents, generator=generator) for _ in range(64)]
    vec.reset(seed=0)
    turn = iter(range(10**9))

    def step() -> None:
        vec.step(drawings[next(turn) % 64])

    yield step
    vec.close()


def torchrl(work: Work) -> Iterator[Callable[[], None]]:
    import torch
    from torchrl.envs import ParallelEnv, PettingZooWrapper

    def make() -> Any:
        torch.set_num_threads(1)
        return PettingZooWrapper(parallel_env(work), use_mask=work.name == "knights_archers_zombies", done_on_any=False)

    env = ParallelEnv(N_ENVS, make)
    current = [env.reset()]

    def step() -> None:
        _, current[0] = env.step_and_maybe_reset(env.rand_action(current[0]))

    yield step
    env.close()


def raw(work: Work) -> Iterator[Callable[[], None]]:
    """One copy in one process."""
    env = parallel_env(work)
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    generator = np.random.default_rng(0)
    drawings = [{agent: drawn(space, generator=generator) for agent, space in spaces.items()} for _ in range(64)]
    seeds, turn = iter(range(10**9)), iter(range(10**9))
    env.reset(seed=next(seeds))

    def step() -> None:
        for _ in range(N_ENVS):
            actions = drawings[next(turn) % 64]
            env.step({agent: actions[agent] for agent in env.agents})
            if not env.agents:
                env.reset(seed=next(seeds))

    yield step


def memory_mb(pids: list[int]) -> list[float]:
    """Proportional set size of processes."""
    sizes = []
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                sizes.append(int(line.split()[1]) / 1024)
    return sizes


def descendants(pid: int) -> list[int]:
    below = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return below + [grandchild for child in below for grandchild in descendants(child)]


def measure(contender: str, work: Work, n_steps: int) -> dict[str, Any]:
    """Runs in a process of its own."""
    warnings.simplefilter("ignore")
    session = {"marlnb": marlnb, "supersuit": supersuit, "torchrl": torchrl, "raw": raw}[contender](work)
    step = next(session)
    for _ in range(max(5, n_steps // 10)):
        step()
    begin = time.perf_counter()
    for _ in range(n_steps):
        step()
    seconds = time.perf_counter() - begin
    workers = memory_mb(descendants(os.getpid()))
    next(session, None)
    memory = sum(workers) / len(workers) if workers else None
    return {"steps_per_s": N_ENVS * n_steps / seconds, "worker_mb": memory, "workers": len(workers)}


def apart(contender: str, name: str, n_steps: int) -> dict[str, Any] | None:
    """`measure` in a process of its own; None where the contender cannot run this environment."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.stepping",
        "--contender",
        contender,
        "--env",
        name,
        "--steps",
        str(n_steps),
    ]
    settings = {"OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{contender} cannot step {name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one repetition, a tenth of the steps")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--env", choices=list(WORK), help="only this one")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        print(json.dumps(measure(arguments.contender, WORK[arguments.env], arguments.steps)))
        return
    rows: list[Row] = []
    for name, work in WORK.items():
        if arguments.env in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += compare(
                name, work.n_steps // (10 if arguments.quick else 1), 1 if arguments.quick else arguments.repeats
            )
    report("stepping", f"Stepping alone, {N_ENVS} copies, {N_WORKERS} workers", rows, quick=arguments.quick)


def compare(name: str, n_steps: int, repeats: int) -> list[Row]:
    by_contender: dict[str, list[dict[str, Any]]] = {contender: [] for contender in CONTENDERS}
    for repeat in range(repeats):
        for contender, results in by_contender.items():
            if contender == "torchrl" and repeat:
                continue
            result = apart(contender, name, max(10, n_steps // (8 if contender == "torchrl" else 1)))
            results += [result] if result else []
    rows = []
    for contender, results in by_contender.items():
        if results:
            against = None if contender == "marlnb" else f"{name}: {contender}"
            values = tuple(result["steps_per_s"] for result in results)
            rows.append(Row(f"{name}: {contender}", values, "steps/s"))
            if against:
                mine = tuple(result["steps_per_s"] for result in by_contender["marlnb"])
                rows.append(Row(f"{name}: marlnb over {contender}", mine, "steps/s", against, target=1.0))
            if results[0]["worker_mb"]:
                memory = tuple(result["worker_mb"] for result in results)
                target = TARGET_MB if (contender, name) == ("marlnb", "multiwalker") else None
                rows.append(Row(f"{name}: {contender}, memory of a worker", memory, "MB", target=target, at_most=True))
    return rows


if __name__ == "__main__":
    main()
