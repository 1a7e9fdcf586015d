"""marlnb: four MADDPG members on speaker_listener with AgileRL's mutations, one generation per request."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import EVOLUTION
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

ENVIRONMENTS = {
    "speaker_listener": ("env=pettingzoo/simple_speaker_listener", "env.kwargs.continuous_actions=true"),
    "native": ("env=mpe/simple_speaker_listener", "env.continuous_actions=true"),
}


def experiment(task: str, threads: int, *, together: bool) -> Experiment:
    settings, worker = EVOLUTION, ("env.workers=1",) if task != "native" else ()
    return Experiment.compose(
        *(*ENVIRONMENTS[task], *worker, "algorithm=maddpg", "tuned=false", f"threads={threads}", "seed=0"),
        *("evolution=agilerl", f"evolution.population={settings.population}", f"evolution.together={together}"),
        "evolution.shared_replay=true",
        *(f"evolution.generation_frames={settings.generation_frames}", f"evaluation_episodes={settings.n_envs}"),
        *(f"n_envs={settings.n_envs}", f"rollout_steps={settings.rollout_steps}", "frames=1_000_000_000"),
        *(
            f"model.hidden=[{','.join(map(str, settings.hidden))}]",
            "model.activation=relu",
            "checkpoint_every=1_000_000",
        ),
        *(f"algorithm.batch_size={settings.batch_size}", f"algorithm.updates={settings.updates}"),
        *(f"algorithm.lr={settings.lr_actor}", f"algorithm.lr_critic={settings.lr_critic}"),
        *(f"algorithm.gamma={settings.gamma}", f"algorithm.tau={settings.tau}", "algorithm.learning_starts=0"),
        *("algorithm.noise_kind=ornstein_uhlenbeck", "algorithm.noise=0.1", "algorithm.buffer_frames=100_000"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=tuple(ENVIRONMENTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="members one after the other")
    arguments = parser.parse_args()
    chosen = experiment(arguments.task, arguments.threads, together=not arguments.alone)
    turns = EVOLUTION.generation_frames // chosen.iteration_frames * EVOLUTION.population
    pace = Pace(turns * chosen.iteration_frames)
    with tempfile.TemporaryDirectory() as folder:
        with Trainer(chosen, Run.create(Path(folder) / "run", chosen)) as trainer:
            for number, _ in enumerate(trainer, 1):
                if number % turns == 0:
                    pace.iteration_done()


if __name__ == "__main__":
    main()
