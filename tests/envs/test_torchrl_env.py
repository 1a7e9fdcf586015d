"""torchrl environments as VectorEnvs: the contract, their own numbers, and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.config import ENVIRONMENTS
from marlnb.envs.by_hand import vector_env
from marlnb.envs.contract import check_vector_env
from marlnb.envs.steps import differ, random_actions
from marlnb.envs.torchrl import torchrl_vector_env
from marlnb.envs.torchrl.config import CustomConfig
from marlnb.errors import ConfigError, EnvBuildError, EnvError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensordict import TensorDict
    from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, Unbounded
    from torchrl.envs import EnvBase, GymEnv, PettingZooWrapper, RewardScaling, SerialEnv, TransformedEnv, VmasEnv


class Counters(EnvBase):  # type: ignore[misc]
    """Two counters that see their count and a torch random number, and whether they are above 10; ends after `ends`.

    The reward of agent k is its action's sum times k + 1. The second one leaves at step `leaves`.
    """

    def __init__(
        self, action: Any = None, ends: int = 5, leaves: int = 0, n_envs: int = 0, state: bool = False
    ) -> None:
        batch = (n_envs,) if n_envs else ()
        super().__init__(batch_size=torch.Size(batch))
        self.group_map, self.ends, self.leaves, self.has_state = {"counters": ["one", "two"]}, ends, leaves, state
        action = action or OneHot(3)
        rows = (*batch, 2)
        seen = {"count": Unbounded((*rows, 2)), "info": Unbounded((*rows, 1)), "flag": Categorical(2, shape=rows)}
        parts: dict[str, Any] = {"counters": Composite(seen, shape=rows)}
        if state:
            parts["state"] = Unbounded((*batch, 3))
        self.observation_spec = Composite(parts, shape=batch)
        self.action_spec = Composite(
            counters=Composite(action=action.expand(*rows, *action.shape), shape=rows), shape=batch
        )
        self.reward_spec = Composite(counters=Composite(reward=Unbounded((*rows, 1)), shape=rows), shape=batch)
        done = {n: Categorical(2, shape=(*batch, 1), dtype=torch.bool) for n in ("done", "terminated", "truncated")}
        if leaves:
            flags = {n: Categorical(2, shape=(*rows, 1), dtype=torch.bool) for n in ("done", "terminated")}
            done["counters"] = Composite(flags, shape=rows)
        self.done_spec = Composite(done, shape=batch)
        self.count = torch.zeros(*batch, 1)

    def _seen(self) -> dict[str, Any]:
        rows = (*self.batch_size, 2)
        count = torch.cat([self.count.expand(rows)[..., None], torch.rand(*rows, 1)], -1)
        flag = (self.count > 10).long().expand(rows)
        tree: dict[str, Any] = {"counters": {"count": count, "flag": flag, "info": torch.ones(*rows, 1)}}
        if self.has_state:
            tree["state"] = self.count.expand(*self.batch_size, 3).clone()
        return tree

    def _reset(self, tensordict: Any = None, **options: Any) -> Any:
        flagged = None if tensordict is None else tensordict.get("_reset", None)
        self.count = torch.where(torch.ones_like(self.count) > 0 if flagged is None else flagged, 0.0, self.count)
        return TensorDict(self._seen(), batch_size=self.batch_size)

    def _step(self, tensordict: Any) -> Any:
        self.count = self.count + 1
        tree = self._seen()
        action = tensordict["counters", "action"].float().reshape(*self.batch_size, 2, -1).sum(-1, keepdim=True)
        tree["counters"]["reward"] = action * torch.tensor([[1.0], [2.0]])
        tree |= {"terminated": self.count >= self.ends, "truncated": self.count >= 99}
        tree["done"] = tree["terminated"] | tree["truncated"]
        if self.leaves:
            gone = torch.stack([torch.zeros_like(self.count), (self.count >= self.leaves).float()], -2) > 0
            tree["counters"] |= {"terminated": gone, "done": gone.clone()}
        return TensorDict(tree, batch_size=self.batch_size)

    def _set_seed(self, seed: int | None) -> None:
        pass


class Pictured(Counters):
    """Counters whose global state are bytes: 51 times the count, as in a picture of 1 by 3 pixels."""

    def __init__(self, n_envs: int = 0) -> None:
        super().__init__(ends=5, n_envs=n_envs, state=True)
        self.observation_spec["state"] = Bounded(0, 255, (*self.batch_size, 1, 3), dtype=torch.uint8)

    def _seen(self) -> dict[str, Any]:
        tree = super()._seen()
        return tree | {"state": (51 * tree["state"]).to(torch.uint8).unsqueeze(-2)}


class InTurn(Counters):
    """Counters that act at even or at odd counts."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec["counters", "acting"] = Categorical(2, shape=(2,), dtype=torch.bool)

    def _seen(self) -> dict[str, Any]:
        tree = super()._seen()
        tree["counters"]["acting"] = self.count % 2 == torch.arange(2)
        return tree


