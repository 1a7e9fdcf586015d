"""The schedule of a population's member as an ordinary experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import marlnb as mnb
from marlnb.experiment import Experiment

SMALL = (
    "env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[8]", "n_envs=2", "rollout_steps=8",
    "evolution=tournament", "evolution.population=3", "evolution.generation_frames=32", "evaluation_episodes=2",
)  # fmt: skip


def test_limits_of_a_population_are_none_of_its_members(tmp_path: Path) -> None:
    limits = ("max_iterations=12", "max_minutes=10", "max_agent_steps=576", "frames=1_000")
    run = mnb.train(Experiment.compose(*SMALL, *limits), tmp_path / "run", progress=False)
    assert run.status()["iteration"] == 12 and run.population.best.row.frames == 64
    winner = run.population.winner(tmp_path / "winner")
    replay = run.population.best.replay_experiment()
    for experiment in (winner.experiment, replay):
        assert experiment == replace(experiment, frames=64).limited_by_frames()
    longer = mnb.resume(winner, frames=96, progress=False)
    assert longer.status()["state"] == "complete" and longer.status()["frames"] == 96


def test_the_schedule_of_a_member_is_an_ordinary_experiment(tmp_path: Path) -> None:
    overrides = ("evolution.size=3", "evolution.probability.none=0", "evolution.change=all", "frames=1_000")
    mutable = ("evolution.mutable=[lr,epochs]", "evolution.probability.width=0.5")
    run = mnb.train(Experiment.compose(*SMALL, *overrides, *mutable), tmp_path / "run", progress=False)
    best = next(member for member in run.population.members[::-1] if len(member.schedule()) > 2)
    experiment = best.replay_experiment(seed=5)
    assert experiment.evolution is None and experiment.frames == best.row.frames and experiment.seed == 5
    assert Experiment.from_json(experiment.to_json()) == experiment
    for frames, options in best.schedule():
        algorithm = experiment.at_frames(frames).algorithm
        assert (algorithm.lr, algorithm.epochs) == (options["algorithm.lr"], options["algorithm.epochs"])
    assert experiment.actor_of("agent") == best.experiment.actor_of("agent")
    replayed = mnb.train(experiment, tmp_path / "replayed", progress=False)
    assert replayed.status()["state"] == "complete" and replayed.status()["frames"] == best.row.frames
