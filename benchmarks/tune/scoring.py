"""What a policy is worth in each environment: returns by group, or against opponents that act at random."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.episodes import TimeStep, play
from marlnb.training.policies.evaluation import action_generator

SCORING_SEED = 500_000
MAX_ENVS = 100

# The returns of opponents that learn together say little about either, so each side plays against random opponents.
SIDES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "mpe/simple_adversary": (("adversary",), ("agent",)),
    "mpe/simple_push": (("adversary",), ("agent",)),
    "mpe/simple_crypto": (("eve",), ("alice", "bob")),
    "mpe/simple_world_comm": (("leadadversary", "adversary"), ("agent",)),
}
SEATS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("pettingzoo/tictactoe", "pettingzoo/connect_four"), ("first", "second")
)
# The hunters' return against the prey that learns with them, as the literature reports it.
RANKED_GROUP = {"mpe/simple_tag": "adversary"}

Scores = dict[str, float]


def scores(experiment: Experiment, policies: Mapping[str, Policy] | None, *, episodes: int, explore: bool) -> Scores:
    """The mean return of one agent over `episodes` episodes, always the same ones.

    By group; in SIDES by side, against random opponents; in SEATS by seat, against a random opponent.

    Args:
        experiment: names the environment and the groups.
        policies: by group; None: random ones.
        episodes: of each group, side or seat.
        explore: sample actions; otherwise take the most likely.
    """
    name = experiment.env.name
    with build_env(experiment, min(episodes, MAX_ENVS)) as env:
        random = {group.name: RandomPolicy(group) for group in env.spec.groups}
        policies = policies or random
        options: dict[str, Any] = {"episodes": episodes, "explore": explore}
        if name in SEATS:
            return {seat: _seat_return(env, policies, k, **options) for k, seat in enumerate(SEATS[name])}
        if name in SIDES:
            sides = {side: {**random, **{group: policies[group] for group in side}} for side in SIDES[name]}
            returns = {side: _group_returns(env, players, **options) for side, players in sides.items()}
            return {" and ".join(side): mean(returns[side][group] for group in side) for side in sides}
        return _group_returns(env, policies, **options)


def objective(env: str, values: Scores) -> float:
    """The number by which settings are ranked: the weaker seat, the ranked group, or else the mean."""
    if env in SEATS:
        return min(values.values())
    return values[RANKED_GROUP[env]] if env in RANKED_GROUP else mean(values.values())


def _group_returns(env: VectorEnv, policies: Mapping[str, Policy], *, episodes: int, explore: bool) -> Scores:
    generator = action_generator(env, policies, SCORING_SEED)
    table = play(env, policies, episodes=episodes, seed=SCORING_SEED, explore=explore, generator=generator)
    return {group: float(table.group_return(group).mean()) for group in env.spec.group_names}


def _seat_return(env: VectorEnv, policies: Mapping[str, Policy], seat: int, *, episodes: int, explore: bool) -> float:
    """The mean return of the player in a seat against a random player in the other one, -1 to 1."""
    (group,) = env.spec.group_names
    generator = action_generator(env, policies, SCORING_SEED)

    def opponent_moves(time_step: TimeStep) -> dict[str, Tensor]:
        action, mask = time_step.output[group].action.clone(), time_step.action_mask[group]
        assert mask is not None
        other = 1 - seat
        action[:, other] = torch.multinomial(mask[:, other].float(), 1, generator=generator).squeeze(-1)
        return {group: action}

    options: dict[str, Any] = {"episodes": episodes, "seed": SCORING_SEED, "explore": explore, "generator": generator}
    table = play(env, policies, override_action=opponent_moves, **options)
    return float(table.returns[group][:, seat].mean())
