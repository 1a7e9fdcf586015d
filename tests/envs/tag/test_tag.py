"""The games of tag as environments: the contract, what a tag does, starts, training and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.envs.contract import check_vector_env
from marlnb.envs.steps import random_actions
from marlnb.envs.tag.config import TagContinuousConfig, TagGridWorldConfig
from marlnb.envs.tag.continuous import TagContinuous
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.errors import ConfigError

SMALL: dict[str, Any] = {"num_taggers": 2, "num_runners": 5, "num_other_agents_observed": 3, "grid_length": 4.0}
STILL = torch.zeros(1, 2, 2, dtype=torch.int64), torch.zeros(1, 5, 2, dtype=torch.int64)


def small(**options: Any) -> TagContinuousConfig:
    return TagContinuousConfig(**{**SMALL, "episode_length": 12, "tagging_distance": 0.15, **options})


@pytest.mark.parametrize(
    "config",
    [
        small(),
        small(starts="shared", use_full_observation=True),
        small(runner_exits_game_after_tagged=False),
        TagGridWorldConfig(num_taggers=3, grid_length=4, episode_length=9),
        TagGridWorldConfig(num_taggers=3, grid_length=4, episode_length=9, starts="env", use_full_observation=False),
    ],
)
def test_the_contract(config: mnb.EnvConfig) -> None:
    check_vector_env(config.build)


def test_one_tagger_tags_two_runners_in_one_step() -> None:
    """Both count; WarpDrive's kernel may lose one."""
    env = small().build(1)
    env.reset(0)
    env.state["x"] = torch.tensor([[2.0, 0.0, 2.1, 1.9, 4.0, 4.0, 4.0]])
    env.state["y"] = torch.tensor([[2.0, 0.0, 2.0, 2.0, 4.0, 4.0, 4.0]])
    step = env.step({"tagger": STILL[0], "runner": STILL[1]})
    assert step.groups["tagger"].reward.tolist() == [[20.0, 0.0]]
    assert step.groups["runner"].reward.tolist() == [[-10.0, -10.0, 0.0, 0.0, 0.0]]
    assert step.groups["runner"].terminated.tolist() == [[True, True, False, False, False]]
    assert env.labels()["runners_left"].tolist() == [3.0]


def test_a_runner_tagged_in_the_last_step_gets_no_reward_for_staying() -> None:
    env = small(episode_length=1).build(1)
    env.reset(0)
    env.state["x"] = torch.tensor([[2.0, 0.0, 2.1, 4.0, 4.0, 4.0, 4.0]])
    env.state["y"] = torch.tensor([[2.0, 0.0, 2.0, 4.0, 4.0, 4.0, 4.0]])
    step = env.step({"tagger": STILL[0], "runner": STILL[1]})
    assert step.groups["runner"].reward.tolist() == [[-10.0, 1.0, 1.0, 1.0, 1.0]]
    assert step.done.all()


def test_tags_are_conserved_and_runners_never_return() -> None:
    """Taggers earn 10 for each runner that leaves; an episode ends when none is left, or with the time."""
    env = small().build(50)
    step = env.reset(3)
    generator = torch.Generator().manual_seed(0)
    ended_early = 0
    for _ in range(40):
        left = step.groups["runner"].alive.clone()
        step = env.step(random_actions(env, step, generator))
        tagged = (step.groups["runner"].reward <= -9).sum(1)
        assert torch.equal(step.groups["tagger"].reward.sum(1), 10.0 * tagged)
        going_on = ~step.done
        assert not (step.groups["runner"].alive & ~left)[going_on].any()
        assert torch.equal(step.groups["runner"].alive.sum(1)[going_on], (left.sum(1) - tagged)[going_on])
        early = step.done & (left.sum(1) == tagged)
        ended_early += int(early.sum())
    assert ended_early > 0


def test_starts_differ_by_env_or_are_shared() -> None:
    own, shared = small().build(8), small(starts="shared", start_seed=4).build(8)
    own.reset(0), shared.reset(0)
    assert len(torch.unique(own.state["x"])) == 56 and len(torch.unique(shared.state["x"])) == 7
    first = shared.state["x"].clone()
    shared.reset(9)
    assert torch.equal(first, shared.state["x"])
    quarters = own.state["direction"] / (torch.pi / 2)
    assert torch.equal(quarters, quarters.round()) and len(torch.unique(quarters)) == 4
    given = small(starting_location_x=tuple(float(i) / 2 for i in range(7))).build(2)
    given.reset(0)
    assert given.state["x"][1].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


