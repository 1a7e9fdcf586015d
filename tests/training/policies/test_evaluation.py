from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from marlnb.envs.by_hand import vector_env
from marlnb.errors import ConfigError, SiteError
from marlnb.experiment import Experiment
from marlnb.models.hooks.edits import Ablate
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.episodes import play
from marlnb.training.policies.evaluation import evaluate, summarise
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from tests.training.toys import CountConfig, count_experiment


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(count_experiment("frames=96"), tmp_path_factory.mktemp("runs") / "toy", progress=False)


@pytest.fixture(scope="module")
def native_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = Experiment.compose(
        *("env=mpe/simple_speaker_listener", "algorithm=mappo", "frames=6400", "n_envs=32", "rollout_steps=25"),
        *("algorithm.epochs=4", "threads=1"),
    )
    return train(experiment, tmp_path_factory.mktemp("runs") / "native", progress=False)


@pytest.mark.parametrize("n_envs", [None, 1, 7])
def test_means_and_errors_are_those_of_the_episodes_asked_for(toy_run: Run, n_envs: int | None) -> None:
    evaluation = evaluate(toy_run, episodes=23, seed=50, n_envs=n_envs)
    seeds = np.arange(50, 73)
    b = seeds % 5 * (2 + seeds % 7)
    a = b + 0.5 * (2 + seeds % 7)
    assert evaluation.return_mean == {"a": pytest.approx(a.mean()), "b": pytest.approx(b.mean())}
    assert evaluation.return_se["a"] == pytest.approx(np.std(a, ddof=1) / np.sqrt(23))
    assert evaluation.length_mean == pytest.approx((2 + seeds % 7).mean())
    assert evaluation.checkpoint == 3 and evaluation.to_json()["score"] is None
    with pytest.raises(ConfigError, match=r"groups of toy/count are rewarded differently.*return_mean has each: \{'a'"):
        evaluation.score  # noqa: B018
    assert "checkpoint 3, 23 episodes from seed 50, greedy: mean return a " in repr(evaluation)
    assert "<td style='text-align:left'>b</td>" in evaluation._repr_html_()


def test_json_says_what_was_evaluated(toy_run: Run) -> None:
    evaluation = evaluate(toy_run, episodes=1, seed=50)
    data = json.loads(json.dumps(evaluation.to_json()))
    assert data["episodes"] == 1 and data["return_se"] == {"a": None, "b": None} and data["env"] == "toy/count"
    assert data["return_mean"]["b"] == 0.0 and data["checkpoint"] == 3 and data["edits"] == []


def test_large_returns_are_shown_in_full(toy_run: Run) -> None:
    evaluation = evaluate(toy_run, episodes=2)
    large = replace(evaluation, return_mean={"a": 11634.2, "b": -9054.4}, return_se={"a": 562.3, "b": 7.25})
    assert repr(large).endswith("mean return a 11634 ± 562, b -9054 ± 7.2>")


def test_a_random_policy_scores_what_is_known_of_it(native_run: Run) -> None:
    """mpe2's simple_speaker_listener under random actions: -42.9 an agent, measured elsewhere."""
    evaluation = evaluate(native_run, episodes=600, policy="random")
    for group in ("speaker", "listener"):
        error = evaluation.return_se[group]
        assert error is not None and error < 1.5
        assert abs(evaluation.return_mean[group] + 42.9) < 3.5 * error
    assert evaluation.checkpoint is None and evaluation.policy == "random"
    with pytest.raises(ConfigError, match=r"random policy has no checkpoints; got checkpoint=77"):
        evaluate(native_run, policy="random", checkpoint=77)


def test_evaluating_twice_gives_the_same_and_changes_nothing(native_run: Run) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = (evaluate(native_run, episodes=20, explore=True) for _ in range(2))
    assert first.return_mean == second.return_mean
    assert torch.equal(before, torch.get_rng_state())
    assert evaluate(native_run, episodes=20, explore=True, seed=7).return_mean != first.return_mean


def test_an_edit_changes_the_outcome_during_the_evaluation_only(native_run: Run) -> None:
    plain = evaluate(native_run, episodes=40)
    edited = evaluate(native_run, episodes=40, edits=[Ablate("listener/actor/hidden_1")])
    assert edited.return_mean != plain.return_mean
    assert evaluate(native_run, episodes=40).return_mean == plain.return_mean
    assert edited.to_json()["edits"][0]["site"] == "listener/actor/hidden_1"
    single = evaluate(native_run, episodes=40, edits=Ablate("listener/actor/hidden_1"))
    assert (single.return_mean, single.edits) == (edited.return_mean, edited.edits)
    with pytest.raises(ConfigError, match=r"expected an edit or a list of edits, .*; got 'deaf'"):
        evaluate(native_run, episodes=4, edits=["deaf"])  # type: ignore[list-item]
    with pytest.raises(SiteError, match="listener/actor/hidden_1"):
        evaluate(native_run, episodes=4, edits=[Ablate("listener/actor/hidden_9")])


def test_another_environment_must_have_the_same_groups_and_spaces(toy_run: Run, native_run: Run) -> None:
    assert evaluate(toy_run, episodes=5, env=CountConfig(savable=False)).episodes == 5
    assert evaluate(toy_run, episodes=5, env="toy/count").episodes == 5
    with pytest.raises(ConfigError, match=r"has the groups \['listener', 'speaker'\].*groups \['a', 'b'\]"):
        evaluate(toy_run, episodes=5, env="mpe/simple_speaker_listener")
    continuous = Experiment.compose(
        "env=mpe/simple_speaker_listener", "env.continuous_actions=true", "algorithm=ippo"
    ).env
    with pytest.raises(ConfigError, match=r"action kind continuous; the run was trained on .* with discrete"):
        evaluate(native_run, episodes=5, env=continuous)


@pytest.mark.parametrize(
    "options", [{"episodes": 0}, {"n_envs": 0}, {"n_envs": "2"}, {"n_envs": 2.5}, {"seed": -1}, {"policy": "lucky"}]
)
def test_options_out_of_range_are_refused(toy_run: Run, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        evaluate(toy_run, **options)  # type: ignore[arg-type]


def test_players_of_one_group_have_a_return_each_and_no_score() -> None:
    """Random tic-tac-toe: of 255,168 games the first player wins 131,184, so it wins more often than it loses."""
    with vector_env("pettingzoo/tictactoe", 8, workers=0) as env:
        table = play(env, {"player": RandomPolicy(env.spec.group("player"))}, episodes=64, seed=0, explore=True)
    evaluation = summarise(table, env="tictactoe", policy="random", checkpoint=None, seed=0, explore=True, seconds=0.0)
    assert table.zero_sum_groups == ("player",) and evaluation.return_mean["player"] == 0
    first, second = (values.mean() for values in table.scored_returns().values())
    assert first == -second > 0
    shown = repr(evaluation)
    assert f"mean return player_1 {first:.4g} ± " in shown and f"player_2 {second:.4g} ± " in shown
    assert "<td style='text-align:left'>player_2</td>" in evaluation._repr_html_()
    with pytest.raises(ConfigError, match=r"agents of group 'player' play against each other.*player_1"):
        evaluation.score  # noqa: B018
