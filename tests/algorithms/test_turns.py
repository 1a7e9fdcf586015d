"""Experience by turns, against numbers worked out by hand and torchrl's advantages of each agent's own turns."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives.value.functional import generalized_advantage_estimate

from marlnb.algorithms.configs.ppo import IPPOConfig, MAPPOConfig
from marlnb.algorithms.gae import RolloutValues, advantages, gae, rollout_values
from marlnb.algorithms.ppo import PolicyGradientLearner
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.turns import OpenTurns, ends_of, own_turns, turn_ends, with_turns
from marlnb.config import LearnerContext, ModelConfig
from marlnb.envs.contract import check_vector_env
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec
from marlnb.training.collect.rollout import Collector
from tests.algorithms.echo import Echo
from tests.sampling import sample

GROUP = GroupSpec("g", ("g_0", "g_1"), ObservationSpec((1,)), ActionSpec("discrete", (2,)))


def by_agent(rows: list[list[float]]) -> torch.Tensor:
    """One copy's `[env, time, agent]` from a row for each agent."""
    return torch.tensor(rows).T.unsqueeze(0)


def by_hand(acting: list[list[int]], reward: list[list[float]], ended: list[list[int]], done: list[int]) -> TensorDict:
    """One copy; agent i observes 10 t + i at step t, and 1000 + 10 t + i last; masks follow the same scheme."""
    steps = len(done)
    seen = by_agent([[10.0 * t + i for t in range(steps + 1)] for i in range(2)]).unsqueeze(-1)
    flags = by_agent(ended).bool().unsqueeze(-1)
    mask = torch.cat((seen % 20 < 10, seen % 20 >= 10), -1)
    over = torch.tensor(done).bool().view(1, steps, 1)
    tree = {
        "is_init": torch.zeros(1, steps, 1, dtype=torch.bool),
        "g": {
            "observation": seen[:, :-1],
            "acting": by_agent(acting).bool(),
            "alive": torch.ones(1, steps, 2, dtype=torch.bool),
            "action_mask": mask[:, :-1],
        },
        "next": {
            "done": over,
            "g": {
                "observation": torch.where(flags, 1000 + seen[:, :-1], seen[:, 1:]),
                "action_mask": mask[:, 1:],
                "reward": by_agent(reward).unsqueeze(-1),
                "terminated": flags,
                "truncated": torch.zeros_like(flags),
                "done": flags.clone(),
            },
        },
    }
    return TensorDict(tree, [1, steps])


def listed(tensor: torch.Tensor, agent: int) -> list[float]:
    return tensor[0, :, agent].flatten().tolist()  # type: ignore[no-any-return]


def test_two_players_by_hand() -> None:
    """An episode of 5 moves, won by player 0's last one; then 3 moves of the next. A reward at step t is 2^t."""
    gained = [2.0**t for t in range(8)]
    rollout = by_hand(
        acting=[[1, 0, 1, 0, 1, 1, 0, 1], [0, 1, 0, 1, 0, 0, 1, 0]],
        reward=[gained, [-x for x in gained]],
        ended=[[0, 0, 0, 0, 1, 0, 0, 0]] * 2,
        done=[0, 0, 0, 0, 1, 0, 0, 0],
    )
    before = rollout.clone()
    turns = own_turns(rollout, GROUP)
    after = turns["next", "g"]
    assert listed(turns["g", "acting"], 0) == [1, 0, 1, 0, 1, 1, 0, 0]  # the outcome of the last turn is not known
    assert listed(turns["g", "acting"], 1) == [0, 1, 0, 1, 0, 0, 0, 0]
    assert listed(after["reward"], 0) == [1 + 2, 0, 4 + 8, 0, 16, 32 + 64, 0, 0]
    assert listed(after["reward"], 1) == [0, -2 - 4, 0, -8 - 16, 0, 0, 0, 0]  # what it lost by the other's last move
    for name in ("terminated", "done"):
        assert listed(after[name], 0) == [0, 0, 0, 0, 1, 0, 0, 0]
        assert listed(after[name], 1) == [0, 0, 0, 1, 0, 0, 0, 0]
    assert not after["truncated"].any()
    assert after["observation"][0, [0, 2, 4, 5], 0, 0].tolist() == [20, 40, 1040, 70]
    assert after["observation"][0, [1, 3], 1, 0].tolist() == [31, 1041]
    assert after["action_mask"][0, 0, 0].tolist() == rollout["g", "action_mask"][0, 2, 0].tolist()
    assert turns.batch_size == rollout.batch_size and (rollout == before).all()


