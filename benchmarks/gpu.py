"""Batched environments: Tag alone, under policies, and trained end to end, on the GPU that there is or else on the CPU.

On a GPU also native MPE and the memory that envs take. All parts alternate in each repetition, every time is taken
after synchronisation, and the median counts. The bound of a training adds the measured time of the environment and of
the matrix products alone, at the measured rate of products of the same shapes:

    bound = 1 / (t_env + n_agents F / rate),  F = F_actor + F_critic + 3 epochs (F_actor + F_critic)

F are floating-point operations of one agent's forward pass: once to act, once for its value, and three times (forward,
and backward to inputs and to weights) in each epoch. Rows that need a GPU are estimated where there is none.
Run it on an idle machine: `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.table import Row, report
from marlnb.envs.steps import random_actions
from marlnb.envs.vector import VectorEnv
from marlnb.envs.vector_env import vector_env
from marlnb.experiment import Experiment
from marlnb.training.loop import Loop

WARPDRIVE_PYTHON_STEP = 51.0  # env-steps/s of its Python step, Tag 100 + 5, one core; research figure, not run here
TAG_TARGET, BOUND_TARGET = 100.0, 0.6
N_AGENTS, N_FEATURES, N_LOGITS = 105, 71, 42
ROLLOUT_STEPS = 25
ALGORITHMS = {"a2c": 1, "ippo": 4}  # epochs
GPU_ENVS, CPU_ENVS = (60, 2000), (64,)


@dataclass
class Training:
    """Iterations of one experiment, and the seconds of each."""

    loop: Loop
    frames: int

    def frames_per_s(self, iterations: int) -> float:
        start = now()
        for _ in range(iterations):
            self.loop.advance()
        return iterations * self.frames / (now() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--envs", nargs="+", type=int, help="numbers of envs of Tag")
    parser.add_argument("--hidden", nargs="+", type=int, default=[64, 256], help="widths of the two hidden layers")
    parser.add_argument("--repetitions", type=int, default=5, help="windows that each is measured on")
    parser.add_argument("--steps", type=int, default=50, help="steps of a window of the environment alone")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads on a CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    on_gpu = torch.device(arguments.device).type == "cuda"
    if on_gpu:
        print(torch.cuda.get_device_name(arguments.device), torch.cuda.get_device_properties(arguments.device))
    for n_envs in arguments.envs or (GPU_ENVS if on_gpu else CPU_ENVS):
        rows = tag_rows(n_envs, arguments)
        report(f"gpu-tag-{n_envs}-{arguments.device}", f"Tag 100 + 5, {n_envs} envs, {arguments.device}", rows)
    if on_gpu:
        rows = [*mpe_rows(arguments.device, arguments.repetitions), *memory_rows(arguments.device)]
        report("gpu-mpe-memory", "native MPE and memory", rows)
    else:
        print(ESTIMATES)


def tag_rows(n_envs: int, arguments: argparse.Namespace) -> list[Row]:
    """Environment alone, matrix products alone, and trainings with each algorithm and network."""
    device, steps = arguments.device, arguments.steps
    env = vector_env("tag/continuous", n_envs, device=device)
    trainings = {
        (algorithm, width): training(algorithm, [width, width], n_envs, device, arguments.threads)
        for algorithm in ALGORITHMS
        for width in arguments.hidden
    }
    env_rate: list[float] = []
    flop_rates: dict[int, list[float]] = {width: [] for width in arguments.hidden}
    frame_rates: dict[tuple[str, int], list[float]] = {key: [] for key in trainings}
    step_env(env, 2)
    for _ in range(arguments.repetitions):
        env_rate.append(step_env(env, steps))
        for width in flop_rates:
            flop_rates[width].append(product_rate(width, n_envs * 100, device))
        for key, item in trainings.items():
            frame_rates[key].append(item.frames_per_s(iterations=1))
    rows = [
        Row("WarpDrive's Python step (not run here)", (WARPDRIVE_PYTHON_STEP,), "env-steps/s"),
        Row("environment", tuple(env_rate), "env-steps/s", "WarpDrive's Python step (not run here)", TAG_TARGET),
    ]
    for (algorithm, width), measured in frame_rates.items():
        name = f"{algorithm}, [{width}, {width}]"
        bounds = tuple(
            1 / (1 / env + N_AGENTS * flops(width, ALGORITHMS[algorithm]) / rate)
            for env, rate in zip(env_rate, flop_rates[width])
        )
        target = BOUND_TARGET if width == 64 else None
        rows += [Row(f"bound of {name}", bounds, "env-steps/s")]
        rows += [Row(f"{name}, end to end", tuple(measured), "env-steps/s", f"bound of {name}", target)]
    return rows


def training(algorithm: str, hidden: list[int], n_envs: int, device: str, threads: int) -> Training:
    experiment = Experiment.compose(
        "env=tag/continuous", f"algorithm={algorithm}", f"model.hidden={hidden}", f"n_envs={n_envs}", "tuned=false",
        f"rollout_steps={ROLLOUT_STEPS}", f"device={device}", f"threads={threads}", "frames=1_000_000_000",
    )  # fmt: skip
    env = experiment.env.build(n_envs, device)
    loop = Loop(experiment, env, torch.device(device))
    loop.begin(0)
    loop.advance()  # warm-up: buffers, compilation of kernels
    return Training(loop, experiment.iteration_frames)


def flops(width: int, epochs: int) -> float:
    """Floating-point operations for one agent and time step of a training: rollout, value, and learning."""
    hidden = N_FEATURES * width + width * width
    actor, critic = 2 * (hidden + width * N_LOGITS), 2 * (hidden + width)
    return (actor + critic) * (1 + 3 * epochs)


def product_rate(width: int, rows: int, device: str) -> float:
    """Floating-point operations per second of the products of an actor's layers, for `rows` agents at once."""
    shapes = (N_FEATURES, width), (width, width), (width, N_LOGITS)
    pairs = [(torch.rand(rows, a, device=device), torch.rand(a, b, device=device)) for a, b in shapes]

    def multiply() -> None:
        for left, right in pairs:
            left @ right

    seconds = seconds_of(multiply, calls=20)
    return sum(2 * rows * a * b for a, b in shapes) / seconds


