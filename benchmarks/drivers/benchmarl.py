"""BenchMARL, one iteration per request; run by the Python of `make bench-peers-setup`, from the repository's root."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, NoReturn

import psutil
import torch
from benchmarl.algorithms import IppoConfig, IqlConfig, MaddpgConfig, MasacConfig, QmixConfig
from benchmarl.environments import PettingZooTask, VmasTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import ALGORITHMS, OFF_POLICY, TASKS, VMAS, environment_options, on_policy


class Paced(Callback):  # type: ignore[misc]
    """Reports each iteration, which ends with the training of the last group of agents."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def on_train_end(self, training_td: Any, group: str) -> None:
        if group == list(self.experiment.train_group_map)[-1]:
            self.pace.iteration_done()


OFF_POLICY_CONFIGS = {"maddpg": MaddpgConfig, "masac": MasacConfig, "qmix": QmixConfig, "iql": IqlConfig}


def experiment_config(folder: str) -> ExperimentConfig:
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames, config.max_n_iters = None, 1000
    config.evaluation, config.render, config.create_json, config.loggers = False, False, False, []
    config.save_folder = folder
    return config


def set_on_policy(config: ExperimentConfig, task: str, workers: bool) -> int:
    """Returns the frames of an iteration."""
    settings = on_policy(task)
    config.lr, config.gamma = settings.lr, settings.gamma
    config.adam_eps, config.clip_grad_val = settings.adam_eps, settings.max_grad_norm
    config.on_policy_collected_frames_per_batch = settings.frames
    config.on_policy_n_envs_per_worker = settings.n_envs
    config.on_policy_n_minibatch_iters = settings.epochs
    config.on_policy_minibatch_size = settings.minibatch_frames
    config.parallel_collection = workers
    return settings.frames


def set_off_policy(config: ExperimentConfig, algorithm: str, updates: int) -> int:
    """Returns the frames of an iteration."""
    settings = OFF_POLICY
    config.lr, config.gamma, config.polyak_tau = settings.lr, settings.gamma, settings.tau
    config.adam_eps, config.clip_grad_val = settings.adam_eps, settings.max_grad_norm
    config.off_policy_collected_frames_per_batch = settings.frames
    config.off_policy_n_envs_per_worker = settings.n_envs
    config.off_policy_n_optimizer_steps = updates
    config.off_policy_train_batch_size = settings.minibatch_frames
    config.off_policy_memory_size = settings.buffer_frames
    config.prefer_continuous_actions = algorithm in ("maddpg", "masac")
    return settings.frames


def algorithm_config(algorithm: str, task: str) -> Any:
    if algorithm != "ippo":
        return OFF_POLICY_CONFIGS[algorithm].get_from_yaml()
    settings, config = on_policy(task), IppoConfig.get_from_yaml()
    config.lmbda, config.clip_epsilon, config.entropy_coef = settings.lmbda, settings.clip, settings.entropy
    return config


def task_of(name: str) -> Any:
    task = (VmasTask if name in VMAS else PettingZooTask)[name.upper()].get_from_yaml()
    task.config.update(environment_options(name))
    return task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ippo")
    parser.add_argument("--updates", type=int, default=OFF_POLICY.updates)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", action="store_true", help="one process for each copy of the environment")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = MlpConfig.get_from_yaml()
    model.num_cells, model.activation_class = list(OFF_POLICY.hidden), torch.nn.Tanh
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = experiment_config(folder)
            if arguments.algorithm == "ippo":
                frames = set_on_policy(config, arguments.task, arguments.workers)
            else:
                frames = set_off_policy(config, arguments.algorithm, arguments.updates)
            Experiment(
                task=task_of(arguments.task),
                algorithm_config=algorithm_config(arguments.algorithm, arguments.task),
                model_config=model,
                seed=0,
                config=config,
                callbacks=[Paced(Pace(frames))],
            ).run()
    except SystemExit:
        end_at_once()


def end_at_once() -> NoReturn:
    """Ends this process and torchrl's workers; without this, the process would wait for them forever."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
