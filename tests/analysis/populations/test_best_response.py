"""Best responses: a game with a known answer, both kinds of games, continued training runs, and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import marlnb as mnb
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.errors import AnalysisError, CheckpointError, RunError

RPS = (
    *("env=tree/biased_rps", "algorithm=ippo", "algorithm.lr=1e-2", "algorithm.epochs=4", "model.hidden=[16]"),
    *("n_envs=32", "rollout_steps=16", "algorithm.entropy_coef=0", "algorithm.gamma=1"),
)
TAG = ("env=mpe/simple_tag", "algorithm=ippo", "model.hidden=[8]", "n_envs=4", "rollout_steps=32", "algorithm.epochs=1")


def trained(path: Path, *words: str) -> mnb.Run:
    return mnb.train(mnb.Experiment.compose(*words), path, progress=False)


def test_a_response_finds_most_of_what_a_perfect_one_wins_and_not_more(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *RPS, "frames=512")
    exact = mnb.exploitability(run)  # of a nearly uniform policy: 8.3
    result = mnb.best_response(run, env_steps=8_000, episodes=400, progress=False)
    assert result.exact == pytest.approx(exact) and result.env_steps == 8192
    assert 0.7 * exact < result.mean_return and result.low <= exact
    assert result.low < result.mean_return < result.high and "a perfect response has" in result.verdict
    even = replace(result, win_rate=Interval(0.5, 0.45, 0.55))  # few wins can pay more than many losses
    assert "an opponent beats it" in even.verdict and "no exploit was found" in replace(even, low=-0.1).verdict
    again = mnb.best_response(run, env_steps=8_000, episodes=400, progress=False)  # neither trains nor plays again
    assert again.mean_return == result.mean_return and again.run.path == result.run.path
    assert result.to_json()["player"] == "run"
    more = mnb.best_response(run, env_steps=8_000, episodes=20, progress=False)  # measured by fewer games
    assert len(more.games.episodes) == 20 and more.run.path == result.run.path
    run = mnb.resume(run, frames=1024, progress=False)
    later = mnb.best_response(run, env_steps=8_000, episodes=20, progress=False)
    assert later.run.path != result.run.path


def test_a_response_to_a_snapshot_of_another_league(tmp_path: Path) -> None:
    league = trained(tmp_path / "run", *RPS, "league=self_play", "league.win_margin=100", "frames=1024").league
    result = mnb.best_response(league["main_0@0"], env_steps=1024, episodes=20, progress=False)
    ours = result.run.league
    assert ours.counts() == {"response_0": {"response": len(ours.matches())}}
    assert set(ours["fixed"].policies()) == {"player"} and not ours["fixed"].player.learning
    for name, value in league["main_0@0"].policies()["player"].state_dict().items():
        assert (ours["fixed"].policies()["player"].state_dict()[name] == value).all()


def test_a_response_to_a_population_has_the_networks_of_the_fittest_member(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=8", "algorithm.epochs=1", "evolution=tournament")
    evolution = ("elites=0", "population=2", "fitness=win_rate", "references=[random]", "generation_frames=16")
    options = (*(f"evolution.{each}" for each in evolution), "evolution.probability.width=50", "evaluation_episodes=2")
    run = trained(tmp_path / "run", *words, *options, "frames=160")
    best = run.population.best
    assert best.experiment.models != run.experiment.models  # they grew
    response = mnb.best_response(run, env_steps=16, episodes=4, progress=False).run
    assert response.experiment.models == best.experiment.models and response.experiment.evolution is None
    with pytest.raises(AnalysisError, match=r"got PopulationMember.*is a run after run.population.winner\(path\)"):
        mnb.best_response(best, env_steps=16)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"'fixed' has other networks than .*models.fixed=.*population.winner"):
        trained(tmp_path / "other", *RPS, "league=best_response", f"league.run={run.path}", "frames=16")


def test_a_response_to_a_league_has_the_algorithm_and_networks_of_the_player_that_acts_for_it(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=8", "algorithm.epochs=1", "league=alphastar", "frames=64")
    own = ("algorithms.main=a2c", "models.main_0.hidden=[8]", "algorithms.main_exploiter=ippo")
    run = trained(tmp_path / "run", *words, *own)
    result = mnb.best_response(run, env_steps=16, episodes=4, progress=False)
    assert result.algorithm == "a2c"
    weights = {name: player.policies()["player"].state_dict() for name, player in result.run.league.players.items()}
    acting = run.policies()["player"].state_dict()
    assert weights["response_0"].keys() == acting.keys()
    assert all(weights["response_0"][name].shape == value.shape for name, value in acting.items())
    assert all(torch.equal(weights["fixed"][name], value) for name, value in acting.items())


def test_each_choice_of_options_has_a_folder_of_its_own(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=8", "algorithm.epochs=1", "frames=16")
    run = trained(tmp_path / "run", *words)
    paths = {
        mnb.best_response(run, env_steps=16, episodes=2, progress=False, algorithm=algorithm).run.path
        for algorithm in (None, IPPOConfig(epochs=1), IPPOConfig(epochs=2), IPPOConfig(epochs=2))
    }
    assert len(paths) == 3
    for side in ("plyer", "player_0"):
        message = f"any player of tree/biased_rps takes any of player_0, player_1, so .* got side='{side}'; valid: None"
        with pytest.raises(AnalysisError, match=message):
            mnb.best_response(run, env_steps=16, side=side)


def test_a_response_to_a_run_with_a_schedule_begins_with_its_first_options(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=8", "algorithm.epochs=1", "frames=32")
    changes = ["0 algorithm.lr=3e-3", "16 algorithm.lr=1e-5"]
    run = mnb.train(replace(mnb.Experiment.compose(*words), schedule=changes), tmp_path / "run", progress=False)
    response = mnb.best_response(run, env_steps=16, episodes=2, progress=False).run.experiment
    assert response.algorithm.lr == 3e-3 and not response.schedule


def test_a_response_stays_known_where_its_folder_was_moved(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=8", "algorithm.epochs=1", "frames=16")
    options = {"env_steps": 16, "episodes": 2, "progress": False}
    first = mnb.best_response(trained(tmp_path / "here" / "run", *words), **options)  # type: ignore[arg-type]
    (tmp_path / "here").rename(tmp_path / "there")
    again = mnb.best_response(tmp_path / "there" / "run", **options)  # type: ignore[arg-type]
    assert again.run.path.name == first.run.path.name and again.mean_return == first.mean_return
    elsewhere = tmp_path / "there" / "response"  # such a folder can hold a response to any run
    mnb.best_response(tmp_path / "there" / "run", run=elsewhere, **options)  # type: ignore[arg-type]
    (tmp_path / "there" / "run").rename(tmp_path / "run")
    with pytest.raises(RunError, match=r"another experiment; league.run: .*there/run there, .*/run here"):
        mnb.best_response(tmp_path / "run", run=elsewhere, **options)  # type: ignore[arg-type]


def test_where_sides_differ_each_other_side_gets_a_response(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *TAG, "frames=128")
    with pytest.raises(AnalysisError, match=r"run acts for all sides of mpe/simple_tag.*side='agent'"):
        mnb.best_response(run, env_steps=128)
    result = mnb.best_response(run, env_steps=256, side="agent", episodes=20, progress=False)
    assert result.games.a == "adversary_response_0" and list(result.games.seatings) == ["adversary"]
    assert not result.both_sides and "an opponent has a win rate" in result.verdict
    other = mnb.best_response(run, env_steps=256, side="adversary", episodes=4, progress=False)  # a folder of its own
    assert other.games.a == "agent_response_0" and other.run.path != result.run.path
    resumed = mnb.resume(result.run, frames=512, progress=False)  # the checkpoint has both sides
    assert set(resumed.policies()) == {"adversary", "agent"}


def test_what_a_perfect_response_wins_where_it_has_one_seat_or_is_not_known(tmp_path: Path) -> None:
    words = (*RPS[:2], "n_envs=2", "rollout_steps=16", "algorithm.epochs=1", "frames=32")
    options = {"env_steps": 32, "episodes": 4, "progress": False}
    sides = trained(tmp_path / "sides", *words, "groups.first=[player_0]", "groups.second=[player_1]")
    result = mnb.best_response(sides, side="second", **options)  # type: ignore[arg-type]
    chances = sides.policies()["second"].act(torch.tensor([[[0.0, 1.0]]])).logits[0, 0].softmax(-1)
    rewards = torch.tensor([[0.0, -25, 50], [25, 0, -5], [-50, 5, 0]]) @ chances  # of rock, paper and scissors
    assert result.exact == pytest.approx(float(rewards.max()), abs=1e-3)
    assert "a perfect response has" in result.verdict
    recurrent = trained(tmp_path / "gru", *words, "model=gru")
    result = mnb.best_response(recurrent, **options)  # type: ignore[arg-type]
    assert result.exact is None and "perfect" not in result.verdict


def test_the_algorithm_of_a_response_is_that_of_its_group(tmp_path: Path) -> None:
    mixed = ("algorithms.agent=iql", "+algorithms.agent.learning_starts=16", "frames=128")
    run = trained(tmp_path / "run", *TAG, *mixed)
    for side, learned_by in (("adversary", "iql"), ("agent", "ippo")):
        result = mnb.best_response(run, env_steps=128, side=side, episodes=4, progress=False)
        assert result.algorithm == learned_by and f"of {learned_by} against run" in result.verdict
        (response,) = (each for each in result.run.league.players.values() if each.player.role == "response")
        assert response.experiment.algorithm_of(response.player.side).name == learned_by


def test_a_player_of_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere"):
        mnb.best_response(tmp_path / "nowhere", env_steps=128)
    words = (*RPS, "league=best_response", f"league.run={tmp_path / 'gone'}", "frames=512")
    with pytest.raises(RunError, match="gone"):
        trained(tmp_path / "run", *words)
