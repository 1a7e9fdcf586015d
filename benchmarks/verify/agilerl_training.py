"""One training run of AgileRL's multi-agent demo, scored at its end; run by the Python of `make bench-peers-setup`.

    .peers/agilerl/bin/python -m benchmarks.verify.agilerl_training SEED FILE --generations N --generation-frames M

Run it from the repository's root. It writes `{"score": S}` to FILE: the mean return of one agent over greedy episodes
of the elite of the last generation, before it is mutated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agilerl.hpo.mutation import Mutations
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

from benchmarks.drivers.agilerl_evolution import build_env, build_mutations, train
from benchmarks.drivers.settings import EVOLUTION


class Last(Mutations):  # type: ignore[misc]
    """Ends the process after the last generation, with the elite's score."""

    env: AsyncPettingZooVecEnv
    arguments: argparse.Namespace
    generation = 0

    def mutation(self, population: Any, **options: Any) -> Any:
        self.generation += not options.get("pre_training_mut")
        if self.generation == self.arguments.generations:
            score = score_of(population[0], self.env, self.arguments.episodes, self.arguments.first_seed)
            self.arguments.file.write_text(json.dumps({"score": score}))
            os._exit(0)
        return super().mutation(population, **options)


def score_of(agent: Any, env: AsyncPettingZooVecEnv, episodes: int, first_seed: int) -> float:
    """The mean return of one agent; whole batches of episodes."""
    agent.set_training_mode(False)
    returns: list[np.ndarray] = []
    while len(returns) * env.num_envs < episodes:
        obs, infos = env.reset(seed=first_seed + len(returns) * env.num_envs)
        total = np.zeros(env.num_envs)
        for _ in range(EVOLUTION.episode_steps):
            actions, _raw = agent.get_action(obs=obs, infos=infos)
            obs, rewards, _terminated, _truncated, infos = env.step(actions)
            total += np.mean([np.ravel(reward) for reward in rewards.values()], axis=0)
        returns.append(total)
    return float(np.concatenate(returns)[:episodes].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--generations", type=int, required=True)
    parser.add_argument("--generation-frames", type=int, required=True)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(arguments.seed)
    np.random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    mutations, env = build_mutations(Last, seed=arguments.seed), build_env()
    mutations.arguments, mutations.env = arguments, env
    train(env, mutations, arguments.generation_frames)


if __name__ == "__main__":
    main()
