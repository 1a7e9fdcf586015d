"""Any algorithm learns with any other, from one stream of experience; mismatches are reported before anything runs."""

from __future__ import annotations

import itertools
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

from marlnb.config import ALGORITHMS
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from tests.sampling import sample

TAG = (
    *("env=mpe/simple_tag", "env.max_cycles=5", "env.num_adversaries=2", "env.num_obstacles=0", "env.state=true"),
    *("model.hidden=[8]", "n_envs=2", "rollout_steps=4", "frames=1000", "checkpoint_every=2"),
)
SMALL = {
    "epochs": 1,
    "minibatch_frames": 8,
    "updates": 2,
    "batch_size": 4,
    "buffer_frames": 64,
    "learning_starts": 0,
    "sequence_length": 4,
    "function": "tests.algorithms.test_mixtures:stay",
}
# maa2c differs from a2c by its critic alone, as mappo from ippo: pairs with those three cover its own
LEARNING = [name for name, config in ALGORITHMS.items() if config.learns and name != "maa2c"]
EXTRA = ["random", "no_op", "scripted", "frozen"]


def stay(observation: Tensor, mask: Tensor | None, group: object, generator: torch.Generator | None) -> Tensor:
    return torch.zeros(observation.shape[:2], dtype=torch.int64)


