"""Matrix games and probes: the contract, payoffs taken from the papers, and answers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.games.config import GameConfig
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvError

GAMES = [name for name in ENVIRONMENTS.names() if name.startswith(("matrix/", "probe/"))]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in GAMES),
    ("probe/constant", {"endless": True}),
    ("probe/discounting", {"steps": 1}),
    ("probe/dying", {"steps": 5}),
    ("probe/echo", {"rounds": 3}),
    ("matrix/penalty", {"k": 0.0}),
]


def config(name: str, **options: Any) -> GameConfig:
    game = ENVIRONMENTS.get(name)(**options)
    assert isinstance(game, GameConfig)
    return game


def rows(step: Step) -> Any:
    (group,) = step.groups.values()
    return group


def act(env: VectorEnv, actions: Any) -> Step:
    (group,) = env.spec.groups
    return env.step({group.name: torch.as_tensor(actions)})


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_contract(name: str, options: dict[str, Any], state: bool) -> None:
    check_vector_env(lambda n_envs: config(name, state=state, **options).build(n_envs), episodes=20)


def test_climbing_pays_what_claus_and_boutilier_print() -> None:
    env = config("matrix/climbing").build(9)
    env.reset(0)
    step = act(env, [[i, j] for i in range(3) for j in range(3)])
    printed = [11, -30, 0, -30, 7, 6, 0, 0, 5]
    assert rows(step).reward.tolist() == [[paid, paid] for paid in printed]
    assert step.done.all() and rows(step).terminated.all()


def test_penalty_pays_k_where_the_agents_miss_each_other() -> None:
    env = config("matrix/penalty", k=-7.0).build(9)
    env.reset(0)
    step = act(env, [[i, j] for i in range(3) for j in range(3)])
    assert rows(step).reward[:, 0].tolist() == [10, 0, -7, 0, 2, 0, -7, 0, 10]
    assert config("matrix/penalty").optimal_return == 10 and config("matrix/climbing").optimal_return == 11


def test_the_two_step_game_as_rashid_prints_it() -> None:
    env = config("matrix/two_step").build(8)
    env.reset(0)
    first = act(env, [[a, b] for a in (0, 1) for b in (0, 1) for _ in range(2)])
    assert not first.done.any() and not rows(first).reward.any()
    assert rows(first).observation[:, 0, :3].tolist() == [[0, 1, 0]] * 4 + [[0, 0, 1]] * 4
    last = act(env, [[0, 0], [1, 1], [0, 1], [1, 0], [0, 0], [0, 1], [1, 0], [1, 1]])
    assert rows(last).reward[:, 0].tolist() == [7, 7, 7, 7, 0, 1, 1, 8]
    assert last.done.all()


def test_constant_ends_or_is_cut() -> None:
    once, endless = config("probe/constant").build(1), config("probe/constant", endless=True).build(1)
    once.reset(0), endless.reset(0)
    step = act(once, [[0, 1]])
    assert rows(step).reward.tolist() == [[1, 1]] and rows(step).terminated.all()
    cut = [
        (bool(rows(s).truncated.all()), bool(rows(s).terminated.any())) for s in map(act, [endless] * 4, [[[0, 0]]] * 4)
    ]
    assert cut == [(False, False)] * 3 + [(True, False)]
    assert config("probe/constant", endless=True).answers(0.9)[0].value == pytest.approx((10.0, 10.0))


def test_an_agent_dies_and_the_other_continues() -> None:
    env = config("probe/dying").build(1)
    assert rows(env.reset(0)).alive.tolist() == [[True, True]]
    first = act(env, [[1, 1]])
    assert rows(first).reward.tolist() == [[1, 1]] and rows(first).terminated.tolist() == [[True, False]]
    assert rows(first).alive.tolist() == [[False, True]] and not first.done.any()
    second = act(env, [[1, 0]])
    assert rows(second).reward.tolist() == [[0, 0]]
    third = act(env, [[1, 1]])
    assert rows(third).reward.tolist() == [[0, 1]] and third.done.all() and rows(third).alive.all()


def test_echo_pays_when_the_next_turn_has_been_taken() -> None:
    env = config("probe/echo").build(1)
    step = env.reset(5)
    answers = [int(rows(step).observation[0, 0, 0] > 0)]
    paid, acting = [], []
    for repeats in (True, False, True, True):
        acting.append(rows(step).acting[0].tolist())
        answers.append(answers[-1] if repeats else 1 - answers[-1])
        step = act(env, [[answers[-1], 0]] if acting[-1][0] else [[0, answers[-1]]])
        paid.append(rows(step).reward[0].tolist())
    assert acting == [[True, False], [False, True]] * 2
    assert paid == [[0, 0], [1, 0], [0, 0], [1, 1]]  # player_1's first turn earned nothing


def test_continuous_pays_least_far_from_what_is_seen() -> None:
    env = config("probe/continuous").build(4)
    seen = rows(env.reset(3)).observation.clone()
    step = act(env, torch.stack((seen[:, 0], seen[:, 1] - 0.5), 1))
    torch.testing.assert_close(rows(step).reward, torch.tensor([[1.0, 0.75]] * 4))


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_best_policy_earns_what_the_answers_say(name: str, options: dict[str, Any]) -> None:
    """Plays the answers' actions, and meets their values as discounted sums of own turns' rewards."""
    gamma, game = 0.9, config(name, **options)
    with game.build(64) as env:
        step, moments = env.reset(1), []
        while True:
            best = [_answer(game, gamma, rows(step).observation[copy]) for copy in range(64)]
            moments.append([None if answer is None else answer.value for answer in best])
            actions = [
                [0 if a is None else a for a in ((0, 0) if answer is None else answer.action)] for answer in best
            ]
            continuous = env.spec.groups[0].action.kind == "continuous"
            step = act(env, torch.tensor(actions).float()[..., None] if continuous else torch.tensor(actions).long())
            moments[-1] = (moments[-1], rows(step).reward.clone())  # type: ignore[call-overload]
            if step.done.any():
                break
    if (name == "probe/constant" and options) or name == "probe/echo" or name == "matrix/penalty":
        return  # cut short; paid later; two ways to the best: their own tests
    following = torch.zeros(64, 2)
    for values, reward in reversed(moments):  # type: ignore[misc]
        following = reward + gamma * following
        for copy, value in enumerate(values):
            for agent, known in enumerate(value or ()):
                assert known is None or float(following[copy, agent]) == pytest.approx(known, abs=1e-5)
    total = torch.stack([reward for _, reward in moments]).sum(0).mean()  # type: ignore[misc]
    if name != "probe/observation":
        assert float(total) == pytest.approx(game.optimal_return)


def _answer(game: GameConfig, gamma: float, observation: torch.Tensor) -> Any:
    """The answer for what one copy's agents see; noise, the last feature of some, is no part of it."""
    noisy = game.build(1).spec.groups[0].observation.names[-1] == "noise"
    for answer in game.answers(gamma):
        known = torch.tensor(answer.observation)
        if noisy:
            known, observation = known[:, :-1], observation[:, : known.shape[1] - 1]
        if torch.equal(known, observation):
            return answer
    return None


def test_the_answers_of_echo() -> None:
    values = [answer.value for answer in config("probe/echo").answers(0.5)]
    assert values == [(1.5, None)] * 2 + [(None, 1.5)] * 2 + [(1, None)] * 2 + [(None, 1)] * 2


def test_what_cannot_be_taken_is_refused() -> None:
    env = config("probe/action").build(2)
    with pytest.raises(EnvError, match="stepped before its first reset"):
        act(env, [[0, 0]] * 2)
    env.reset(0)
    with pytest.raises(EnvError, match=r"needs actions of shapes \{'agent': \[2, 2\]\}; got \{'agent': \[1, 2\]\}"):
        act(env, [[0, 0]])
    with pytest.raises(EnvError, match="the saved state has"):
        env.load_state_dict(config("probe/action").build(3).state_dict() or {})
    with pytest.raises(EnvError, match="at least one env"):
        config("probe/action").build(0)