def step_env(env: VectorEnv, steps: int) -> float:
    """Env-steps per second with random actions, which are drawn beforehand."""
    step = env.reset(0)
    drawn = [random_actions(env, step, torch.Generator().manual_seed(seed)) for seed in range(4)]
    start = now()
    for number in range(steps):
        env.step(drawn[number % 4])
    return steps * env.n_envs / (now() - start)


def mpe_rows(device: str, repetitions: int, n_envs: int = 8192) -> list[Row]:
    env = vector_env("mpe/simple_spread", n_envs, device=device)
    step_env(env, 10)
    rates = tuple(step_env(env, 200) for _ in range(repetitions))
    return [Row(f"mpe/simple_spread, {n_envs} envs", rates, "env-steps/s")]


def memory_rows(device: str) -> list[Row]:
    """GPU memory of Tag's envs, without networks and rollout."""
    rows = []
    for n_envs in (100, 1000, 2000, 4000):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step_env(vector_env("tag/continuous", n_envs, device=device), 2)
        peak = torch.cuda.max_memory_allocated(device) - before
        rows.append(Row(f"memory of {n_envs} envs", (peak / 2**20,), "MiB"))
    return rows


def seconds_of(call: Callable[[], None], calls: int) -> float:
    call()
    start = now()
    for _ in range(calls):
        call()
    return (now() - start) / calls


def now() -> float:
    """Seconds, after everything that a GPU was asked to do is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


ESTIMATES = """
### Not measured: there is no GPU here. Estimates for an H200 (4.8 TB/s, 494 TFLOP/s TF32, about 8 T int64 op/s)

| row | estimate | arithmetic |
| --- | --- | --- |
| Tag 100 + 5, 2,000 envs, neighbours | 0.2 ms | 2,000 x 105 x 128 pairs x 10 minima x 6 int64 operations = 1.6e9 |
| the same, rest of an observation | 0.1 ms | 20 kernels on 2.1 million floats, 5 us each |
| the same, rest of a step | 0.3 ms | 90 kernels on 210,000 numbers, 3 us each in a CUDA graph |
| starts=env: Philox for all envs | 0.3 ms | 110 int64 kernels, 3 us each; starts=shared computes them once |
| environment, starts=env | 1.7 M env-steps/s | 2,000 / (2 x 0.3 + 0.3 + 0.3 ms): observed twice, for restarts |
| environment, starts=shared | 2.2 M env-steps/s | 2,000 / (2 x 0.3 + 0.3 ms) |
| rollout, [256, 256] | 1.4 to 1.8 M env-steps/s | 0.2 ms more: 39.8 GFLOP; the goal of 3 M needs fused kernels |
| A2C end to end, [256, 256] | 0.9 to 1.1 M env-steps/s | 0.7 ms more: one epoch, three forward passes |
| 2,000 envs x 1,000 agents | 0.06 M env-steps/s | 2 x 2,000 x 1,000 x 1,024 pairs x 60 operations: 31 ms a step |
| its memory | 2.3 GB | 4 tensors of 2,000 x 1,000 x 71 float32, 568 MB each |
| WarpDrive 2.7.1 on the same card | unknown | it must be installed there; back-end Numba, shared starts, K = 10, A2C |
| JaxMARL's MPE, 8,192 envs | unknown | it must be installed there |
"""


if __name__ == "__main__":
    main()