def one(**kwargs: Any) -> EnvBase:
    return Counters(**kwargs)


def many(n_envs: int, **kwargs: Any) -> EnvBase:
    return Counters(n_envs=n_envs, **kwargs)


def serial(n_envs: int, **kwargs: Any) -> EnvBase:
    return SerialEnv(n_envs, lambda: one(**kwargs))


def zoo() -> EnvBase:
    from mpe2 import simple_spread_v3

    return PettingZooWrapper(simple_spread_v3.parallel_env(max_cycles=6))


def fighters() -> EnvBase:
    from pettingzoo.butterfly import knights_archers_zombies_v11

    env = knights_archers_zombies_v11.parallel_env(max_cycles=30)
    return PettingZooWrapper(env, use_mask=True, done_on_any=False)


@pytest.mark.parametrize("constructor", [one, zoo, fighters, lambda: GymEnv("CartPole-v1")])
def test_contract(constructor: Callable[[], EnvBase]) -> None:
    check_vector_env(lambda n_envs: torchrl_vector_env(constructor, n_envs))


@pytest.mark.parametrize("kwargs", [{"leaves": 3}, {"state": True}, {"action": Bounded(-1, 1, (2,))}])
def test_contract_of_its_kinds(kwargs: dict[str, Any]) -> None:
    check_vector_env(lambda n_envs: torchrl_vector_env(one, n_envs, kwargs=kwargs))


@pytest.mark.parametrize("constructor", [one, many, serial])
def test_what_counters_see_and_get(constructor: Callable[..., EnvBase]) -> None:
    """By hand: 5 steps, then a reset; a reset after 3 where a time limit is set."""
    env = torchrl_vector_env(constructor, 2, kwargs={"action": Categorical(4)}, max_steps=3)
    (group,) = env.spec.groups
    assert group.agents == ("one", "two") and group.action.n == (4,)
    assert group.observation.names == ("count_0", "count_1", "flag_0")
    step = env.reset(0)
    rows = step.groups["counters"]
    for t in range(1, 8):
        env.step({"counters": torch.tensor([[3, 1], [0, 2]])})
        assert rows.reward.tolist() == [[3, 2], [0, 4]]
        ends = t % 3 == 0
        assert step.done.tolist() == [ends] * 2 and rows.truncated.all() == ends and not rows.terminated.any()
        assert (rows.observation[..., 0] == t % 3).all()
        if ends:
            assert (rows.final_observation[..., 0] == 3).all()
    assert step.episode_seed.tolist() == [4, 5]


@pytest.mark.parametrize("constructor", [lambda: Pictured(), lambda n_envs: Pictured(n_envs)])
def test_a_global_state_of_bytes_is_scaled_as_observations_are(constructor: Callable[..., EnvBase]) -> None:
    env = torchrl_vector_env(constructor, 2)
    step, actions = env.reset(0), {"counters": torch.ones(2, 2, dtype=torch.int64)}
    assert step.state is not None and step.final_state is not None
    for count in (1, 2, 3, 4, 0):
        env.step(actions)
        torch.testing.assert_close(step.state, torch.full((2, 1, 3), count / 5))
    torch.testing.assert_close(step.final_state, torch.ones(2, 1, 3))


def test_batched_envs_with_a_transform_start_when_they_are_reset() -> None:
    def scaled(n_envs: int) -> EnvBase:
        return TransformedEnv(serial(n_envs), RewardScaling(0, 10, in_keys=[("counters", "reward")]))

    for reset_first in (False, True):
        with vector_env(scaled, 2) as env:
            if reset_first:
                env.reset(0)
                step = env.step({"counters": torch.zeros(2, 2, dtype=torch.int64)})
                assert step.groups["counters"].reward.tolist() == [[10, 20]] * 2  # a one-hot choice sums to 1


