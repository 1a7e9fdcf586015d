"""Makes tests/analysis/benchmarking/data/benchmarl: BenchMARL's JSON of two tiny IPPO runs on simple_spread.

    .peers/benchmarl/bin/python -m benchmarks.drivers.benchmarl_json FOLDER

Run it from the repository's root, after `make bench-peers-setup`. Each run leaves one JSON file in a folder of its own.
"""

from __future__ import annotations

import argparse

from benchmarl.algorithms import IppoConfig
from benchmarl.environments import PettingZooTask
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig


def config(folder: str) -> ExperimentConfig:
    """600 frames, and an evaluation of three episodes every 200."""
    made = ExperimentConfig.get_from_yaml()
    made.on_policy_collected_frames_per_batch, made.on_policy_n_envs_per_worker = 200, 4
    made.on_policy_n_minibatch_iters, made.on_policy_minibatch_size = 2, 100
    made.max_n_frames, made.max_n_iters = 600, None
    made.evaluation, made.evaluation_interval, made.evaluation_episodes, made.render = True, 200, 3, False
    made.create_json, made.loggers, made.save_folder = True, [], folder
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where BenchMARL puts its folders, one a run")
    folder = parser.parse_args().folder
    for seed in (0, 1):
        Experiment(
            task=PettingZooTask.SIMPLE_SPREAD.get_from_yaml(),
            algorithm_config=IppoConfig.get_from_yaml(),
            model_config=MlpConfig.get_from_yaml(),
            seed=seed,
            config=config(folder),
        ).run()


if __name__ == "__main__":
    main()
