from __future__ import annotations

import numpy as np
import torch
from tensordict import TensorDict

from marlnb.training.collect.episode_statistics import EpisodeTracker
from tests.training.toys import Count, CountConfig


def _rollout(rewards: np.ndarray, done: np.ndarray) -> TensorDict:
    n_envs, n_steps = done.shape
    b = torch.tensor(rewards)[:, :, None, None]
    tree = {
        "next": {
            "done": torch.tensor(done)[..., None],
            "a": {"reward": torch.cat([b, 3 * b], 2)},
            "b": {"reward": 2 * b},
        }
    }
    return TensorDict(tree, batch_size=(n_envs, n_steps))


def test_returns_and_lengths_are_those_of_a_plain_loop() -> None:
    draws = np.random.default_rng(0)
    keeper = EpisodeTracker(Count(CountConfig(), 3).spec, 3)
    sums, steps = np.zeros(3), np.zeros(3, dtype=int)
    for _ in range(6):
        rewards, done = draws.normal(size=(3, 7)), draws.random((3, 7)) < 0.3
        returns, lengths = [], []
        for copy in range(3):
            for t in range(7):
                sums[copy] += rewards[copy, t]
                steps[copy] += 1
                if done[copy, t]:
                    returns.append(sums[copy])
                    lengths.append(steps[copy])
                    sums[copy], steps[copy] = 0, 0
        ended = keeper.add(_rollout(rewards, done))
        alone = np.array(returns)[:, None]
        np.testing.assert_allclose(ended.returns["a"], alone * [1, 3], atol=1e-12)
        np.testing.assert_allclose(ended.returns["b"], 2 * alone, atol=1e-12)
        assert ended.lengths.tolist() == lengths


def test_recent_returns_are_of_the_newest_hundred_episodes() -> None:
    keeper = EpisodeTracker(Count(CountConfig(), 3).spec, 60)
    assert keeper.recent_returns == {}
    for reward in (5.0, 1.0, 3.0):
        keeper.add(_rollout(np.full((60, 1), reward), np.ones((60, 1), dtype=bool)))
    assert keeper.recent_episodes == 120
    assert keeper.recent_returns == {"a": 4.0, "b": 4.0}  # (1 + 3) / 2: b earns it twice, a's agents once and thrice


def test_a_saved_keeper_continues_as_it_was() -> None:
    draws = np.random.default_rng(1)
    spec = Count(CountConfig(), 3).spec
    keeper, other = EpisodeTracker(spec, 3), EpisodeTracker(spec, 3)
    keeper.add(_rollout(draws.normal(size=(3, 9)), draws.random((3, 9)) < 0.2))
    other.load_state_dict(keeper.state_dict())
    following = _rollout(draws.normal(size=(3, 9)), draws.random((3, 9)) < 0.2)
    assert keeper.add(following).returns["a"].tolist() == other.add(following).returns["a"].tolist()
    assert keeper.recent_returns == other.recent_returns


def test_a_reset_drops_the_episode_in_progress() -> None:
    """Three steps of reward 1 do not count; a_1 earns thrice what a_0 earns."""
    keeper = EpisodeTracker(Count(CountConfig(), 3).spec, 1)
    keeper.add(_rollout(np.ones((1, 3)), np.zeros((1, 3), dtype=bool)))
    keeper.reset()
    ended = keeper.add(_rollout(np.ones((1, 2)), np.array([[False, True]])))
    assert ended.returns["a"].tolist() == [[2.0, 6.0]] and ended.lengths.tolist() == [2]


def test_agents_of_a_group_have_returns_of_their_own() -> None:
    spec = Count(CountConfig(), 3).spec
    ended = EpisodeTracker(spec, 2).add(_rollout(np.array([[1.0, 2.0], [0.0, 5.0]]), np.array([[False, True]] * 2)))
    assert ended.group_means() == {"a": 8.0, "b": 8.0}  # episodes of 3 and 5; agents earn once and thrice
    assert ended.agent_means(spec) == dict(zip(spec.group("a").agents, (4.0, 12.0)))  # b has one agent
    none = EpisodeTracker(spec, 2).add(_rollout(np.zeros((2, 1)), np.zeros((2, 1), dtype=bool)))
    assert none.group_means() == {"a": None, "b": None}


def test_a_checkpoint_of_group_means_is_still_read() -> None:
    spec = Count(CountConfig(), 3).spec
    keeper = EpisodeTracker(spec, 3)
    old = {**keeper.state_dict(), "sums": {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}}
    keeper.load_state_dict(old)
    assert keeper.state_dict()["sums"]["a"] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
