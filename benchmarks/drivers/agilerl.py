"""AgileRL's MADDPG, one iteration per request, in its own loop; run by the Python of `make bench-peers-setup`."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from agilerl.algorithms import MADDPG
from agilerl.components.replay_buffer import ReplayBuffer
from agilerl.training.train_multi_agent_off_policy import train_multi_agent_off_policy
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv
from mpe2 import simple_spread_v3

from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import OFF_POLICY, environment_options


class Paced(MADDPG):  # type: ignore[misc]
    """Reports after each `updates` gradient steps."""

    pace: Pace
    updates: int
    learned = 0

    def learn(self, experiences: Any) -> Any:
        losses = super().learn(experiences)
        self.learned += 1
        if self.learned % self.updates == 0:
            self.pace.iteration_done()
        return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["simple_spread"])
    parser.add_argument("--algorithm", choices=["maddpg"], default="maddpg")
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    options = environment_options(arguments.task)
    env = AsyncPettingZooVecEnv(
        [lambda: simple_spread_v3.parallel_env(continuous_actions=True, **options) for _ in range(OFF_POLICY.n_envs)]
    )
    agent = Paced(
        observation_spaces=[env.single_observation_space(name) for name in env.agents],
        action_spaces=[env.single_action_space(name) for name in env.agents],
        agent_ids=list(env.agents),
        vect_noise_dim=OFF_POLICY.n_envs,
        batch_size=OFF_POLICY.minibatch_frames,
        learn_step=OFF_POLICY.n_envs,  # one gradient step after each step of all environments
        lr_actor=OFF_POLICY.lr,
        lr_critic=OFF_POLICY.lr,
        gamma=OFF_POLICY.gamma,
        tau=OFF_POLICY.tau,
        net_config=network(),
    )
    agent.updates = arguments.updates
    agent.pace = Pace(arguments.updates * OFF_POLICY.n_envs)
    train_multi_agent_off_policy(
        env,
        arguments.task,
        "MADDPG",
        [agent],
        memory=ReplayBuffer(max_size=100_000),
        max_steps=10**9,
        evo_steps=10**8,
        verbose=False,
    )
    os._exit(0)


def network() -> dict[str, Any]:
    """Two hidden layers as the others have: an encoder of one, whose output is a latent, and a head of none."""
    hidden = list(OFF_POLICY.hidden)
    return {
        "latent_dim": hidden[-1],
        "max_latent_dim": hidden[-1],
        "encoder_config": {"hidden_size": hidden[:1], "activation": "Tanh", "layer_norm": False},
        "head_config": {"hidden_size": hidden[1:], "activation": "Tanh", "layer_norm": False},
    }


if __name__ == "__main__":
    main()
