"""Tic-tac-toe learned by self-play, against a perfect player and a random one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.training.collect.episodes import play
from marlnb.training.collect.rollout import Collector
from marlnb.training.learners import build_learners
from tests.algorithms.noughts import (
    EMPTY,
    best_moves,
    board_of,
    losses_over_all_lines,
    moved,
    observation_of,
    winner,
    worth,
)

OPTIONS = (
    *("env=pettingzoo/tictactoe", "env.workers=0", "algorithm=ippo", "model=mlp", "model.hidden=[128]"),
    *("model.activation=relu", "algorithm.lr=3e-3", "algorithm.entropy_coef=0.03", "algorithm.gamma=1.0"),
    *("algorithm.gae_lambda=0.8", "algorithm.epochs=4", "algorithm.minibatch_frames=512"),
    *("n_envs=64", "rollout_steps=64", "seed=0"),
)
MAX_ITERATIONS = 20


class Seated(Policy):
    """A group of two of which one is played by another than the policy that learned."""

    def __init__(self, learned: Policy, seat: int, other: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.group, self.learned, self.seat, self.other = learned.group, learned, seat, other

    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        output = self.learned.act(observation, action_mask=context.action_mask, explore=False)
        assert context.action_mask is not None
        action, other = output.action.clone(), 1 - self.seat
        action[:, other] = self.other(observation[:, other], context.action_mask[:, other])
        return output._replace(action=action)


def perfect(observation: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Any of the best moves."""
    moves = []
    for shown in observation:
        best = best_moves(board_of(shown), 1)
        moves.append(best[int(torch.randint(len(best), ()))] if best else 0)
    return torch.tensor(moves)


def anyhow(observation: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(mask.float(), 1).squeeze(-1)


def test_the_perfect_player_is_perfect() -> None:
    """A draw, as everybody knows; a corner is best answered by the centre alone."""
    assert worth(EMPTY, 1) == 0
    assert best_moves(moved(EMPTY, 0, 1), -1) == [4]
    assert winner((1, 1, 1, -1, -1, 0, 0, 0, 0)) == 1 and best_moves((1, 1, 0, -1, -1, 0, 0, 0, 0), 1) == [2]
    assert board_of(observation_of((1, -1, 0, 0, 0, 0, 0, 0, 1), -1)) == (-1, 1, 0, 0, 0, 0, 0, 0, -1)


def test_perfect_play_against_itself_is_a_draw_on_pettingzoos_board() -> None:
    """The order of PettingZoo's cells is the one that the perfect player thinks in."""
    experiment = Experiment.compose(*OPTIONS)
    with experiment.env.build(4) as env:
        policy = build_learners(experiment, env.spec)["player"].policy
        torch.manual_seed(0)
        both = Seated(Seated(policy, 1, perfect), 0, perfect)
        table = play(env, {"player": both}, episodes=8, seed=0, explore=False)
    assert (table.length == 9).all() and (table.returns["player"] == 0).all()


def trained(env: VectorEnv, experiment: Experiment) -> Policy:
    """Until it loses no game to the perfect player as first player, two looks in a row."""
    learner = build_learners(experiment, env.spec)["player"]
    generator = torch.Generator().manual_seed(0)
    collector = Collector(env, {"player": learner.policy}, experiment.rollout_steps, generator=generator)
    collector.reset(0)
    lost = [1]
    for _ in range(MAX_ITERATIONS):
        learner.update(collector.collect())
        lost.append(losses_over_all_lines(learner.policy, 0, perfect=True)[0])
        if lost[-2:] == [0, 0]:
            break
    return learner.policy


@pytest.mark.timeout(600)
def test_self_play_learns_to_draw_with_a_perfect_player_and_to_beat_a_random_one() -> None:
    experiment = Experiment.compose(*OPTIONS)
    with experiment.env.build(experiment.n_envs) as env:
        policy = trained(env, experiment)
        lost, _ = losses_over_all_lines(policy, 0, perfect=True)
        assert lost == 0  # as first player, whichever of its best moves the perfect player makes
        torch.manual_seed(0)
        first = Seated(policy, 0, perfect)
        against_perfect = play(env, {"player": first}, episodes=64, seed=1, explore=False).returns["player"][:, 0]
        assert (against_perfect == 0).all()
        first = Seated(policy, 0, anyhow)
        against_random = play(env, {"player": first}, episodes=256, seed=1, explore=False).returns["player"][:, 0]
        assert (against_random > 0).mean() > 0.9
