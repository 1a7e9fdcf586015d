"""The cost of a mixture of algorithms: simple_tag with MAPPO against IQL, and with either of them in both groups.

CPU seconds of a whole iteration, one thread; the three training runs take turns in one process. A mixture learns from
the same steps, so it should cost no more than the more expensive of the two (target: at most 1.2 times that).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.table import Row, report
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

COMMON = (
    *("env=mpe/simple_tag", "tuned=false", "n_envs=8", "rollout_steps=125"),
    *("frames=100_000_000", "checkpoint_every=1_000_000"),
)
MAX_RATIO = 1.2


def options(algorithm: str, prefix: str) -> list[str]:
    """One group's algorithm, with the sizes of the other benchmarks."""
    words = {"mappo": ("minibatch_frames=400", "epochs=10"), "iql": ("learning_starts=0", "updates=100")}
    return [f"{prefix}={algorithm}", *(f"{prefix}.{word}" for word in words.get(algorithm, ("learning_starts=0",)))]


def trainers(pair: tuple[str, str], folder: Path, stack: ExitStack) -> dict[str, Trainer]:
    """Both alone, then the mixture."""
    first, second = pair
    sides = {first: (first, first), second: (second, second), f"{first} and {second}": pair}
    made = {}
    for name, (adversary, agent) in sides.items():
        words = [*options(adversary, "algorithms.adversary"), *options(agent, "algorithms.agent")]
        experiment = Experiment.compose(*COMMON, "model.hidden=[256,256]", *words)
        run = Run.create(folder / name.replace(" ", "-"), experiment)
        made[name] = stack.enter_context(Trainer(experiment, run))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", nargs=2, default=("mappo", "iql"), help="adversary's and agent's algorithm")
    parser.add_argument("--repetitions", type=int, default=7, help="iterations that each is measured on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = trainers(tuple(arguments.pair), Path(folder), stack)
        spent: dict[str, list[float]] = {name: [] for name in running}
        for trainer in running.values():
            next(trainer)
        for _ in range(arguments.repetitions):
            for name, trainer in running.items():
                start = time.process_time()
                next(trainer)
                spent[name].append(time.process_time() - start)
    *alone, mixture = [Row(name, tuple(values), "CPU s an iteration") for name, values in spent.items()]
    slower = max(alone, key=lambda row: row.median).what
    row = Row(mixture.what, mixture.values, mixture.unit, against=slower, target=MAX_RATIO, at_most=True)
    report(f"mixtures-{'-'.join(arguments.pair)}", "A mixture on simple_tag, 1000 frames an iteration", [*alone, row])


if __name__ == "__main__":
    main()