def test_different_rates_and_a_death_while_waiting_by_hand() -> None:
    """Agent 0 acts at every step; agent 1 at every third, and dies at step 4; agent 0 is cut short at step 5."""
    rollout = by_hand(
        acting=[[1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 0, 1]],
        reward=[[1, 1, 1, 1, 1, 1, 1], [1, 10, 100, 2, 20, 0, 5]],
        ended=[[0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 0, 0]],
        done=[0, 0, 0, 0, 0, 1, 0],
    )
    flags = rollout["next", "g"]
    flags["terminated"][0, 5, 0], flags["truncated"][0, 5, 0] = False, True
    turns = own_turns(rollout, GROUP)
    after = turns["next", "g"]
    assert listed(turns["g", "acting"], 0) == [1, 1, 1, 1, 1, 1, 0]  # it never waits, so it bootstraps at a truncation
    assert listed(turns["g", "acting"], 1) == [1, 0, 0, 1, 0, 0, 0]
    assert listed(after["reward"], 0) == [1, 1, 1, 1, 1, 1, 0]
    assert listed(after["reward"], 1) == [111, 0, 0, 22, 0, 0, 0]
    assert listed(after["terminated"], 1) == [0, 0, 0, 1, 0, 0, 0]
    assert listed(after["truncated"], 0) == [0, 0, 0, 0, 0, 1, 0] and not after["terminated"][..., 0, :].any()
    assert after["observation"][0, [0, 3], 1, 0].tolist() == [31, 1041]


def test_turns_before_a_truncation_by_hand() -> None:
    """Two players alternate: four moves and a truncation, four moves and the end. The move at step t earns 2^t.

    V(t) = t + 1, except after an episode: the value of a waiting player is never trained and can be any number.
    gamma 0.5, lambda 0.5.
    """
    mover = [[1, 0] * 4, [0, 1] * 4]
    earned = [[2.0**t * moves for t, moves in enumerate(row)] for row in mover]
    rollout = by_hand(mover, earned, ended=[[0, 0, 0, 1, 0, 0, 0, 1]] * 2, done=[0, 0, 0, 1, 0, 0, 0, 1])
    flags = rollout["next", "g"]
    flags["terminated"][0, 3], flags["truncated"][0, 3] = False, True
    ends = ends_of(rollout, GROUP)
    turns = with_turns(rollout, GROUP, ends)
    assert listed(turns["g", "acting"], 0) == [1, 0, 0, 0, 1, 0, 1, 0]  # the turn at step 2 has no known value
    assert listed(turns["g", "acting"], 1) == [0, 1, 0, 0, 0, 1, 0, 1]
    value = by_agent([[t + 1.0 for t in range(8)]] * 2)
    after = by_agent([[2, 3, 4, 1000, 6, 7, 8, 1000.0]] * 2)
    values = RolloutValues(value, ends.gather(after), None, None)
    got = advantages(turns, "g", values, gamma=0.5, gae_lambda=0.5, turn_based=True)
    last = (64 - 7, 128 - 8)
    expected = (
        [1 + 0.5 * 3 - 1, 16 + 0.5 * 7 - 5 + 0.25 * last[0], last[0]],
        [2 + 0.5 * 4 - 2, 32 + 0.5 * 8 - 6 + 0.25 * last[1], last[1]],
    )
    for agent in range(2):
        assert got[0, turns["g", "acting"][0, :, agent], agent].tolist() == pytest.approx(expected[agent])


def test_a_pause_is_no_waiting_by_hand() -> None:
    """Both agents act, wait for their slow player, act and are cut short; the second env has no player.

    A move at step t earns 2^t, V(t) = t + 1, and the final observation is worth 10. gamma 0.5, lambda 0.5.
    """
    plays = by_hand([[1, 0, 1]] * 2, [[1, 0, 4]] * 2, [[0, 0, 1]] * 2, [0, 0, 1])
    flags = plays["next", "g"]
    flags["terminated"], flags["truncated"] = flags["truncated"], flags["terminated"]
    rollout = torch.cat((plays, by_hand([[0] * 3] * 2, [[0] * 3] * 2, [[0] * 3] * 2, [0] * 3)))
    assert own_turns(rollout, GROUP)["g", "acting"].nonzero().tolist() == [[0, 0, 0], [0, 0, 1]]  # in a game they wait
    rollout["paused"] = ~rollout["g", "acting"].any(-1, keepdim=True)
    ends = ends_of(rollout, GROUP)
    turns = with_turns(rollout, GROUP, ends)
    assert torch.equal(turns["g", "acting"], rollout["g", "acting"])
    assert turns["next", "g", "truncated"][0, 2].all() and not turns["next", "g", "done"][0, 0].any()
    value = torch.tensor([1.0, 2, 3]).view(1, 3, 1).expand(2, 3, 2)
    after = torch.tensor([2.0, 3, 10]).view(1, 3, 1).expand(2, 3, 2)
    got = advantages(
        turns, "g", RolloutValues(value, ends.gather(after), None, None), gamma=0.5, gae_lambda=0.5, turn_based=True
    )
    last = 4 + 0.5 * 10 - 3
    assert got[0, [0, 2]].tolist() == [[1 + 0.5 * 3 - 1 + 0.25 * last] * 2, [last] * 2]

    rollout["g", "acting"][1, 0, 0], rollout["paused"][1, 0] = True, False  # there agent 1 waits for agent 0
    assert own_turns(rollout, GROUP)["g", "acting"][0].tolist() == [[True, True], [False, False], [True, False]]


