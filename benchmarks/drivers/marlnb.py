"""marlnb's IPPO at a given pace."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import SETTINGS, environment_options
from marlnb.config import Experiment
from marlnb.training.run import Run
from marlnb.training.trainer import Trainer


def overrides(environment: str, threads: int) -> list[str]:
    """The experiment in Hydra's grammar. PettingZoo's multiwalker; simple_spread is marlnb's own."""
    options: dict[str, Any] = environment_options(environment)
    native = environment == "simple_spread"
    name = "mpe/simple_spread" if native else f"pettingzoo/{environment}"
    prefix = "env" if native else "env.kwargs"
    return [
        f"env={name}",
        *(f"{prefix}.{key}={value}" for key, value in options.items()),
        *(["env.continuous_actions=true"] if native else []),
        "algorithm=ippo",
        f"algorithm.lr={SETTINGS.lr}",
        f"algorithm.adam_eps={SETTINGS.adam_eps}",
        f"algorithm.gamma={SETTINGS.gamma}",
        f"algorithm.gae_lambda={SETTINGS.lmbda}",
        f"algorithm.clip={SETTINGS.clip}",
        f"algorithm.epochs={SETTINGS.epochs}",
        f"algorithm.minibatch_frames={SETTINGS.minibatch_frames}",
        f"algorithm.entropy_coef={SETTINGS.entropy}",
        f"algorithm.value_coef={SETTINGS.critic_coefficient}",
        f"algorithm.max_grad_norm={SETTINGS.max_grad_norm}",
        "algorithm.std_of=network",
        "model=mlp",
        f"model.hidden=[{','.join(map(str, SETTINGS.hidden))}]",
        "model.activation=tanh",
        f"n_envs={SETTINGS.n_envs}",
        f"rollout_steps={SETTINGS.rollout_steps}",
        "frames=100_000_000",
        f"threads={threads}",
        "seed=0",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", choices=["multiwalker", "simple_spread"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    experiment = Experiment.compose(*overrides(arguments.environment, arguments.threads))
    pace = Pace(SETTINGS.frames)
    with tempfile.TemporaryDirectory() as folder:
        with Trainer(experiment, Run.create(Path(folder) / "run", experiment)) as trainer:
            for _ in trainer:
                pace.iteration_done()


if __name__ == "__main__":
    main()
