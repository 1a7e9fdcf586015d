"""Batched environments on the GPU that there is, or else on the CPU with smaller sizes, in some minutes.

Tag and native MPE: the environment alone, a rollout, and training end to end; on a GPU each also by CUDA graphs, and in
bfloat16; Tag with 1,000 agents; and the memory that envs take. All parts alternate in each repetition, every time is
taken after synchronisation, and the median counts. The bound of a training adds the measured times of the environment
alone and of the matrix products alone (`benchmarks.products`), of which each agent and time step has, with
F = 2 in out operations for a layer:

    rollout     F of every layer of the actor, and of the critic
    each epoch  3 F of every layer: output, gradient of weights, gradient of inputs; 2 F of the first, which has no
                gradient of inputs

    [64, 64]: 40,064 operations for the rollout, and 102,016 (not 120,192) for each epoch

On a GPU, WarpDrive 2.7.1 (Numba) and JaxMARL run in turns with them, where `make bench-peers-setup` has installed them.

Rows that need a GPU are estimated where there is none.
Run it on an idle machine: `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks import peers
from benchmarks.contest import Contestant, Driver, Session, measure
from benchmarks.drivers.on_gpu import ON_GPU as NATIVE_ON_GPU
from benchmarks.drivers.on_gpu import TAG
from benchmarks.products import ProductSizes, now, seconds_of_products
from benchmarks.table import Row, report
from marlnb.algorithms.captured import WARM_UP_CALLS
from marlnb.envs.steps import random_actions
from marlnb.envs.tensor.memory import bytes_per_env
from marlnb.envs.vector import VectorEnv
from marlnb.envs.vector_env import vector_env
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.training.loop import Loop
from marlnb.training.memory import keep_freed_memory

WARPDRIVE_PYTHON_STEP = 51.0  # env-steps/s of its Python step, Tag 100 + 5, one core; research figure, not run here
TAG_TARGET, BOUND_TARGET = 100.0, 0.6
WARPDRIVE_TARGET, ROLLOUT_TARGET = 10.0, 3e6  # end to end, and env-steps/s; on a GPU with 2,000 envs
N_AGENTS, N_FEATURES, N_LOGITS = 105, 71, 42
ROLLOUT_STEPS, MINIBATCH_FRAMES, N_RUNNERS = 25, 400, 100
ALGORITHMS = {"a2c": 1, "ippo": 4}  # epochs
JAXMARL_SIDES: dict[str, Driver] = {"JaxMARL": "jaxmarl", "marlnb": "marlnb"}
PLAIN = ""
COMPILED = ", compiled"
VARIANTS = {  # of trainings; a CPU has the first two
    PLAIN: [],
    COMPILED: ["compile=first"],  # what `compile=auto` does in trainings of several minutes
    ", CUDA graphs": ["cuda_graphs=true"],
    ", CUDA graphs, bfloat16": ["cuda_graphs=true", "model.precision=bfloat16"],
}


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        tag: numbers of envs of Tag.
        crowd: envs of Tag with 1,000 agents.
        mpe: envs of simple_spread.
        memory: numbers of envs of Tag whose memory is stated.
        repetitions: windows that each is measured on.
        variants: of trainings.
    """

    tag: tuple[int, ...]
    crowd: int
    mpe: int
    memory: tuple[int, ...]
    repetitions: int
    variants: tuple[str, ...]


GRAPHS = tuple(variant for variant in VARIANTS if variant != COMPILED)
ON_GPU = Sizes((60, 2000), 2000, 8192, (100, 1000, 2000, 4000), 5, GRAPHS)
ON_CPU = Sizes((64,), 2, 512, (100, 1000, 2000, 4000), 3, (PLAIN, COMPILED))


