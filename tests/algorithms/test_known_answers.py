"""Every learning algorithm on every probe whose actions and turns it takes: the value and the policy must be found.

Registration enrols an algorithm, and a probe. A training run stops as soon as two looks in a row find every answer
within the tolerance, and fails after `most` iterations.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.config import ALGORITHMS, ENVIRONMENTS, AlgorithmConfig
from marlnb.envs.games.config import Answer, GameConfig
from marlnb.experiment import Experiment
from marlnb.training.loop import Loop
from tests.sampling import sample

ON_POLICY = {
    "lr": 1e-2,
    "epochs": 4,
    "minibatch_frames": 128,
    "gae_lambda": 0.9,
    "initial_log_std": -1.0,
    "clip": 0.3,
    "normalise_values": False,
}
OFF_POLICY = {
    "lr": 1e-2,
    "updates": 8,
    "batch_size": 64,
    "buffer_frames": 4096,
    "learning_starts": 64,
    "tau": 0.1,
    "epsilon_frames": 2000,
    "epsilon_end": 0.2,
    "temperature": 0.01,
    "learn_temperature": False,
    "noise": 0.5,
    "output_penalty": 1e-3,
}
CONTINUOUS = {"lr": 4e-3, "lr_critic": 2e-2, "learning_starts": 256, "temperature": 0.05}
LEARNING = [name for name, config in ALGORITHMS.items() if config.learns]
PROBES: list[tuple[str, dict[str, Any], float]] = [
    *((name, {}, 0.9) for name in ENVIRONMENTS.names() if name.startswith("probe/")),
    ("probe/constant", {"endless": True}, 0.5),
]
MAX_ITERATIONS = 100
TOLERANCE = 0.15  # of values, in units of reward; of continuous actions, in the environment's


def takes(algorithm: type[AlgorithmConfig], env: GameConfig) -> bool:
    spec = env.build(1).spec
    return spec.groups[0].action.kind in algorithm.action_kinds and (
        spec.simultaneous or not algorithm.simultaneous_only
    )


GRID = [
    pytest.param(name, env, options, gamma, id=f"{name}, {env}{''.join(f' {key}' for key in options)}")
    for env, options, gamma in PROBES
    for name in LEARNING
    if takes(ALGORITHMS.get(name), ENVIRONMENTS.get(env)(**options))  # type: ignore[arg-type]
]


def in_sample(case: Any) -> list[Hashable]:
    """Each algorithm, and each kind of learner on each probe."""
    name, env, options, _ = case.values
    return [name, (ALGORITHMS.get(name).__module__, env, *options)]


def configured(name: str, gamma: float, **more: Any) -> AlgorithmConfig:
    """An algorithm with the options of the tables above that it knows."""
    kind = ALGORITHMS.get(name)
    off_policy = issubclass(kind, OffPolicyConfig)
    given = {"gamma": gamma, **(OFF_POLICY if off_policy else ON_POLICY), **(more if off_policy else {})}
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in given.items() if key in known})


def started(env: GameConfig, algorithm: AlgorithmConfig) -> Loop:
    experiment = Experiment.compose(
        "env=probe/action", "model.hidden=[32]", "model.activation=tanh", "n_envs=32", "rollout_steps=8", "frames=1"
    )
    experiment = replace(experiment, env=env, algorithm=algorithm)
    loop = Loop(experiment, env.build(experiment.n_envs), torch.device("cpu"))
    loop.begin(0)
    return loop


def observation_of(answer: Answer) -> Tensor:
    """`[1, agent, feature]`."""
    return torch.tensor([answer.observation])


def expected_values(answer: Answer, algorithm: AlgorithmConfig) -> list[float | None]:
    """By agent; of a team, the team's for all of them, where all are asked: `value` cannot tell who lives."""
    if not algorithm.team_reward:
        return list(answer.value)
    return [answer.team if None not in answer.value else None] * len(answer.value)


