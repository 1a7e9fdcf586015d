"""AgileRL: four MADDPG members on speaker_listener, as in its multi-agent tutorial, one generation per request."""

from __future__ import annotations

import argparse
import os
from typing import Any, TypeVar

import torch
from agilerl.algorithms.core.registry import HyperparameterConfig, RLParameter
from agilerl.components.replay_buffer import ReplayBuffer
from agilerl.hpo.mutation import Mutations
from agilerl.hpo.tournament import TournamentSelection
from agilerl.training.train_multi_agent_off_policy import train_multi_agent_off_policy
from agilerl.utils.utils import create_population
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv
from mpe2 import simple_speaker_listener_v4

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import EVOLUTION

M = TypeVar("M", bound=Mutations)


class Paced(Mutations):  # type: ignore[misc]
    """Reports at the end of each generation."""

    pace: Pace

    def mutation(self, population: Any, **options: Any) -> Any:
        if not options.get("pre_training_mut"):
            self.pace.iteration_done()
        return super().mutation(population, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["speaker_listener"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings, mutations = EVOLUTION, build_mutations(Paced, seed=1)
    steps = settings.generation_frames // settings.n_envs * settings.n_envs
    mutations.pace = Pace(steps * settings.population)
    train(build_env(), mutations, settings.generation_frames)
    os._exit(0)


def build_env() -> AsyncPettingZooVecEnv:
    return AsyncPettingZooVecEnv(
        [lambda: simple_speaker_listener_v4.parallel_env(continuous_actions=True) for _ in range(EVOLUTION.n_envs)]
    )


def build_mutations(kind: type[M], *, seed: int) -> M:
    """The mutations of the tutorial."""
    return kind(
        no_mutation=0.2,
        architecture=0.2,
        new_layer_prob=0.2,
        parameters=0.2,
        activation=0,
        rl_hp=0.2,
        mutation_sd=0.1,
        rand_seed=seed,
        device="cpu",
    )


def train(env: AsyncPettingZooVecEnv, mutations: Mutations, generation_frames: int) -> None:
    """Trains a population until `mutations` ends the process.

    Args:
        generation_frames: of each member between two selections.
    """
    settings = EVOLUTION
    pop = create_population(
        algo="MADDPG",
        observation_space=[env.single_observation_space(name) for name in env.agents],
        action_space=[env.single_action_space(name) for name in env.agents],
        net_config=network(),
        INIT_HP=options(list(env.agents)),
        hp_config=HyperparameterConfig(
            lr_actor=RLParameter(min=1e-4, max=1e-2),
            lr_critic=RLParameter(min=1e-4, max=1e-2),
            batch_size=RLParameter(min=8, max=512, dtype=int),
            learn_step=RLParameter(min=20, max=200, dtype=int, grow_factor=1.5, shrink_factor=0.75),
        ),
        population_size=settings.population,
        num_envs=settings.n_envs,
        device="cpu",
    )
    train_multi_agent_off_policy(
        env,
        "speaker_listener",
        "MADDPG",
        pop,
        memory=ReplayBuffer(max_size=100_000),
        max_steps=10**9,
        evo_steps=generation_frames,
        tournament=TournamentSelection(tournament_size=2, elitism=True, population_size=settings.population),
        mutation=mutations,
        verbose=False,
    )


def network() -> dict[str, Any]:
    """As in the tutorial, without the normalisation that marlnb's networks have not by default."""
    first, second = EVOLUTION.hidden
    return {
        "latent_dim": second,
        "encoder_config": {"hidden_size": [first], "layer_norm": False},
        "head_config": {"hidden_size": [second], "layer_norm": False},
    }


def options(agent_ids: list[str]) -> dict[str, Any]:
    settings = EVOLUTION
    return {
        "AGENT_IDS": agent_ids,
        "BATCH_SIZE": settings.batch_size,
        "O_U_NOISE": True,
        "EXPL_NOISE": 0.1,
        "MEAN_NOISE": 0.0,
        "THETA": 0.15,
        "DT": 0.01,
        "LR_ACTOR": settings.lr_actor,
        "LR_CRITIC": settings.lr_critic,
        "GAMMA": settings.gamma,
        "TAU": settings.tau,
        "LEARN_STEP": settings.learn_step,
        "MEMORY_SIZE": 100_000,
    }


if __name__ == "__main__":
    main()
