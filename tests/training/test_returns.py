"""A target return of agents that play against each other is an error: their mean return is always 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import ConfigError
from marlnb.training.collect.episode_statistics import EpisodeStatistics
from marlnb.training.returns import LastEvaluation, TrainingReturns
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

DISC = mnb.Experiment.compose(
    *("env=game/disc", "algorithm=ippo", "model.hidden=[4]", "n_envs=64", "rollout_steps=1", "frames=100_000"),
    *("tuned=false", "evaluation_episodes=10"),
)


@pytest.mark.parametrize("target", [-1.0, 0.5])  # ended at once, or never
@pytest.mark.parametrize("evaluate_every", [0, 1])
def test_a_target_of_self_play_is_an_error(tmp_path: Path, target: float, evaluate_every: int) -> None:
    experiment = replace(DISC, target_return=target, evaluate_every=evaluate_every)
    message = rf"target_return={target:g} .*group 'player' play against.*always 0.*max_minutes.*target_group=GROUP"
    with (
        Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer,
        pytest.raises(ConfigError, match=message),
    ):
        list(trainer)
    assert trainer.iteration == 1  # with 64 episodes; an error in the second


def test_a_resumed_training_knows_that_agents_play_against_each_other(tmp_path: Path) -> None:
    experiment = replace(DISC, target_return=-1.0, evaluate_every=1)  # reached by the mean return, 0
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        next(trainer)
    with Trainer.resume(trainer.run) as resumed, pytest.raises(ConfigError, match="play against each other"):
        next(resumed)


def _episodes(*returns: tuple[float, float]) -> EpisodeStatistics:
    return EpisodeStatistics({"a": np.array(returns)}, np.ones(len(returns), dtype=np.int64))


@pytest.mark.parametrize("resumes", [False, True])
def test_one_episode_of_another_sum_shows_that_agents_can_gain_together(resumes: bool) -> None:
    experiment = replace(DISC, target_return=0.0, evaluate_every=1)
    evaluated = TrainingReturns(experiment)
    evaluated.evaluation = LastEvaluation(1, {"a": 0.5})
    nothing = type("Nothing", (), {"recent_episodes": 0, "recent_returns": {}})()
    for episodes, reached in [
        (_episodes(*[(0.0, 0.0)] * 200), 0.5),  # without reward, nothing is known
        (_episodes(*[(1.0, -1.0)] * 99), None),
        (_episodes((1.0, 0.0)), 0.5),
        (_episodes(*[(1.0, -1.0)] * 200), 0.5),
    ]:
        evaluated.add(episodes)
        assert evaluated.reached_target(nothing) == reached
        if resumes:
            state = evaluated.state_dict()
            evaluated = TrainingReturns(experiment)
            evaluated.load_state_dict(state, ("a",))