def test_thousand_agents_step() -> None:
    config = TagContinuousConfig(num_taggers=50, num_runners=950)
    with config.build(2) as env:
        step = env.step(random_actions(env, env.reset(0), torch.Generator().manual_seed(0)))
    assert step.groups["runner"].observation.shape == (2, 950, 71)


def test_options_that_do_not_fit_are_errors() -> None:
    with pytest.raises(ConfigError, match="num_other_agents_observed=7: with 7 agents there are at most 6 others"):
        small(num_other_agents_observed=7)
    with pytest.raises(ConfigError, match="starting_location_x needs a number for each of 7 agents; got 2"):
        small(starting_location_x=(1.0, 2.0))
    with pytest.raises(ConfigError, match=r"min_turn=1.0 is larger than max_turn=0.5"):
        small(min_turn=1.0, max_turn=0.5)


def test_a_chaser_tags_more_than_chance() -> None:
    """Taggers that turn to the nearest runner, with what they observe, against taggers that act at random."""

    def tags(chasing: bool) -> float:
        env = TagContinuousConfig(num_taggers=2, num_runners=10, num_other_agents_observed=11, episode_length=60).build(
            32
        )
        step, generator, total = env.reset(0), torch.Generator().manual_seed(0), 0.0
        for _ in range(60):
            actions = random_actions(env, step, generator)
            if chasing:
                actions["tagger"] = chase(env, step.groups["tagger"].observation)
            actions["runner"].zero_()
            step = env.step(actions)
            total += float(step.groups["tagger"].reward.sum())
        return total

    assert tags(chasing=True) > 2 * tags(chasing=False)


def chase(env: TensorVectorEnv, observation: torch.Tensor) -> torch.Tensor:
    rules = env.rules
    assert isinstance(rules, TagContinuous)
    x, y, _, _, _, is_tagger, in_game = observation[..., :-1].unflatten(-1, (7, -1)).unbind(-2)
    gap = torch.where((is_tagger == 0) & (in_game == 1), x**2 + y**2, torch.inf)
    near = gap.argmin(-1, keepdim=True)
    wanted = torch.atan2(y.gather(-1, near), x.gather(-1, near))[..., 0]
    turn = torch.remainder(wanted - env.state["direction"][:, rules.taggers] + torch.pi, 2 * torch.pi) - torch.pi
    return torch.stack((torch.full_like(near[..., 0], 20), (rules._turns - turn[..., None]).abs().argmin(-1)), -1)


def test_runners_and_taggers_learn_with_different_algorithms(tmp_path: Path) -> None:
    options = [f"env.{name}={value}" for name, value in SMALL.items()]
    experiment = mnb.Experiment.compose(
        "env=tag/continuous", *options, "algorithms.tagger=ippo", "algorithms.runner=mappo", "algorithm=ippo",
        "env.episode_length=16", "models.tagger.hidden=[8]", "models.runner.hidden=[16]", "n_envs=4", "rollout_steps=8",
        "frames=64",
    )  # fmt: skip
    run = mnb.train(experiment, run=tmp_path / "run", progress=False)
    assert set(mnb.evaluate(run, episodes=2).return_mean) == {"tagger", "runner"}


def test_grid_trains_with_a_value_based_algorithm(tmp_path: Path) -> None:
    experiment = mnb.Experiment.compose(
        "env=tag/gridworld", "env.num_taggers=2", "env.episode_length=10", "algorithm=iql", "algorithms.runner=ippo",
        "n_envs=4", "rollout_steps=8", "frames=64", "algorithms.tagger=iql", "algorithms.tagger.learning_starts=16",
    )  # fmt: skip
    run = mnb.train(experiment, run=tmp_path / "run", progress=False)
    last = run.metrics().iloc[-1]
    losses = [float(last[name]) for name in ("learning/tagger/loss", "learning/runner/policy_loss")]
    assert last["frames"] == 64 and np.isfinite(losses).all()


def test_pictures() -> None:
    env = small(tagging_distance=0.02).build(2)
    env.reset(0)
    env.state["x"][1], env.state["y"][1] = torch.arange(7) * 0.5 + 0.5, 2.0
    env.state["in_game"][1, 6] = False
    picture = env.render(1)
    colours = [tuple(picture[200, int((0.5 * i + 0.5) / 4 * 399)]) for i in range(7)]
    tagger, runner, gone = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2), (0xDD, 0xDD, 0xDD)
    assert [tuple(map(int, colour)) for colour in colours] == [tagger] * 2 + [runner] * 4 + [gone]
    grid = TagGridWorldConfig(num_taggers=1, grid_length=3).build(1)
    grid.reset(0)
    assert (grid.render()[350, 50] == np.array(runner)).all() and (grid.render()[250, 150] == np.array(tagger)).all()