def test_one_that_leaves() -> None:
    env = torchrl_vector_env(one, 1, kwargs={"leaves": 2})
    step, actions = env.reset(0), {"counters": torch.ones(1, 2, dtype=torch.int64)}
    rows, seen = step.groups["counters"], []
    for _ in range(5):
        env.step(actions)
        seen.append((rows.reward[0].tolist(), rows.terminated[0].tolist(), rows.alive[0].tolist()))
    stays = [([1, 2], [False, False], [True, True])]
    leaves = [([1, 2], [False, True], [True, False])]
    alone = [([1, 0], [False, False], [True, False])] * 2
    assert seen == stays + leaves + alone + [([1, 0], [True, False], [True, True])]


@pytest.mark.parametrize(
    ("action", "chosen", "reward"),
    [
        (MultiCategorical([2, 3]), [1, 2], 3.0),
        (MultiOneHot([2, 3]), [1, 2], 2.0),
        (Bounded(-2, 3, (2,)), [-2.0, 1.5], -0.5),
    ],
)
def test_kinds_of_actions(action: Any, chosen: list[float], reward: float) -> None:
    env = torchrl_vector_env(one, 1, kwargs={"action": action})
    env.reset(0)
    assert env.step({"counters": torch.tensor([[chosen, chosen]])}).groups["counters"].reward.tolist() == [
        [reward, 2 * reward]
    ]


def test_the_choice_of_a_single_agent_is_a_scalar() -> None:
    env = torchrl_vector_env(lambda: GymEnv("CartPole-v1", categorical_action_encoding=True), 2)
    env.reset(0)
    assert env.step({"agent": torch.tensor([[0], [1]])}).groups["agent"].reward.tolist() == [[1], [1]]


@pytest.mark.parametrize(("continuous", "categorical"), [(True, True), (False, True), (False, False)])
def test_vmas_through_torchrl_is_vmas(continuous: bool, categorical: bool) -> None:
    """Against the VectorEnv that steps VMAS itself: other random numbers, so from the same places."""
    options = {"continuous_actions": continuous}

    def constructor(n_envs: int) -> EnvBase:
        return VmasEnv("balance", num_envs=n_envs, categorical_actions=categorical, **options)

    env = torchrl_vector_env(constructor, 3, max_steps=6)
    other = ENVIRONMENTS.get("vmas/balance")(
        max_steps=6, seeds="batch", groups={"agents": ("agent_0", "agent_1", "agent_2")}, **options
    ).build(3)
    first, second, generator = env.reset(4), other.reset(4), torch.Generator().manual_seed(0)
    for _ in range(20):
        assert not differ(first, second).any()
        actions = random_actions(env, first, generator)
        first, second = env.step(actions), other.step(actions)


def test_envs_do_not_change_each_others_random_numbers_or_the_processs() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    two, three = torchrl_vector_env(one, 2), torchrl_vector_env(one, 3)
    first: Tensor = two.reset(5).groups["counters"].observation[1].clone()
    assert torch.equal(three.reset(6).groups["counters"].observation[0], first)
    assert torch.equal(torch.rand(2), expected)


def test_an_entry_point() -> None:
    config = CustomConfig(entry_point="tests.envs.test_torchrl_env:many", kwargs={"ends": 2})
    check = config.build(4)
    assert check.n_envs == 4 and check.spec.name == "torchrl/custom"
    with pytest.raises(ConfigError, match="module:function"):
        CustomConfig(entry_point="nowhere")
    with pytest.raises(EnvError, match=r"no name 'missing' in tests\.envs"):
        CustomConfig(entry_point="tests.envs:missing").build(1)


@pytest.mark.parametrize("game", ["tic_tac_toe", "kuhn_poker", "goofspiel"])
def test_openspiel(game: str) -> None:
    pytest.importorskip("pyspiel")
    check_vector_env(lambda n_envs: ENVIRONMENTS.get(f"openspiel/{game}")().build(n_envs))


def test_players_take_turns_and_get_each_reward_once() -> None:
    pytest.importorskip("pyspiel")
    env = ENVIRONMENTS.get("openspiel/tic_tac_toe")().build(1)
    step = env.reset(0)
    assert not env.spec.simultaneous
    (rows,) = step.groups.values()
    taken: list[int] = []
    for player, cell in enumerate([0, 3, 1, 4, 2]):  # the first player's row
        assert rows.acting[0].tolist() == [player % 2 == 0, player % 2 == 1]
        allowed = rows.action_mask[0, player % 2].nonzero().flatten().tolist()  # type: ignore[index]
        assert allowed == [i for i in range(9) if i not in taken]
        env.step({"agents": torch.full((1, 2), cell)})
        taken.append(cell)
    assert rows.reward.tolist() == [[1, -1]] and step.done.all() and rows.terminated.all()
    env.step({"agents": torch.zeros(1, 2, dtype=torch.int64)})
    assert rows.reward.tolist() == [[0, 0]]


