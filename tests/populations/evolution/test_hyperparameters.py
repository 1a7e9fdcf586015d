"""Mutations of hyper-parameters: numbers worked out by hand, and names and ranges that cannot be mutated."""

from __future__ import annotations

import pytest

from marlnb.config import SearchRange
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.hyperparameters import (
    Mutable,
    change,
    draw,
    mutables,
    mutate,
    options_of,
    with_options,
)

BASE = ("env=mpe/simple_tag", "evolution=tournament", "algorithm=ippo", "tuned=false", "n_envs=8", "rollout_steps=60")


def _targets(*overrides: str) -> tuple[Experiment, tuple[Mutable, ...]]:
    experiment = Experiment.compose(*BASE, *overrides)
    with experiment.env.build(1) as env:
        return experiment, mutables(experiment, env.spec)


@pytest.mark.parametrize(
    ("search", "value", "factor", "expected"),
    [
        (SearchRange("log", 1e-5, 1e-2), 3e-4, 1.2, 3.6e-4),
        (SearchRange("log", 1e-5, 1e-2), 9e-3, 1.2, 1e-2),  # the range's end
        (SearchRange("log", 1e-4, 0.1), 0.0, 1.2, 1.2e-4),  # 0 times anything would stay 0
        (SearchRange("one_minus", 0.9, 0.9999), 0.99, 0.5, 0.995),
        (SearchRange("one_minus", 0.9, 0.9999), 0.99, 100.0, 0.9),
        (SearchRange("logit", 0.01, 0.99), 0.5, 3.0, 0.75),  # odds of 1 become odds of 3
    ],
)
def test_a_factor_moves_a_value_on_its_scale(search: SearchRange, value: float, factor: float, expected: float) -> None:
    experiment, _ = _targets()
    assert change(value, factor, Mutable("", "x", search, whole=False), experiment) == pytest.approx(
        expected, abs=1e-12
    )


def test_whole_numbers_move_by_at_least_one() -> None:
    experiment, _ = _targets()
    target = Mutable("", "epochs", SearchRange("log", 1, 30), whole=True)
    assert [change(2, factor, target, experiment) for factor in (1.2, 0.8)] == [3, 1]
    assert change(10, 1.2, target, experiment) == 12 and change(1, 0.8, target, experiment) == 1


def test_minibatches_move_between_the_divisors_of_a_rollout() -> None:
    experiment, (target,) = _targets("evolution.mutable=[minibatch_frames]", "algorithm.minibatch_frames=120")
    assert experiment.iteration_frames == 480
    assert [change(120, factor, target, experiment) for factor in (1.2, 0.8)] == [160, 96]
    assert change(480, 1.2, target, experiment) == 480
    assert all(480 % draw(generator(0, "", "", k), target, experiment) == 0 for k in range(20))


def test_each_algorithm_of_a_group_mutates_its_own_options() -> None:
    experiment, targets = _targets("algorithms.agent=iql", "evolution.mutable=[lr,tau]")
    assert [target.path for target in targets] == ["algorithm.lr", "algorithms.agent.lr", "algorithms.agent.tau"]
    changed, changes = mutate(generator(0, "", "", 0), experiment.evolution, experiment, targets[1:2])
    assert changes == {"algorithms.agent.lr": [5e-4, changed.algorithms["agent"].lr]}
    assert changed.algorithm.lr == experiment.algorithm.lr
    assert changed.algorithms["agent"].lr in (4e-4, 6e-4)
    assert with_options(experiment, targets, options_of(changed, targets)) == changed


def test_a_critic_without_a_rate_of_its_own_starts_from_the_actors() -> None:
    experiment, (target,) = _targets("evolution.mutable=[lr_critic]", "algorithm.lr=1e-3")
    changed, changes = mutate(generator(0, "", "", 0), experiment.evolution, experiment, (target,))
    assert changes["algorithm.lr_critic"][0] == 1e-3
    assert changed.algorithm.lr == 1e-3 and changed.algorithm.lr_critic in (8e-4, 1.2e-3)


def test_a_critics_rate_stays_where_the_actors_mutates() -> None:
    experiment, targets = _targets("evolution.mutable=[lr,lr_critic]", "algorithm.lr=1e-3")
    member = with_options(experiment, targets, options_of(experiment, targets))
    changed, changes = mutate(generator(0, "", "", 0), experiment.evolution, member, targets[:1])
    assert list(changes) == ["algorithm.lr"] and changed.algorithm.lr in (8e-4, 1.2e-3)
    assert options_of(changed, targets) == {"algorithm.lr": changed.algorithm.lr, "algorithm.lr_critic": 1e-3}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evolution.mutable=[adam_eps]", "'adam_eps', which cannot be mutated"),
        ("evolution.mutable=[lrr]", "did you mean 'lr'"),
        ("evolution.ranges.lr=[0.1,0.01]", "a minimum below its maximum; got 0.1 and 0.01"),
        ("evolution.ranges.lr=[0,0.01]", "its bounds must be more than 0"),
        ("evolution.ranges.gamma=[0.9,1]", "more than 0, and less than 1"),
        ("evolution.ranges.lr=[0.1,100]", "at most 10"),
        (
            "evolution.ranges.clip=[0.1,0.3]",
            r"no effect, since clip does not mutate; .* evolution\.mutable=\[gamma,clip\]",
        ),
        ("evolution.factors.epochs=[3,0.3]", r"no effect, since epochs does not mutate; .*mutable=\[gamma,epochs\]"),
    ],
)
def test_what_cannot_be_mutated_is_an_error(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _targets(*(["evolution.mutable=[gamma]"] if "lr" not in override else []), override)
