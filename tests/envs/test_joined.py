"""Environments of several training runs in one batch have the episodes that they would have by themselves."""

from __future__ import annotations

import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.by_hand import vector_env
from marlnb.envs.joined import load_joined, split_state
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvBuildError

NAMES = (
    "mpe/simple_spread",
    "mpe/simple_speaker_listener",
    "mpe/simple_world_comm",
    "tag/gridworld",
    "matrix/two_step",
)


def act(env: VectorEnv, step: Step, t: int) -> dict[str, torch.Tensor]:
    """Actions that follow from the episodes' seeds."""
    actions = {}
    for group in env.spec.groups:
        index = torch.arange(group.n_agents)
        choice = (step.episode_seed[:, None] + 7 * index + t) % group.action.n[0]
        actions[group.name] = choice
    return actions


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ahead", [0, 3])
def test_parts_of_a_batch_are_the_environments_alone(name: str, ahead: int) -> None:
    seeds, n_envs = (11, 500), 3
    alone = [vector_env(name, n_envs) for _ in seeds]
    steps = [env.reset(seed) for env, seed in zip(alone, seeds)]
    for t in range(ahead):  # the first one is at another time of its episode
        steps[0] = alone[0].step(act(alone[0], steps[0], t))
    batch = vector_env(name, len(seeds) * n_envs)
    step = load_joined(batch, [state for env in alone if (state := env.state_dict())], n_envs)
    for t in range(60):
        together = act(batch, step, t)
        steps = [env.step(act(env, of_one, t)) for env, of_one in zip(alone, steps)]
        step = batch.step(together)
        for k, of_one in enumerate(steps):
            rows = slice(k * n_envs, (k + 1) * n_envs)
            assert torch.equal(step.done[rows], of_one.done)
            assert torch.equal(step.episode_seed[rows], of_one.episode_seed)
            for group, theirs in of_one.groups.items():
                ours = step.groups[group]
                assert torch.equal(ours.observation[rows], theirs.observation)
                assert torch.equal(ours.reward[rows], theirs.reward)
    for part, env in zip(split_state(batch, n_envs), alone):
        state = env.state_dict()
        assert state is not None and part.keys() == state.keys()
        assert all(torch.equal(part[key], value) for key, value in state.items())


def test_environments_in_processes_are_not_joined() -> None:
    assert ENVIRONMENTS.get("pettingzoo/tictactoe")
    with vector_env("pettingzoo/tictactoe", 2, workers=0) as env:
        env.reset(0)
        with pytest.raises(EnvBuildError, match=r"not joined to one batch for pettingzoo/tictactoe; they are for mpe/"):
            split_state(env, 1)
