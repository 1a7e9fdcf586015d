"""Mutations of each registered algorithm that learns: its options, its actor and its critic."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from marlnb.config import ALGORITHMS
from marlnb.envs.regroup import build_env
from marlnb.experiment import Experiment
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.architecture import NetworkTarget
from marlnb.populations.evolution.hyperparameters import change, draw, mutables
from marlnb.populations.evolution.mutation import mutated
from marlnb.populations.training.evolution.growth import change_of_outputs, grown_state
from marlnb.training.learners import build_learners

LEARNING = [name for name in ALGORITHMS.names() if ALGORITHMS.get(name).learns]
WITHOUT_CRITIC = {"iql", "vdn", "qmix"}


def compose(name: str, *words: str) -> Experiment:
    base = ("env=mpe/simple_spread", "tuned=false", "n_envs=2", "rollout_steps=16", "frames=10_000")
    network = ("model.hidden=[8,8]", "model.activation=relu")
    evolution = ("evolution=tournament", "evolution.new_units=[4]")
    return Experiment.compose(f"algorithm={name}", *base, *network, *evolution, *words)


@pytest.mark.parametrize("name", LEARNING)
def test_every_option_with_a_range_moves_within_it_and_the_defaults_are_among_them(name: str) -> None:
    options = [item.name for item in fields(ALGORITHMS.get(name)) if item.metadata.get("search")]
    experiment = compose(name, f"evolution.mutable=[{','.join(options)}]")
    assert {"lr"} < set(experiment.algorithm.mutable) <= set(options)
    with build_env(experiment, 1) as env:
        targets = mutables(experiment, env.spec)
    assert {target.option for target in targets} == set(options)
    for target in targets:
        drawn = draw(generator(0, "", "", 0), target, experiment)
        assert target.range.scale == "divisors" or target.range.min <= drawn <= target.range.max
        assert target.value(target.set(experiment, drawn)) == drawn
        up, down = (change(drawn, factor, target, experiment) for factor in (1.2, 0.8))
        assert up != down, target.path


@pytest.mark.parametrize("name", LEARNING)
def test_its_networks_grow_without_a_change_of_what_they_compute(name: str) -> None:
    experiment = compose(name)
    plain = replace(experiment, evolution=None)
    parts = ["models"] if name in WITHOUT_CRITIC else ["models", "critics"]
    with build_env(plain, 1) as env:
        parent = build_learners(plain, env.spec)["agent"]
        with torch.no_grad():
            for weight in parent.policy.parameters():
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)), alpha=0.1)
        for part in parts:
            target = NetworkTarget(part, "agent")
            for kind, units in (("width", 4), ("depth", 8)):
                larger, changes = mutated(kind, generator(0, "", "", 0), experiment.evolution, plain, (), [target])
                ((path, (old, new)),) = changes.items()
                assert path == f"{part}.agent.hidden" and sum(new) - sum(old) == units
                child = build_learners(larger, env.spec)["agent"]
                child.load_state_dict(grown_state(parent, child, parent.state_dict()))
                assert child.policy.state_dict().keys() >= parent.policy.state_dict().keys()
                assert sum(w.numel() for w in child.policy.parameters()) > sum(
                    w.numel() for w in parent.policy.parameters()
                )
                assert change_of_outputs(parent.policy, child.policy) < 1e-6