def chosen(group: str, name: str, **options: object) -> list[str]:
    """An algorithm for a group, with the small options that it knows."""
    known = {field.name for field in fields(ALGORITHMS.get(name))}
    given = {key: value for key, value in SMALL.items() if key in known} | options
    return [f"algorithms.{group}={name}", *(f"algorithms.{group}.{key}={value}" for key, value in given.items())]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    named = {f"{group}.{key}": v for group, p in trainer.policies.items() for key, v in p.named_parameters()}
    return {name: value.detach().clone() for name, value in named.items()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose policies are frozen elsewhere."""
    experiment = Experiment.compose(*TAG, *chosen("adversary", "ippo"), *chosen("agent", "iql"), "frames=16")
    return train(experiment, tmp_path_factory.mktemp("source") / "run", progress=False)


def pair(source: Run, adversary: str, agent: str, *more: str) -> Experiment:
    options = {"frozen": {"run": str(source.path)}}
    parts = (
        *chosen("adversary", adversary, **options.get(adversary, {})),
        *chosen("agent", agent, **options.get(agent, {})),
    )
    return Experiment.compose(*TAG, *parts, *more)


def run_pair(experiment: Experiment, path: Path, iterations: int) -> tuple[list[Report], dict[str, Tensor]]:
    with Trainer(experiment, Run.create(path, experiment)) as trainer:
        reports = [next(trainer) for _ in range(iterations)]
        trained = weights(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
    return reports, trained


def pairs() -> list[tuple[str, str]]:
    """Each two algorithms once, the learning ones also with themselves; who chases whom alternates."""
    learning = list(itertools.combinations_with_replacement(LEARNING, 2))
    both = [*learning, *itertools.product(LEARNING, EXTRA), *itertools.combinations(EXTRA, 2)]
    return [(one, other) if k % 2 else (other, one) for k, (one, other) in enumerate(both)]


def sampled_pairs() -> list[tuple[str, str]]:
    """Each algorithm in each group, and each kind of learner with each."""
    kinds = {name: kind_of(name) for name in (*LEARNING, *EXTRA)}
    return sample(pairs(), lambda pair: (("adversary", pair[0]), ("agent", pair[1]), (kinds[pair[0]], kinds[pair[1]])))


def kind_of(name: str) -> str:
    """The module of the algorithm's options, as "ppo"; "fixed" for what does not learn."""
    return ALGORITHMS.get(name).__module__.rsplit(".", 1)[-1] if name in LEARNING else "fixed"


@pytest.mark.parametrize(("adversary", "agent"), sampled_pairs())
def test_every_pair_trains_is_saved_and_continues(tmp_path: Path, source: Run, adversary: str, agent: str) -> None:
    experiment = pair(source, adversary, agent)
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        before = weights(trainer)
        reports = [next(trainer) for _ in range(3)]
        after = weights(trainer)
    for group, name in (("adversary", adversary), ("agent", agent)):
        actor = [key for key in before if key.startswith(f"{group}.actor.")]
        changed = [key for key in actor if not torch.equal(before[key], after[key])]
        assert changed == (actor if name in LEARNING else []), group
        assert bool(reports[-1].learning[group]) is (name in LEARNING)
    with Trainer.resume(Run.open(tmp_path / "r")) as trainer:
        assert trainer.iteration == 3 and next(trainer).iteration == 4


@pytest.mark.parametrize(
    ("adversary", "agent", "more"),
    [
        ("mappo", "iql", ()),
        ("ippo", "maddpg", ()),
        ("qmix", "masac", ()),
        ("matd3", "isac", ()),
        ("vdn", "random", ()),
        ("iddpg", "frozen", ()),
        ("masac", "mappo", ()),
        ("qmix", "mappo", ("models.adversary=gru", "models.agent=gru")),
        ("iql", "ippo", ("models.adversary=gru",)),
    ],
)
def test_a_resumed_mixture_gives_the_same_bits(
    tmp_path: Path, source: Run, adversary: str, agent: str, more: tuple[str, ...]
) -> None:
    experiment = pair(source, adversary, agent, *more)
    reports, expected = run_pair(experiment, tmp_path / "whole", 5)
    run_pair(experiment, tmp_path / "halves", 3)  # 2 are saved, 1 is lost
    torch.manual_seed(123)
    run = Run.open(tmp_path / "halves")
    assert run.checkpoint().iteration == 2
    with Trainer.resume(run) as trainer:
        again = [next(trainer) for _ in range(3)]
        actual = weights(trainer)
    assert all(torch.equal(actual[name], value) for name, value in expected.items())
    assert [report.learning for report in again] == [report.learning for report in reports[2:]]
    assert [report.returns for report in again] == [report.returns for report in reports[2:]]


def test_a_group_learns_the_same_whatever_the_other_learns_while_both_still_act_alike(
    tmp_path: Path, source: Run
) -> None:
    """Weights are drawn for each group by itself, and the first rollout's learning reads the own group only."""
    actual = [run_pair(pair(source, "ippo", name), tmp_path / name, 1)[1] for name in ("iql", "vdn")]
    own_weights = [key for key in actual[0] if key.startswith("adversary")]
    assert own_weights and all(torch.equal(actual[0][key], actual[1][key]) for key in own_weights)


CONTINUOUS = ("env=probe/continuous", "model.hidden=[8]", "n_envs=2", "rollout_steps=4")
TURNS = ("env=probe/echo", "model.hidden=[8]", "n_envs=2", "rollout_steps=4")
CENTRAL_OVER_GRU = (*TAG, "rollout_steps=16", "algorithm=ippo", "models.agent=gru", "algorithms.adversary=maddpg")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (*CONTINUOUS, "algorithm=qmix"),
            "qmix for group 'agent' of probe/continuous: got continuous actions; it takes dis",
        ),
        (
            (*CONTINUOUS, "algorithm=vdn"),
            "vdn for group 'agent' of probe/continuous: got continuous actions; it takes discr",
        ),
        (
            (*CONTINUOUS, "algorithm=iql"),
            "iql for group 'agent' of probe/continuous: got continuous actions; it takes discr",
        ),
        ((*TURNS, "algorithm=maddpg"), "maddpg for group 'player' of probe/echo: it needs every agent to act at every"),
        (
            (*TURNS, "algorithm=matd3"),
            "it needs every agent to act at every step, but here agents wait for their turns",
        ),
        ((*TURNS, "algorithm=masac"), "masac for group 'player' of probe/echo: it needs every agent to act"),
        ((*TURNS, "algorithm=vdn"), "vdn for group 'player' of probe/echo: it needs every agent to act"),
        ((*TURNS, "algorithm=qmix"), "qmix for group 'player' of probe/echo: it needs every agent to act"),
        ((*TAG, "algorithm=maddpg", "model=gru"), "maddpg for group 'adversary' .* feed-forward networks; got gru"),
        ((*TAG, "algorithm=isac", "models.agent=gru"), "isac for group 'agent' .* feed-forward networks; got gru"),
        (
            CENTRAL_OVER_GRU,
            "its critic needs the next actions of agent, which depend on a recurrent state; valid: feed",
        ),
        ((*TAG, "algorithms.wolf=iql"), r"no group 'wolf' of mpe/simple_tag.* Valid: adversary, agent"),
        (
            (*TAG, "algorithms.agent=iql", "algorithms.agent.buffer_frames=1"),
            "buffer_frames=1 is smaller than one rol",
        ),
        ((*TAG, "groups.all=[agent_0]"), "groups must contain each of .* exactly once; wrong:"),
        (
            (*TAG, "groups.all=[adversary_0,adversary_1,agent_0]"),
            r"group 'all' cannot contain 'adversary_0' and 'agent_0': 'adversary_0' has observations of shape",
        ),
    ],
)
def test_mismatches_are_errors_before_anything_runs(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    experiment = Experiment.compose(*overrides)
    with pytest.raises(ConfigError, match=message):
        Trainer(experiment, Run.create(tmp_path / "r", experiment))


def test_a_frozen_policy_of_other_spaces_is_refused(tmp_path: Path, source: Run) -> None:
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}", "env.num_obstacles=1")
    experiment = Experiment.compose(*TAG, *frozen)
    with pytest.raises(
        ConfigError, match=r"does not fit: group 'agent' of mpe/simple_tag has observation shape \(10,\)"
    ):
        Trainer(experiment, Run.create(tmp_path / "r", experiment))