@dataclass
class Training:
    """Iterations of one experiment, and how many frames it makes in a second."""

    loop: Loop
    frames: int

    def frames_per_s(self) -> float:
        start = now()
        self.loop.advance()
        return self.frames / (now() - start)

    def rollout_frames_per_s(self) -> float:
        start = now()
        with fast_training(self.loop._networks):  # as the loop does
            self.loop._collect()
        return self.frames / (now() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--envs", nargs="+", type=int, help="numbers of envs of Tag")
    parser.add_argument("--hidden", nargs="+", type=int, default=[64, 256], help="widths of the two hidden layers")
    parser.add_argument("--repetitions", type=int, help="windows that each is measured on; default: 5, on a CPU 3")
    parser.add_argument("--steps", type=int, default=50, help="steps of a window of the environment alone")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads on a CPU")
    parser.add_argument("--starts", choices=["env", "shared"], help="of Tag; default on a GPU: shared, as WarpDrive's")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as every training does
    device = arguments.device
    on_gpu = torch.device(device).type == "cuda"
    arguments.starts = arguments.starts or ("shared" if on_gpu else "env")
    sizes = ON_GPU if on_gpu else ON_CPU
    sizes = replace(
        sizes, tag=tuple(arguments.envs or sizes.tag), repetitions=arguments.repetitions or sizes.repetitions
    )
    if on_gpu:
        print(torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device))
    for n_envs in sizes.tag:
        rows = tag_rows(n_envs, arguments, sizes)
        report(f"gpu-tag-{n_envs}-{device}", f"Tag 100 + 5, {n_envs} envs, {device}", rows)
    rows = [
        *mpe_rows(arguments, sizes),
        *jaxmarl_rows(on_gpu, sizes),
        *crowd_rows(arguments, sizes),
        *memory_rows(device, sizes),
    ]
    report(f"gpu-mpe-memory-{device}", f"native MPE, 1,000 agents, and memory, {device}", rows)
    if not on_gpu:
        print(f"\n{estimates()}")


def has_peer(folder: Path, *, on_gpu: bool) -> bool:
    """Whether to compare with it; a GPU without it is worth a line."""
    installed = peers.python(folder).exists()
    if on_gpu and not installed:
        print(f"{folder.name} is not installed, so its rows are missing: make bench-peers-setup")
    return on_gpu and installed


def warpdrive(n_envs: int, widths: Sequence[int], on_gpu: bool) -> list[Contestant]:
    """WarpDrive's environment alone, and a rollout and a training with each network."""
    widths = [width for width in widths if f"{n_envs}x{width}" in TAG]
    if not widths or not has_peer(peers.WARPDRIVE, on_gpu=on_gpu):
        return []
    parts = {"environment": ("environment", widths[0])}
    for width in widths:
        parts[f"rollout, [{width}, {width}]"] = ("rollout", width)
        parts[f"a2c, [{width}, {width}], end to end"] = ("training", width)
    n_cores = len(os.sched_getaffinity(0))
    return [
        Contestant(f"WarpDrive: {name}", "warpdrive", n_cores=n_cores, options=("--part", part, "--width", str(width)))
        for name, (part, width) in parts.items()
    ]


def jaxmarl_rows(on_gpu: bool, sizes: Sizes) -> list[Row]:
    """IPPO on simple_spread end to end, JaxMARL's and ours with its settings."""
    if not has_peer(peers.JAXMARL, on_gpu=on_gpu):
        return []
    n_cores, options = len(os.sched_getaffinity(0)), ("--device", "cuda", "--every", "5")
    (task,) = NATIVE_ON_GPU
    sides = [Contestant(f"{who}: IPPO, {task}", driver, 1, n_cores, options) for who, driver in JAXMARL_SIDES.items()]
    try:
        return measure(sides, task, "wall_s", sizes.repetitions, None)
    except SystemExit as error:  # what was measured before must not be lost
        print(f"these rows are missing: {error}")
        return []


def sessions_of(others: Sequence[Contestant], task: str, stack: ExitStack) -> list[Session]:
    """Of the peers that start; the others say why not, and their rows are missing."""
    sessions = []
    for other in others:
        try:
            sessions.append(stack.enter_context(Session(other, task)))
        except SystemExit as error:
            print(f"these rows are missing: {error}")
    return sessions


