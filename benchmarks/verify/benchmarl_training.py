"""One training run of BenchMARL's IPPO, evaluated as it goes; run by the Python of `make bench-peers-setup`.

    .peers/benchmarl/bin/python -m benchmarks.verify.benchmarl_training TASK SEED FILE --frames N --evaluations K

Run it from the repository's root. It writes `[[frames, [return of each episode]], ...]` to FILE, for deterministic
episodes, each of which stops at its first end; an episode's return is the mean over agents of their summed rewards.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from benchmarl.experiment import Experiment
from benchmarl.models.mlp import MlpConfig

from benchmarks.drivers.benchmarl import algorithm_config, experiment_config, set_on_policy, task_of
from benchmarks.drivers.settings import on_policy


def evaluations(folder: Path) -> list[tuple[int, list[float]]]:
    """Frames and returns of every evaluation in BenchMARL's own JSON, in order."""
    (file,) = folder.glob("*/*.json")
    value: Any = json.loads(file.read_text())
    for _ in range(4):  # environment, task, algorithm, seed
        (value,) = value.values()
    return sorted((step["step_count"], step["return"]) for name, step in value.items() if name.startswith("step_"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("seed", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--evaluations", type=int, required=True)
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = MlpConfig.get_from_yaml()
    model.num_cells, model.activation_class = list(on_policy(arguments.task).hidden), torch.nn.Tanh
    with tempfile.TemporaryDirectory() as folder:
        config = experiment_config(folder)
        set_on_policy(config, arguments.task, workers=False)
        config.max_n_frames, config.max_n_iters = arguments.frames, None
        config.evaluation, config.create_json = True, True
        config.evaluation_interval, config.evaluation_episodes = (
            arguments.frames // arguments.evaluations,
            arguments.episodes,
        )
        experiment = Experiment(
            task=task_of(arguments.task),
            algorithm_config=algorithm_config("ippo", arguments.task),
            model_config=model,
            seed=arguments.seed,
            config=config,
        )
        experiment.run()
        curve = evaluations(Path(folder))
    assert curve[-1][0] == arguments.frames and len(curve[-1][1]) == arguments.episodes
    arguments.file.write_text(json.dumps(curve) + "\n")


if __name__ == "__main__":
    main()
