"""One training run of BenchMARL with its own defaults, for some CPU-seconds, then scored without exploration.

    .peers/benchmarl/bin/python -m benchmarks.verify.benchmarl_defaults TASK ALGORITHM SEED FILE --seconds S

`at_equal_time` runs it, from the repository's root. Nothing is set but the number of threads, and what makes the task
marlnb's: 25 steps of simple_spread, 3 agents of VMAS; evaluations and logging are off. The training ends in the middle
of an update if need be. FILE gets the score of random actions, the score and the frames.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from benchmarl.algorithms import IppoConfig, MaddpgConfig, MappoConfig, QmixConfig
from benchmarl.environments import PettingZooTask, VmasTask
from benchmarl.experiment import Callback, Experiment
from benchmarl.models.mlp import MlpConfig
from torchrl.envs import ExplorationType, set_exploration_type

from benchmarks.drivers.benchmarl import end_at_once, experiment_config
from benchmarks.drivers.pace import cpu_seconds
from benchmarks.drivers.settings import VMAS

ALGORITHMS = {"ippo": IppoConfig, "mappo": MappoConfig, "maddpg": MaddpgConfig, "qmix": QmixConfig}


class Limit(Callback):  # type: ignore[misc]
    """Ends the training after some CPU-seconds, counted from `start_s`, and writes the scores."""

    def __init__(self, seconds: float, episodes: int, file: Path) -> None:
        super().__init__()
        self.seconds, self.episodes, self.file, self.start_s = seconds, episodes, file, 0.0

    def on_train_step(self, batch: Any, group: str) -> None:
        if cpu_seconds() - self.start_s < self.seconds:
            return
        row = {"random": self.score(None), "score": self.score(self.experiment.policy)}
        self.file.write_text(json.dumps({**row, "frames": self.experiment.total_frames}) + "\n")
        raise SystemExit

    def score(self, policy: Any) -> float:
        """The mean return of one agent; policy None: of random actions."""
        env, limits = self.experiment.test_env, {"max_steps": self.experiment.max_steps, "auto_cast_to_device": True}
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            if env.batch_size:
                rollouts = env.rollout(policy=policy, break_when_any_done=False, **limits).unbind(0)
            else:
                rollouts = [env.rollout(policy=policy, **limits) for _ in range(self.episodes)]
        groups = self.experiment.group_map
        returns = [rollout["next", group, "reward"].sum(0).mean() for rollout in rollouts for group in groups]
        return float(torch.stack(returns).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("algorithm", choices=sorted(ALGORITHMS))
    parser.add_argument("seed", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = (VmasTask if arguments.task in VMAS else PettingZooTask)[arguments.task.upper()].get_from_yaml()
    if arguments.task == "simple_spread":
        task.config["max_cycles"] = 25
    elif arguments.task in VMAS:
        task.config["n_agents"] = 3
    limit = Limit(arguments.seconds, arguments.episodes, arguments.file.absolute())
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = experiment_config(folder)
            config.evaluation_episodes = arguments.episodes
            experiment = Experiment(
                task=task,
                algorithm_config=ALGORITHMS[arguments.algorithm].get_from_yaml(),
                model_config=MlpConfig.get_from_yaml(),
                seed=arguments.seed,
                config=config,
                callbacks=[limit],
            )
            limit.start_s = cpu_seconds()
            experiment.run()
    except SystemExit:
        end_at_once()


if __name__ == "__main__":
    main()
