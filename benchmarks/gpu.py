"""Batched environments on the GPU that there is, or else on the CPU with smaller sizes, in some minutes.

Tag and native MPE: the environment alone, a rollout, and training end to end; on a GPU each also by CUDA graphs, and in
bfloat16; Tag with 1,000 agents; and the memory that envs take. The variants of a training run and its peer alternate in
each repetition, every time is taken after synchronisation, and the median counts. The bound of a training run adds the
measured times of the environment alone and of the matrix products alone (`benchmarks.products`), of which each agent
and time step has, with F = 2 in out operations for a layer:

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
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from marlnb.envs.by_hand import vector_env
from marlnb.envs.steps import random_actions
from marlnb.envs.tensor.memory import bytes_per_env
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.training.loop import Loop
from marlnb.training.malloc import keep_freed_memory

WARPDRIVE_PYTHON_STEP = 51.0  # env-steps/s of its Python step, Tag 100 + 5, one core; research figure, not run here
TAG_TARGET, BOUND_TARGET = 100.0, 0.6
WARPDRIVE_TARGET, ROLLOUT_TARGET = 10.0, 3e6  # end to end, and env-steps/s; on a GPU with 2,000 envs
N_AGENTS, N_FEATURES, N_LOGITS = 105, 71, 42
ROLLOUT_STEPS, MINIBATCH_FRAMES, N_RUNNERS = 25, 400, 100
ALGORITHMS = {"a2c": 1, "ippo": 4}  # epochs
JAXMARL_SIDES: dict[str, Driver] = {"JaxMARL": "jaxmarl", "marlnb": "marlnb"}
READY_S = 120.0  # a peer that is not ready by then is left out
PLAIN = ""
COMPILED = ", compiled"
VARIANTS = {  # of training runs; a CPU has the first two
    PLAIN: [],
    COMPILED: ["compile=first"],  # what `compile=auto` does in training runs of several minutes
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
        variants: of training runs.
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
    parser.add_argument("--parts", nargs="+", choices=["tag", "mpe", "crowd", "memory"], help="default: all")
    parser.add_argument("--starts", choices=["env", "shared"], help="of Tag; default on a GPU: shared, as WarpDrive's")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as every training run does
    device = arguments.device
    on_gpu = is_gpu(device)
    arguments.starts = arguments.starts or ("shared" if on_gpu else "env")
    sizes = ON_GPU if on_gpu else ON_CPU
    sizes = replace(
        sizes, tag=tuple(arguments.envs or sizes.tag), repetitions=arguments.repetitions or sizes.repetitions
    )
    if on_gpu:
        print(torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device))
    for n_envs in sizes.tag if wants("tag", arguments) else ():
        rows = tag_rows(n_envs, arguments, sizes)
        report(f"gpu-tag-{n_envs}-{device}", f"Tag 100 + 5, {n_envs} envs, {device}", rows)
    rows = [
        *(mpe_rows(arguments, sizes) + jaxmarl_rows(on_gpu, sizes) if wants("mpe", arguments) else ()),
        *(crowd_rows(arguments, sizes) if wants("crowd", arguments) else ()),
        *(memory_rows(device, sizes) if wants("memory", arguments) else ()),
    ]
    if rows:
        report(f"gpu-mpe-memory-{device}", f"native MPE, 1,000 agents, and memory, {device}", rows)
    if not on_gpu:
        print(f"\n{estimates()}")


def wants(part: str, arguments: argparse.Namespace) -> bool:
    return arguments.parts is None or part in arguments.parts


def has_peer(folder: Path, *, on_gpu: bool) -> bool:
    """Whether to compare with it; a GPU without it is worth a line."""
    installed = peers.python(folder).exists()
    if on_gpu and not installed:
        print(f"{folder.name} is not installed, so its rows are missing: make bench-peers-setup")
    return on_gpu and installed


def warpdrive(part: str, n_envs: int, width: int, on_gpu: bool) -> Contestant | None:
    """WarpDrive's environment alone, its rollout, or its training; None: it cannot be compared here."""
    if f"{n_envs}x{width}" not in TAG or not has_peer(peers.WARPDRIVE, on_gpu=on_gpu):
        return None
    what = "environment" if part == "environment" else f"{part}, [{width}, {width}]"
    options, n_cores = ("--part", part, "--width", str(width)), len(os.sched_getaffinity(0))
    return Contestant(f"WarpDrive: {what}", "warpdrive", n_cores=n_cores, options=options)


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


class Peers:
    """The peers that start, each a process of its own; the others say why not, and their rows are missing.

    They start side by side, and while the caller prepares its own training runs.
    """

    def __init__(self, others: Sequence[Contestant | None], task: str) -> None:
        self._pool, self._stack, self._sessions = ThreadPoolExecutor(), ExitStack(), list[Session]()
        self._starting = [self._pool.submit(self._start, other, task) for other in others if other is not None]
        self.rates: dict[str, list[float]] = {}

    def measure(self) -> None:
        """One window of each."""
        for session in self._sessions:
            cost = session.iterate()
            rate = cost["frames"] / cost["wall_s"]
            self.rates[session.contestant.what].append(rate)
            progress(session.contestant.what, rate)

    def rows(self) -> list[Row]:
        return [Row(what, tuple(values), "env-steps/s") for what, values in self.rates.items()]

    def __enter__(self) -> Peers:
        for future in self._starting:
            if (session := future.result()) is not None:
                self._sessions.append(self._stack.enter_context(session))
                self.rates[session.contestant.what] = []
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._pool.shutdown()

    @staticmethod
    def _start(other: Contestant, task: str) -> Session | None:
        try:
            return Session(other, task, ready_s=READY_S)
        except SystemExit as error:
            print(f"these rows are missing: {error}")
            return None


