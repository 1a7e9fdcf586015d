from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.config import ALGORITHMS, MODELS, LearnerContext
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.policy import ActContext
from marlnb.populations.training.league.stacked_opponents import HOME, Opponent, StackedOpponents
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

N_ENVS, N_AGENTS, N_FEATURES = 7, 2, 5
GROUP = GroupSpec("player", ("player_0", "player_1"), ObservationSpec((N_FEATURES,)), ActionSpec("discrete", n=(4,)))


def _policy(
    seed: int, model: str = "mlp", algorithm: str = "ippo", group: GroupSpec = GROUP, **options: Any
) -> ActorPolicy:
    config = MODELS.get(model)(**options)
    context = LearnerContext(group, EnvSpec("game", (group,)), config, config, N_ENVS, 16)
    torch.manual_seed(seed)
    policy = ALGORITHMS.get(algorithm)().build(context).policy
    assert isinstance(policy, ActorPolicy)
    with torch.no_grad():
        for tensor in policy.actor.parameters():  # heads start near 0, where all policies agree
            tensor += 0.1 * torch.randn_like(tensor)
    return policy


def _opponents(policies: dict[str, ActorPolicy], group: GroupSpec = GROUP, loaded: list[str] | None = None):
    def load(name: str) -> Opponent:
        if loaded is not None:
            loaded.append(name)
        policy = policies[name]
        weights = {key: value.clone() for key, value in policy.actor.state_dict().items()}
        architecture = f"{type(policy).__name__} {policy.actor.network}"
        return Opponent(policy, architecture, weights, is_final=True)

    return StackedOpponents(group, N_ENVS, load)


def _names(rng: np.random.Generator, policies: dict[str, ActorPolicy]) -> np.ndarray:
    """Home in one seat, a random opponent in the other."""
    names = np.full((N_ENVS, N_AGENTS), HOME, dtype=object)
    for env in range(N_ENVS):
        names[env, rng.integers(2)] = str(rng.choice(sorted(policies)))
    return names


def _stacked_logits(opponents: StackedOpponents, observation: Tensor) -> Tensor:
    (stack,) = opponents._stacks.values()
    state = None if opponents.recurrent is None else stack.own_state(opponents.recurrent)
    return stack.logits(observation, state)[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", MODELS.names())
def test_stacked_opponents_compute_what_each_computes_alone(model: str) -> None:
    shape = {"cnn": (8, 7, 2), "attention": (4, 3), "deep_sets": (4, 3)}.get(model, (N_FEATURES,))
    options = {"channels": (3, 4), "kernels": (3, 2), "strides": (2, 1)} if model == "cnn" else {}
    group = replace(GROUP, observation=ObservationSpec(shape))
    policies = {name: _policy(k, model, group=group, **options) for k, name in enumerate("abc")}
    opponents, rng = _opponents(policies, group), np.random.default_rng(0)
    names = _names(rng, policies)
    opponents.seat(names)
    observation = torch.randn(N_ENVS, N_AGENTS, *shape)
    with torch.no_grad():
        stacked = _stacked_logits(opponents, observation)
        for env, agent in zip(*np.nonzero(names != HOME)):
            alone = policies[names[env, agent]].actor.step(observation[env : env + 1])[0][0, agent]
            torch.testing.assert_close(stacked[env, agent], alone, atol=1e-6, rtol=1e-6)


def test_recurrent_opponents_remember_their_own_episode_and_wait_for_their_turn() -> None:
    policies = {name: _policy(k, "gru") for k, name in enumerate("ab")}
    opponents, rng = _opponents(policies), np.random.default_rng(1)
    names = _names(rng, policies)
    opponents.seat(names)
    action = torch.zeros(N_ENVS, N_AGENTS, dtype=torch.int64)
    states = {name: torch.zeros(N_ENVS, N_AGENTS, *policies["a"].recurrent_shape) for name in policies}
    for step in range(4):
        observation = torch.randn(N_ENVS, N_AGENTS, N_FEATURES)
        acting = torch.rand(N_ENVS, N_AGENTS) < 0.5
        if step == 2:  # a new match in environment 3
            opponents.seat(names, started=[3])
            for state in states.values():
                state[3] = 0
        with torch.no_grad():
            stacked = _stacked_logits(opponents, observation)
            for name, policy in policies.items():
                alone, after = policy.actor.step(observation, states[name])
                cells = torch.from_numpy(names == name)
                torch.testing.assert_close(stacked[cells], alone[cells], atol=1e-6, rtol=1e-6)
                states[name] = torch.where(acting[..., None, None], after, states[name])
        opponents.act(observation, action, ActContext(generator=torch.Generator()), acting)


def test_actions_of_the_home_player_stay_and_q_values_are_taken_greedily() -> None:
    policies = {"a": _policy(0, algorithm="iql"), "b": _policy(1, algorithm="ippo")}
    opponents = _opponents(policies)
    names = np.full((N_ENVS, N_AGENTS), HOME, dtype=object)
    names[:3, 0], names[3:, 1] = "a", "b"
    opponents.seat(names)
    assert len(opponents._stacks) == 2  # two architectures
    observation = torch.randn(N_ENVS, N_AGENTS, N_FEATURES)
    mask = torch.ones(N_ENVS, N_AGENTS, 4, dtype=torch.bool)
    mask[..., 0] = False
    home = torch.full((N_ENVS, N_AGENTS), 9)
    action = opponents.act(observation, home, ActContext(action_mask=mask, generator=torch.Generator().manual_seed(0)))
    assert bool((action[opponents.home] == 9).all())
    assert opponents.home.tolist() == [[False, True]] * 3 + [[True, False]] * 4
    with torch.no_grad():
        q = policies["a"].actor(observation)[:3, 0]
    assert action[:3, 0].tolist() == (q[:, 1:].argmax(-1) + 1).tolist()
    assert bool((action[3:, 1] > 0).all()), "a forbidden choice"


def test_opponents_are_loaded_when_drawn_and_slots_are_bounded() -> None:
    """A thousand snapshots exist, and each is drawn once."""
    policies, loaded = {f"{k:04}": _policy(0) for k in range(4)}, []
    by_name = {f"{k:04}": policies[f"{k % 4:04}"] for k in range(1000)}
    opponents = _opponents(by_name, loaded=loaded)
    names = np.full((N_ENVS, N_AGENTS), HOME, dtype=object)
    for k in range(1000):
        names[k % N_ENVS, 1] = f"{k:04}"
        opponents.seat(names)
    assert loaded == sorted(by_name)
    one = sum(tensor.numel() * 4 for tensor in policies["0000"].actor.state_dict().values())
    assert opponents.size_bytes <= 2 * N_ENVS * one  # memory grows in powers of two
    opponents.refresh()
    assert opponents.names == tuple(sorted(by_name))[-N_ENVS:]


def test_a_player_that_learns_is_loaded_again_and_a_snapshot_is_not() -> None:
    policies, loaded = {"snapshot": _policy(0), "learning": _policy(1)}, []

    def load(name: str) -> Opponent:
        loaded.append(name)
        policy = policies[name]
        return Opponent(policy, "mlp", dict(policy.actor.state_dict()), is_final=name == "snapshot")

    opponents = StackedOpponents(GROUP, N_ENVS, load)
    names = np.full((N_ENVS, N_AGENTS), HOME, dtype=object)
    names[:4, 0], names[4:, 0] = "snapshot", "learning"
    opponents.seat(names)
    opponents.refresh()
    assert loaded == ["learning", "snapshot", "learning"]