def wrong(loop: Loop, env: GameConfig, algorithm: AlgorithmConfig, gamma: float) -> list[str]:
    """The answers that the policy does not give, in words."""
    ((name, policy),) = loop.policies.items()
    problems = []
    for answer in env.answers(gamma):
        observation = observation_of(answer)
        with torch.no_grad():
            value, _ = policy.value({name: observation})
            action = policy.act(observation, explore=False).action
        for agent, known in enumerate(expected_values(answer, algorithm)):
            if known is not None and abs(float(value[0, agent]) - known) > TOLERANCE:
                problems.append(
                    f"value of {answer.observation[agent]} is {float(value[0, agent]):.3f}, not {known:.3f}"
                )
        for agent, best in enumerate(answer.action):
            if best is not None and abs(float(action[0, agent]) - best) > TOLERANCE:
                problems.append(f"action at {answer.observation[agent]} is {float(action[0, agent]):.3f}, not {best}")
    return problems


@pytest.mark.parametrize(("name", "env", "options", "gamma"), sample(GRID, in_sample))
def test_trainings_reach_the_known_answers(name: str, env: str, options: dict[str, Any], gamma: float) -> None:
    game = ENVIRONMENTS.get(env)(**options)
    assert isinstance(game, GameConfig)
    algorithm = configured(name, gamma, **(CONTINUOUS if env == "probe/continuous" else {}))
    loop, right, missing = started(game, algorithm), 0, ["never looked"]
    for iteration in range(MAX_ITERATIONS):
        loop.advance()
        if iteration % 2:
            missing = wrong(loop, game, algorithm, gamma)
            right = 0 if missing else right + 1
            if right == 2:
                return
    raise AssertionError(f"{name} on {env} after {MAX_ITERATIONS} iterations: " + "; ".join(missing))


def joint_value(loop: Loop, env: GameConfig) -> tuple[list[int], list[float]]:
    """The greedy joint action at the start, and each agent's value of it."""
    ((name, policy),) = loop.policies.items()
    observation = observation_of(env.answers(1.0)[0])
    with torch.no_grad():
        action, value = policy.act(observation, explore=False).action, policy.value({name: observation})[0]
    return action[0].tolist(), value[0].tolist()


def played(env: str, name: str, iterations: int, **options: Any) -> tuple[list[int], list[float]]:
    game = ENVIRONMENTS.get(env)()
    assert isinstance(game, GameConfig)
    loop = started(game, configured(name, 0.9, **options))
    for _ in range(iterations):
        loop.advance()
    return joint_value(loop, game)


def test_independent_q_learning_learns_the_rows_means_of_the_climbing_game() -> None:
    """With a partner that chooses evenly: rows (-19, -17, 5) / 3 and columns (-19, -23, 11) / 3, by hand."""
    action, value = played("matrix/climbing", "iql", 60, lr=3e-3, epsilon_end=1.0)
    assert action == [2, 2]
    assert value == pytest.approx([5 / 3, 11 / 3], abs=1.0)


def test_a_sum_of_values_fits_the_climbing_game_as_least_squares_do() -> None:
    """Row mean + column mean - grand mean: (5 + 11) / 3 + 31 / 9 = 79 / 9 at the choices (2, 2), which pay 5."""
    action, value = played("matrix/climbing", "vdn", 60, lr=3e-3, epsilon_end=1.0)
    assert action == [2, 2]
    assert value[0] == pytest.approx(79 / 9, abs=1.5)


@pytest.mark.parametrize("name", ["ippo", "mappo", "iql", "vdn"])
def test_the_penalty_game_frightens_them_into_the_middle(name: str) -> None:
    """With a partner that chooses evenly the rows pay (-30, 2/3, -30): both go to the middle, which pays 2."""
    action, value = played("matrix/penalty", name, 30, epsilon_end=1.0)
    assert action == [1, 1]
    if name in ("ippo", "mappo"):
        assert value == pytest.approx([2.0, 2.0], abs=0.5)