def tag_rows(n_envs: int, arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    """Environment alone, matrix products alone, rollouts, and trainings with each algorithm, network and variant."""
    device, steps = arguments.device, arguments.steps
    env = vector_env("tag/continuous", n_envs, device=device, starts=arguments.starts)
    keys = [(a, width, variant) for a in ALGORITHMS for width in arguments.hidden for variant in sizes.variants]
    env_rate: list[float] = []
    bounds: dict[tuple[str, int], list[float]] = {key[:2]: [] for key in keys}
    rates: dict[tuple[str, int, str], list[float]] = {key: [] for key in keys}
    rollout_rates: dict[tuple[int, str], list[float]] = {key[1:]: [] for key in keys}
    step_env(env, 2)
    starts = f"env.starts={arguments.starts}"
    trainings = {key: training("tag/continuous", *key, n_envs, device, arguments.threads, starts) for key in keys}
    others = warpdrive(n_envs, arguments.hidden, torch.device(device).type == "cuda")
    with ExitStack() as stack:
        sessions = sessions_of(others, str(n_envs), stack)
        other_rates: dict[str, list[float]] = {session.contestant.what: [] for session in sessions}
        for _ in range(sizes.repetitions):
            env_rate.append(step_env(env, steps))
            for algorithm, width in bounds:
                seconds = seconds_of_products(product_sizes(width, n_envs), ALGORITHMS[algorithm], device)
                bounds[algorithm, width].append(1 / (1 / env_rate[-1] + N_AGENTS * seconds))
            for key, item in trainings.items():
                rates[key].append(item.frames_per_s())
                if key[0] == next(iter(ALGORITHMS)) and key[2] == PLAIN:
                    rollout_rates[key[1:]].append(item.rollout_frames_per_s())
            for session in sessions:
                cost = session.iterate()
                other_rates[session.contestant.what].append(cost["frames"] / cost["wall_s"])
    rollout_target = ROLLOUT_TARGET if n_envs == 2000 and torch.device(device).type == "cuda" else None
    rows = [
        Row("WarpDrive's Python step (not run here)", (WARPDRIVE_PYTHON_STEP,), "env-steps/s"),
        Row("environment", tuple(env_rate), "env-steps/s", "WarpDrive's Python step (not run here)", TAG_TARGET),
    ]
    rows += [
        Row(f"rollout, [{width}, {width}]", tuple(measured), "env-steps/s", target=rollout_target)
        for (width, _), measured in rollout_rates.items()
        if measured
    ]
    for (algorithm, width, variant), measured in rates.items():
        name = f"{algorithm}, [{width}, {width}]"
        if variant == PLAIN:
            rows.append(Row(f"bound of {name}", tuple(bounds[algorithm, width]), "env-steps/s"))
        target = BOUND_TARGET if width == 64 and variant in (PLAIN, COMPILED) else None
        title = f"{name}{variant}, end to end"
        rows.append(Row(title, tuple(measured), "env-steps/s", f"bound of {name}", target))
        if (other := f"WarpDrive: {name}, end to end") in other_rates:
            rows.append(Row(f"{title}, against it", tuple(measured), "env-steps/s", other, WARPDRIVE_TARGET))
    return [*rows, *(Row(what, tuple(values), "env-steps/s") for what, values in other_rates.items())]


def product_sizes(width: int, n_envs: int) -> ProductSizes:
    """Of Tag's runners, who are all but five of the agents."""
    frames = min(MINIBATCH_FRAMES, n_envs * ROLLOUT_STEPS)
    return ProductSizes(N_FEATURES, width, (N_LOGITS, 1), n_envs * N_RUNNERS, frames * N_RUNNERS)


def training(
    env: str, algorithm: str, width: int, variant: str, n_envs: int, device: str, threads: int, *words: str
) -> Training:
    experiment = Experiment.compose(
        f"env={env}", f"algorithm={algorithm}", f"model.hidden=[{width},{width}]", f"n_envs={n_envs}", "tuned=false",
        f"rollout_steps={ROLLOUT_STEPS}", f"device={device}", f"threads={threads}", "frames=1_000_000_000",
        f"algorithm.minibatch_frames={MINIBATCH_FRAMES}",
        *([f"algorithm.epochs={ALGORITHMS[algorithm]}"] if algorithm == "ippo" else []), *VARIANTS[variant], *words,
    )  # fmt: skip
    loop = Loop(experiment, experiment.env.build(n_envs, device), torch.device(device))
    loop.begin(0)
    for _ in range(WARM_UP_CALLS + 1 if experiment.cuda_graphs else 1):  # buffers, compilation of kernels, the capture
        loop.advance()
    return Training(loop, experiment.iteration_frames)


def step_env(env: VectorEnv, steps: int) -> float:
    """Env-steps per second with random actions, which are drawn beforehand."""
    step = env.reset(0)
    drawn = [random_actions(env, step, torch.Generator().manual_seed(seed)) for seed in range(4)]
    start = now()
    for number in range(steps):
        env.step(drawn[number % 4])
    return steps * env.n_envs / (now() - start)


def mpe_rows(arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    """simple_spread: the environment alone, a rollout, and IPPO end to end."""
    name, n_envs, device = "mpe/simple_spread", sizes.mpe, arguments.device
    env = vector_env(name, n_envs, device=device)
    trainings = {v: training(name, "ippo", 64, v, n_envs, device, arguments.threads) for v in sizes.variants}
    step_env(env, 10)
    env_rates, rollout_rates = [], []
    rates: dict[str, list[float]] = {variant: [] for variant in trainings}
    for _ in range(sizes.repetitions):
        env_rates.append(step_env(env, arguments.steps))
        rollout_rates.append(trainings[PLAIN].rollout_frames_per_s())
        for variant, item in trainings.items():
            rates[variant].append(item.frames_per_s())
    title = f"{name}, {n_envs} envs"
    return [
        Row(title, tuple(env_rates), "env-steps/s"),
        Row(f"{title}: rollout, [64, 64]", tuple(rollout_rates), "env-steps/s"),
        *(Row(f"{title}: ippo, [64, 64]{v}, end to end", tuple(r), "env-steps/s") for v, r in rates.items()),
    ]


def crowd_rows(arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    """Tag with 1,000 agents, WarpDrive's headline."""
    env = vector_env("tag/continuous", sizes.crowd, device=arguments.device, num_runners=995)
    step_env(env, 2)
    rates = tuple(step_env(env, 5) for _ in range(sizes.repetitions))
    return [Row(f"Tag 995 + 5, {sizes.crowd} envs", rates, "env-steps/s")]


def memory_rows(device: str, sizes: Sizes) -> list[Row]:
    """Memory of Tag's envs, without networks and rollout: on a GPU the measured peak, on a CPU the smallest need."""
    rows = []
    for n_envs in sizes.memory:
        if torch.device(device).type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            step_env(vector_env("tag/continuous", n_envs, device=device), 2)
            size = torch.cuda.max_memory_allocated(device) - before
            rows.append(Row(f"memory of {n_envs} envs", (size / 2**20,), "MiB"))
        else:
            size = n_envs * bytes_per_env(vector_env("tag/continuous", 1).rules, torch.device(device))  # type: ignore[attr-defined]
            rows.append(Row(f"least memory of {n_envs} envs, computed", (size / 2**20,), "MiB"))
    return rows


def estimates() -> str:
    """The section of the documentation on what needs a GPU: each row with its arithmetic."""
    page = (Path(__file__).parents[1] / "docs/environments-tag.md").read_text()
    return "#" + page[page.index("## Speed on a GPU") :]


if __name__ == "__main__":
    main()
