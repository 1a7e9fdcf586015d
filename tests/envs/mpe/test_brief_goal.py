"""simple_speaker_listener and simple_push whose goal is observed at the start of an episode only (`env.goal_steps`)."""

from __future__ import annotations

import torch

from marlnb.envs.mpe.simple_push import SimplePushConfig
from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.envs.vector import Step, VectorEnv

ACTIONS = {name: torch.zeros(4, 1, dtype=torch.int64) for name in ("speaker", "listener")}


def goals(step: Step) -> torch.Tensor:
    """`[env, color]` as the speaker observes them."""
    return step.groups["speaker"].observation[:, 0].clone()


def played(env: VectorEnv, n_steps: int) -> list[torch.Tensor]:
    return [goals(env.step(ACTIONS)) for _ in range(n_steps)]


def test_the_goal_is_shown_at_the_start_of_each_episode_and_zeros_afterwards() -> None:
    whole = SimpleSpeakerListenerConfig(max_cycles=5).build(4)
    brief = SimpleSpeakerListenerConfig(max_cycles=5, goal_steps=2).build(4)
    expected = [goals(whole.reset(3)), *played(whole, 12)]
    observed = [goals(brief.reset(3)), *played(brief, 12)]
    for t, (all_steps, first_steps) in enumerate(zip(expected, observed)):
        assert torch.equal(first_steps, all_steps if t % 5 < 2 else torch.zeros(4, 3)), t
    assert (expected[0] > 0).all()


def test_a_saved_env_continues_as_the_one_that_was_not_saved() -> None:
    config = SimpleSpeakerListenerConfig(max_cycles=5, goal_steps=3)
    env, other = config.build(4), config.build(4)
    env.reset(0)
    played(env, 1)
    other.load_state_dict(env.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(played(env, 7), played(other, 7)))


def test_rewards_and_labels_are_those_of_the_task_with_the_goal() -> None:
    whole, brief = SimpleSpeakerListenerConfig().build(4), SimpleSpeakerListenerConfig(goal_steps=1).build(4)
    whole.reset(1), brief.reset(1)
    for _ in range(3):
        first, second = whole.step(ACTIONS), brief.step(ACTIONS)
        assert torch.equal(first.groups["listener"].reward, second.groups["listener"].reward)
    assert torch.equal(whole.labels()["goal"], brief.labels()["goal"])


def test_the_agent_of_simple_push_observes_zeros_instead_of_its_goal_after_the_start() -> None:
    whole, brief = SimplePushConfig(max_cycles=4).build(3), SimplePushConfig(max_cycles=4, goal_steps=1).build(3)
    names = whole.spec.group("agent").observation.names
    shown = torch.tensor([name.startswith("goal_") for name in names])
    assert int(shown.sum()) == 5
    actions = {name: torch.ones(3, 1, dtype=torch.int64) for name in ("adversary", "agent")}
    whole.reset(2), brief.reset(2)
    for t in range(1, 10):
        first, second = whole.step(actions).groups["agent"], brief.step(actions).groups["agent"]
        assert torch.equal(first.reward, second.reward)
        expected = first.observation.clone()
        expected[..., shown] *= t % 4 == 0
        assert torch.equal(second.observation, expected), t