def played(n_envs: int, n_steps: int) -> tuple[GroupSpec, Rollout]:
    """Random moves in the game of echoes."""
    env = Echo(n_envs)
    (group,) = env.spec.groups
    collector = Collector(env, {group.name: RandomPolicy(group)}, n_steps, generator=torch.Generator().manual_seed(0))
    collector.reset(0)
    return group, collector.collect()


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_turns_that_short_rollouts_cut_are_those_of_a_long_one(length: int) -> None:
    group, rollout = played(3, 21)
    expected, turns, parts = own_turns(rollout, group), OpenTurns(group), []
    for start in range(0, 21, length):
        state, turns = turns.state_dict(), OpenTurns(group)
        turns.load_state_dict(state, torch.device("cpu"))  # as a resume does
        parts += turns.close(rollout.steps(start, min(start + length, 21)), max_steps=9)
    whole = functools.reduce(Rollout.followed_by, parts)
    n_steps = whole.batch_size[1]
    assert turns.steps is not None and turns.steps.batch_size[1] == 1 and n_steps == 20
    for name in ("observation", "reward", "terminated", "done", "alive"):
        assert torch.equal(whole["next", "a", name], expected["next", "a", name][:, :n_steps]), name
    for name in ("acting", "acted", "observation", "action"):
        assert torch.equal(whole["a", name], expected["a", name][:, :n_steps]), name


def test_a_turn_that_a_reset_ends_or_that_lasts_too_long_stays_unknown() -> None:
    group, rollout = played(2, 3)
    for max_steps, reset in ((9, True), (0, False)):
        turns, start, after = OpenTurns(group), rollout.steps(0, 1).clone(), rollout.steps(1, 3).clone()
        after["is_init"][:, 0] = reset
        parts = [*turns.close(start, max_steps), *turns.close(after, max_steps)]
        assert not parts[0]["a", "acting"].any() and torch.equal(parts[0]["a", "acted"], start["a", "acting"])
        assert parts[0].batch_size == (2, 1)


def test_where_all_act_at_every_step_only_the_last_is_dropped() -> None:
    rollout = by_hand([[1] * 4] * 2, [[1, 2, 3, 4]] * 2, [[0, 1, 0, 0]] * 2, [0, 1, 0, 0])
    turns = own_turns(rollout, GROUP)
    assert turns["g", "acting"].sum() == 6 and not turns["g", "acting"][:, -1].any()
    for key in ("observation", "reward", "terminated", "done"):
        torch.testing.assert_close(turns["next", "g", key][:, :-1], rollout["next", "g", key][:, :-1])


def test_advantages_are_torchrls_of_each_agents_own_turns() -> None:
    torch.manual_seed(0)
    shape = (6, 50, 3)
    acting, ended = torch.rand(shape) < 0.4, torch.rand(6, 50, 1).expand(shape) < 0.1
    terminated = ended & (torch.rand(shape) < 0.5)
    reward, value, next_value = torch.randn(3, *shape)
    ends = turn_ends(acting, ended)
    columns = [value, ends.gather(next_value), reward, ends.gather(ended), ends.gather(terminated)]
    got = gae(reward, value, columns[1], columns[4], columns[3], gamma=0.9, gae_lambda=0.8, turns=ends.is_turn)
    assert (acting & ~ends.is_turn).any()
    for env in range(6):
        for agent in range(3):
            own = ends.is_turn[env, :, agent]
            compact = [column[env, own, agent].view(1, -1, 1) for column in columns]
            oracle, _ = generalized_advantage_estimate(0.9, 0.8, *compact)
            torch.testing.assert_close(got[env, own, agent], oracle.flatten(), atol=1e-5, rtol=1e-5)


