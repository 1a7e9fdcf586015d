"""BenchMARL's IPPO at a given pace; run by the Python of `make bench-peers-setup`, from the repository's root."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, NoReturn

import psutil
import torch
from benchmarl.algorithms import IppoConfig
from benchmarl.environments import PettingZooTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import SETTINGS, environment_options


class Paced(Callback):  # type: ignore[misc]
    """Reports each iteration, which ends with the training of the last group of agents."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def on_train_end(self, training_td: Any, group: str) -> None:
        if group == list(self.experiment.train_group_map)[-1]:
            self.pace.iteration_done()


def experiment_config(workers: bool, folder: str) -> ExperimentConfig:
    config = ExperimentConfig.get_from_yaml()
    config.lr, config.gamma = SETTINGS.lr, SETTINGS.gamma
    config.adam_eps, config.clip_grad_val = SETTINGS.adam_eps, SETTINGS.max_grad_norm
    config.on_policy_collected_frames_per_batch = SETTINGS.frames
    config.on_policy_n_envs_per_worker = SETTINGS.n_envs
    config.on_policy_n_minibatch_iters = SETTINGS.epochs
    config.on_policy_minibatch_size = SETTINGS.minibatch_frames
    config.parallel_collection = workers
    config.max_n_frames, config.max_n_iters = None, 1000
    config.evaluation, config.render, config.create_json, config.loggers = False, False, False, []
    config.save_folder = folder
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", choices=["multiwalker", "simple_spread"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", action="store_true", help="one process for each copy of the environment")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    algorithm = IppoConfig.get_from_yaml()
    algorithm.lmbda, algorithm.clip_epsilon, algorithm.entropy_coef = SETTINGS.lmbda, SETTINGS.clip, SETTINGS.entropy
    model = MlpConfig.get_from_yaml()
    model.num_cells, model.activation_class = list(SETTINGS.hidden), torch.nn.Tanh
    task = PettingZooTask[arguments.environment.upper()].get_from_yaml()
    task.config.update(environment_options(arguments.environment))
    try:
        with tempfile.TemporaryDirectory() as folder:
            Experiment(
                task=task,
                algorithm_config=algorithm,
                model_config=model,
                seed=0,
                config=experiment_config(arguments.workers, folder),
                callbacks=[Paced(Pace(SETTINGS.frames))],
            ).run()
    except SystemExit:
        end_at_once()


def end_at_once() -> NoReturn:
    """Ends this process and torchrl's workers, which would otherwise be waited for without end."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