def test_an_acting_entry_says_whose_turn_it_is() -> None:
    check_vector_env(lambda n_envs: torchrl_vector_env(InTurn, n_envs))
    env = torchrl_vector_env(InTurn, 1)
    assert not env.spec.simultaneous and torchrl_vector_env(one, 1).spec.simultaneous
    rows = env.reset(0).groups["counters"]
    for mover in (0, 1, 0):
        assert rows.acting[0].tolist() == [mover == 0, mover == 1] and rows.alive.all()
        env.step({"counters": torch.zeros(1, 2, dtype=torch.int64)})


def test_rewards_of_a_game_are_not_summed() -> None:
    """Cliff walking costs 1 a step (Sutton and Barto, example 6.6)."""
    pytest.importorskip("pyspiel")
    env = ENVIRONMENTS.get("openspiel/cliff_walking")().build(1)
    env.reset(0)
    for _ in range(3):  # up, from the bottom of four rows
        assert env.step({"agents": torch.tensor([[1]])}).groups["agents"].reward.tolist() == [[-1]]


def test_moves_at_once() -> None:
    pytest.importorskip("pyspiel")
    env = ENVIRONMENTS.get("openspiel/matrix_rps")().build(1)
    (rows,) = env.reset(0).groups.values()
    assert rows.acting.all() and rows.action_mask.all()  # type: ignore[union-attr]
    assert env.step({"agents": torch.tensor([[1, 0]])}).groups["agents"].reward.tolist() == [[1, -1]]  # paper, rock


@pytest.mark.parametrize(
    ("constructor", "kwargs", "message"),
    [
        (one, {"ends": "soon", "wrong": 1}, "no keyword argument 'wrong'"),
        (lambda: 3, {}, "must return a torchrl EnvBase; it returned int"),
        (lambda: Counters(n_envs=5), {}, "its batch size must be [] (one env) or [2] (all envs); got [5]"),
        (one, {"action": Unbounded((2,))}, "UnboundedContinuous actions"),
        (one, {"action": Binary(2)}, "Binary actions"),
    ],
)
def test_refusals(constructor: Callable[..., Any], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=re.escape(message)):
        torchrl_vector_env(constructor, 2, kwargs=kwargs)


def test_turn_based_wrappers_are_refused() -> None:
    def constructor() -> EnvBase:
        from pettingzoo.classic import tictactoe_v3

        return PettingZooWrapper(tictactoe_v3.env(), use_mask=True)

    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    with pytest.raises(EnvError, match="turn-based"):
        torchrl_vector_env(constructor, 2)


@pytest.mark.parametrize("game", ["tic_tac_toe", "matrix_rps"])
def test_games_in_a_serial_env_are_refused_because_it_loses_their_masks(game: str) -> None:
    pytest.importorskip("pyspiel")
    from marlnb.envs.torchrl.openspiel import make

    message = r"SerialEnv does not pass on the action masks of Game.*return one of these environments"
    with pytest.raises(EnvError, match=message):
        torchrl_vector_env(lambda n_envs: SerialEnv(n_envs, lambda: make(game)), 2)
    assert torchrl_vector_env(lambda: make(game), 2).reset(0).groups["agents"].acting.any(-1).all()


def test_a_step_that_fails_says_which_episode() -> None:
    class Broken(Counters):
        def _step(self, tensordict: Any) -> Any:
            raise ValueError("out of paper")

    env = torchrl_vector_env(Broken, 2)
    env.reset(40)
    with pytest.raises(EnvError, match=r"episodes with seeds \[40\] failed(.|\n)*out of paper"):
        env.step({"counters": torch.zeros(2, 2, dtype=torch.int64)})


def test_an_observation_of_parts_with_different_sizes_is_named() -> None:
    from torchrl.envs import GymEnv

    with pytest.raises(EnvBuildError, match="'observation' has parts of different sizes, as of a Tuple space; supp"):
        torchrl_vector_env(lambda: GymEnv("Blackjack-v1"), 2)