def progress(what: str, rate: float) -> None:
    print(f"{time.strftime('%X')} {what}: {rate:,.0f} env-steps/s", file=sys.stderr)


def tag_rows(n_envs: int, arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    """The environment alone, and rollouts and training runs with each network and algorithm."""
    rows = environment_rows(n_envs, arguments, sizes)
    for width in arguments.hidden:
        for algorithm in ALGORITHMS:
            rows += training_rows(algorithm, width, n_envs, arguments, sizes)
            if is_gpu(arguments.device):
                torch.cuda.empty_cache()
    return rows


def environment_rows(n_envs: int, arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    device = arguments.device
    peers_of_env = Peers([warpdrive("environment", n_envs, arguments.hidden[-1], is_gpu(device))], str(n_envs))
    env = vector_env("tag/continuous", n_envs, device=device, starts=arguments.starts)
    step_env(env, 2)
    rates = []
    with peers_of_env as others:
        for _ in range(sizes.repetitions):
            rates.append(step_env(env, arguments.steps))
            progress("environment", rates[-1])
            others.measure()
    step = Row("WarpDrive's Python step (not run here)", (WARPDRIVE_PYTHON_STEP,), "env-steps/s")
    return [step, Row("environment", tuple(rates), "env-steps/s", step.what, TAG_TARGET), *others.rows()]


def training_rows(algorithm: str, width: int, n_envs: int, arguments: argparse.Namespace, sizes: Sizes) -> list[Row]:
    """An algorithm's bound, and its training in each variant; of the first algorithm also the rollout."""
    device, name, is_first = arguments.device, f"{algorithm}, [{width}, {width}]", algorithm == next(iter(ALGORITHMS))
    parts = ["rollout", "training"] if is_first else []
    starting = Peers([warpdrive(part, n_envs, width, is_gpu(device)) for part in parts], str(n_envs))
    env = vector_env("tag/continuous", n_envs, device=device, starts=arguments.starts)
    step_env(env, 2)
    starts = f"env.starts={arguments.starts}"
    trainings = {
        variant: training("tag/continuous", algorithm, width, variant, n_envs, device, arguments.threads, starts)
        for variant in sizes.variants
    }
    rates: dict[str, list[float]] = {variant: [] for variant in trainings}
    rollouts: dict[str, list[float]] = {variant: [] for variant in trainings}
    bounds = []
    with starting as others:
        for _ in range(sizes.repetitions):
            env_rate = step_env(env, arguments.steps)
            seconds = seconds_of_products(product_sizes(width, n_envs, device), ALGORITHMS[algorithm], device)
            bounds.append(1 / (1 / env_rate + N_AGENTS * seconds))
            for variant, item in trainings.items():
                rates[variant].append(item.frames_per_s())
                rollouts[variant].append(item.rollout_frames_per_s())
                progress(f"{name}{variant}, end to end", rates[variant][-1])
            others.measure()
    rows = [Row(f"bound of {name}", tuple(bounds), "env-steps/s")]
    target = ROLLOUT_TARGET if n_envs == 2000 and is_gpu(device) else None
    for variant, measured in rates.items():
        if is_first:
            what = f"rollout, [{width}, {width}]{variant}"
            rows.append(Row(what, tuple(rollouts[variant]), "env-steps/s", target=target))
        bound_target = BOUND_TARGET if width == 64 and variant in (PLAIN, COMPILED) else None
        title = f"{name}{variant}, end to end"
        rows.append(Row(title, tuple(measured), "env-steps/s", f"bound of {name}", bound_target))
        if (other := f"WarpDrive: training, [{width}, {width}]") in others.rates:
            rows.append(Row(f"{title}, against it", tuple(measured), "env-steps/s", other, WARPDRIVE_TARGET))
    return [*rows, *others.rows()]


def is_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def minibatch_frames(n_envs: int, device: str) -> int:
    """On a GPU a quarter of a rollout, since small minibatches leave it idle."""
    whole = n_envs * ROLLOUT_STEPS
    return whole // 4 if is_gpu(device) else min(MINIBATCH_FRAMES, whole)


def product_sizes(width: int, n_envs: int, device: str) -> ProductSizes:
    """Of Tag's runners, who are all but five of the agents."""
    frames = minibatch_frames(n_envs, device)
    return ProductSizes(N_FEATURES, width, (N_LOGITS, 1), n_envs * N_RUNNERS, frames * N_RUNNERS)


def training(
    env: str, algorithm: str, width: int, variant: str, n_envs: int, device: str, threads: int, *words: str
) -> Training:
    experiment = Experiment.compose(
        f"env={env}", f"algorithm={algorithm}", f"model.hidden=[{width},{width}]", f"n_envs={n_envs}", "tuned=false",
        f"rollout_steps={ROLLOUT_STEPS}", f"device={device}", f"threads={threads}", "frames=1_000_000_000",
        f"algorithm.minibatch_frames={minibatch_frames(n_envs, device)}",
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
        if is_gpu(device):
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