def test_the_game_of_echoes_keeps_the_contract() -> None:
    for apart in (False, True):
        check_vector_env(lambda n_envs, apart=apart: Echo(n_envs, apart))  # type: ignore[misc]


def echoes() -> list[tuple[IPPOConfig, ModelConfig, bool]]:
    """A sample has each two of a network, an algorithm and a placing together."""
    numbers: dict[str, Any] = {"lr": 0.01, "gamma": 0.8, "sequence_length": 8}
    configs = (IPPOConfig(**numbers), MAPPOConfig(**numbers))
    models = (GRUConfig(hidden=(16,), recurrent_size=8), MLPConfig(hidden=(16,)))
    cases = sorted(
        itertools.product(*[(0, 1)] * 3), key=lambda case: sum(case) % 2
    )  # four that have all pairs come first
    chosen = sample(cases, lambda case: itertools.combinations(enumerate(case), 2))
    return [(configs[i], models[j], bool(k)) for i, j, k in chosen]


@pytest.mark.parametrize(
    ("config", "model", "apart"), echoes(), ids=lambda x: str(x) if isinstance(x, bool) else x.name
)
def test_echoes_are_learned_and_valued_turn_by_turn(config: IPPOConfig, model: ModelConfig, apart: bool) -> None:
    """Perfect play is worth 1 + 0.8 at a first turn and 1 at a second, though it is paid for at another's move."""
    env = Echo(32, apart)
    learners: dict[str, PolicyGradientLearner] = {}
    for group in env.spec.groups:
        torch.manual_seed(0)
        learners[group.name] = config.build(LearnerContext(group, env.spec, model, model, 32, 16))
    policies = {name: learner.policy for name, learner in learners.items()}
    collector = Collector(env, policies, 16, generator=torch.Generator().manual_seed(0))
    collector.reset(0)
    for _ in range(16):
        rollout = collector.collect()
        for learner in learners.values():
            metrics = learner.update(rollout)
            assert all(torch.tensor(value).isfinite() for value in metrics.values())
    paid = sum(float(rollout["next", name, "reward"].sum()) for name in policies)
    assert paid / (32 * 16) > 0.9  # a move is worth 1
    for name, learner in learners.items():
        acting, second = rollout[name, "acting"], rollout[name, "observation"][..., 1] > 0
        value = rollout_values(learner.policy, rollout, None, learner._critic_acted(acting)).value
        for turns, worth in ((acting & ~second, 1.8), (acting & second, 1.0)):
            assert value[turns].mean().item() == pytest.approx(worth, abs=0.12)


@pytest.mark.parametrize(
    "model", [MLPConfig(hidden=(16,)), GRUConfig(hidden=(16,), recurrent_size=8)], ids=lambda m: m.name
)
def test_what_a_waiting_player_sees_changes_nothing(model: ModelConfig) -> None:
    """An independent learner neither learns from it nor remembers it, and it moves no normalisation."""
    env = Echo(8, apart=True)
    group, after = env.spec.group("b"), []
    config = IPPOConfig(sequence_length=8, epochs=2, minibatch_frames=32)
    for noise in (0.0, 50.0):
        learners = {}
        for each in env.spec.groups:
            torch.manual_seed(0)
            learners[each.name] = config.build(LearnerContext(each, env.spec, model, model, 8, 16))
        policies = {name: learner.policy for name, learner in learners.items()}
        collector = Collector(env, policies, 16, generator=torch.Generator().manual_seed(0))
        collector.reset(0)
        rollout = collector.collect()
        waiting = ~rollout["b", "acting"]
        assert waiting.any()
        rollout["b", "observation"][waiting] += noise
        rollout["b", "log_prob"][waiting] -= noise / 100
        learner = learners[group.name]
        after.append((learner.update(rollout), learner.state_dict()["policy"]))
    assert after[0][0] == after[1][0]
    assert all(torch.equal(after[0][1][name], after[1][1][name]) for name in after[0][1])


def test_rollouts_in_which_no_turn_can_end_are_an_error() -> None:
    """On-policy: what a player earns after it moved is known when it moves again, at the third step."""
    env, model = Echo(4), MLPConfig(hidden=(8,))
    with pytest.raises(ConfigError, match=r"rollout_steps=2 is too short for turns.*valid: 3 or more"):
        IPPOConfig().build(LearnerContext(env.spec.groups[0], env.spec, model, model, 4, 2))
    IPPOConfig().build(LearnerContext(env.spec.groups[0], env.spec, model, model, 4, 3))
