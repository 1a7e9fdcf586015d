"""match: who wins, what is recorded of whom, and what opens a match's recordings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.populations.round_robin import pair_match, round_robin
from marlnb.analysis.stats.wilson import wilson_interval
from marlnb.errors import ConfigError, RecordingError
from marlnb.models.hooks.directions import Direction, Raise
from marlnb.models.policies.seated_policy import SeatedPolicy
from marlnb.populations.matches.seating_file import recorded_source
from marlnb.populations.run_league import RunLeague
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.files import read_json

SMALL = ("algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=16")
RPS = "env=tests.populations.training.games:RockPaperScissors"


def _trained(path: Path, *overrides: str) -> mnb.Run:
    return mnb.train(mnb.Experiment.compose(*overrides, *SMALL), path, progress=False)


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunLeague]:
    run = _trained(tmp_path_factory.mktemp("match") / "rps", RPS, "env.steps=2", "league=alphastar", "frames=640")
    yield run.league


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> mnb.Run:
    overrides = (RPS, "env.steps=2", "model=gru", "model.recurrent_size=12", "frames=64")
    return _trained(tmp_path_factory.mktemp("match") / "gru", *overrides)


def _activations(source: PolicySource, observation: np.ndarray, layer: str) -> torch.Tensor:
    policy = source.policies()["player"]
    with mnb.models.hooks.capture.capture(policy, f"player/actor/{layer}") as activations, torch.no_grad():
        policy.logits(torch.as_tensor(observation))
    return activations[f"player/actor/{layer}"]


def test_a_match_is_scored_from_its_recorded_episodes(league: RunLeague) -> None:
    result = mnb.match(league["main_0"], league["main_0@0"], episodes=41, progress=False)
    assert list(result.recordings) == ["player_0", "player_1"]
    wins, n = 0.0, 0
    for side, recording in result.recordings.items():
        returns = recording.episodes[side].to_numpy()
        wins, n = wins + float((returns > 0).sum() + 0.5 * (returns == 0).sum()), n + len(returns)
    assert n == 41 and result.win_rate.value == pytest.approx(wins / n)
    assert result.table()["episodes"].tolist() == [21, 20]
    assert f"win rate of main_0 {wins / n:.2f}" in result.verdict and "41 episodes" in repr(result)
    assert result.to_json()["win_rate"]["value"] == pytest.approx(wins / n)


def test_swapped_sides_mirror_each_other(league: RunLeague) -> None:
    """Luck counts for both: equal players win equally often, and in each pair the order does not matter."""
    main, first, exploiter = league["main_0"], league["main_0@0"], league["main_exploiter_0"]
    mirror = mnb.match(main, main, episodes=40, progress=False)
    assert mirror.win_rate.value == 0.5 and mirror.draws < 40
    rates = [pair_match(*pair, episodes=20).win_rate.value for pair in ((main, first), (first, main))]
    assert sum(rates) == pytest.approx(1)
    pair_match(main, exploiter, episodes=20)
    seeds = {mnb.Recording.open(path).settings["seed"] for path in main.path.rglob("matches/*-20/*/player_0.h5")}
    assert len(seeds) == 2


def test_players_that_are_trained_again_in_the_same_way_play_the_same_games(tmp_path: Path) -> None:
    """Although their checkpoints have other hashes, as these hold how long the training took."""
    games, checkpoints = [], []
    for name in ("a", "b"):
        run = _trained(tmp_path / name, RPS, "env.steps=2", "frames=64")
        games.append(pair_match(run, run, episodes=8).episodes)
        checkpoints.append(run.checkpoint().sha256)
    assert games[0].equals(games[1]) and checkpoints[0] != checkpoints[1]


def test_in_a_game_of_three_sides_each_of_both_players_is_alone_equally_often(tmp_path: Path) -> None:
    """Each of two players that agree with themselves alone loses where it has one of three seats."""
    games = "tests.populations.training.games"
    words = (f"env={games}:Majority", "n_envs=4", "rollout_steps=4", "frames=16", "algorithm=scripted")
    zero, one = (
        mnb.train(mnb.Experiment.compose(*words, f"algorithm.function={games}:{name}"), tmp_path / name, progress=False)
        for name in ("choose_0", "choose_1")
    )
    assert round_robin((zero, one), episodes=12).win_rates.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    result = mnb.match(zero, one, episodes=12, sites=(), progress=False)
    assert result.table().set_index("choose_0 as")["win_rate"].to_dict() == {
        f"{prefix}player_{k}": rate for k in range(3) for prefix, rate in (("", 0.0), ("all-but-", 1.0))
    }
    assert result.even == 0.5 and "no clear winner" in result.verdict
    opened = mnb.Recording.open(result.recordings["all-but-player_1"].path)
    assert (opened.steps("player", "action").to_numpy() == [0, 1, 0]).all()
    alone = mnb.match(zero, one, episodes=12, sides=["player_0"], name="alone", sites=(), progress=False)
    assert alone.even == pytest.approx(1 / 3) and "choose_1 beats choose_0" in alone.verdict
    assert "0.00 [0.00, 0.24], of equal players 0.33 (12 episodes)" in alone.verdict
    with pytest.raises(ConfigError, match="episodes must be 6 or more"):
        mnb.match(zero, one, episodes=5, name="few", progress=False)


def test_equal_players_of_three_sides_win_equally_often(tmp_path: Path) -> None:
    run = _trained(tmp_path / "run", "env=tests.populations.training.games:Majority", "frames=64")
    mirror = mnb.match(run, run, episodes=60, progress=False)
    assert mirror.win_rate.value == 0.5 and set(mirror.episodes["score"]) == {0.0, 0.5, 1.0}
    response = mnb.best_response(run, env_steps=64, episodes=30, progress=False)  # alone against two fixed ones
    assert list(response.games.seatings) == ["player_0", "player_1", "player_2"] and response.games.even < 0.45
    assert "of equal players 0." in response.verdict


def test_runs_whose_folders_have_the_same_name_get_different_labels(tmp_path: Path) -> None:
    words = ("env=tests.populations.training.games:Majority", "n_envs=4", "rollout_steps=4", "frames=16")
    x, y = (
        mnb.train(mnb.Experiment.compose(*words, "algorithm=random"), tmp_path / name / "seed=0", progress=False)
        for name in ("x", "y")
    )
    result = mnb.match(x, y, episodes=6, sites=(), progress=False)
    assert (result.a, result.b) == ("x/seed=0", "y/seed=0") and "win rate of x/seed=0" in result.verdict
    assert result.recording.path.parts[-3] == "x-seed=0-y-seed=0" and "(player_0) and y/seed=0" in str(result.seatings)
    assert mnb.match(x, x, episodes=6, sites=(), progress=False).b == "seed=0@1"


def test_checkpoints_of_one_run_have_different_labels(tmp_path: Path) -> None:
    run = _trained(tmp_path / "run", RPS, "frames=192", "checkpoint_every=1", "keep_checkpoints=0")
    for pair in ((1, 1), (2, 2), (3, 1), (3, 2)):
        result = mnb.match(run, run, checkpoints=pair, episodes=2, sites=(), progress=False)
        labels = [f"run@{checkpoint}" for checkpoint in pair]
        assert [result.a, result.b] == labels and " and ".join(labels) in result.verdict
        assert result.recording.path.parts[-3] == "-".join(labels)
    opened = recorded_source(result.recording.path.parents[1], "player_0")
    assert "run@3 (player_0) and run@2" in repr(opened)


def test_a_match_in_a_folder_that_is_a_link_names_its_players(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    runs = [_trained(tmp_path / name, RPS, "frames=64") for name in ("link/a", "b")]
    result = mnb.match(*runs, episodes=2, progress=False)
    path = result.recordings["player_0"].path
    assert mnb.attribute(path, group="player", to="action", method="saliency", progress=False).values.any()


def test_each_seat_has_the_activations_of_its_own_player(league: RunLeague) -> None:
    players = {"a": league["main_exploiter_0"], "b": league["main_0@0"]}
    result = mnb.match(*players.values(), episodes=4, progress=False)
    for side, recording in result.recordings.items():
        for agent in range(2):
            name = f"player_{agent}"
            player = players["a" if name == side else "b"]
            site = recording[f"player/actor/{name}/hidden_1"].to_numpy()[:, 0]
            observation = recording.steps("player", "observation").to_numpy()
            expected = _activations(player, observation, "hidden_1")[:, agent]
            assert np.allclose(site, expected, atol=1e-5)


def test_a_matchs_recording_is_explained_edited_and_opened_like_any_other(league: RunLeague) -> None:
    result = mnb.match(league["main_0"], league["main_exploiter_0"], episodes=24, progress=False)
    path = result.recordings["player_1"].path
    opened = mnb.Recording.open(path)
    attribution = mnb.attribute(opened, group="player", to="action", method="saliency", progress=False)
    assert "player_0" in attribution.agents and np.isfinite(attribution.values).all()
    microscope = mnb.microscope(opened)
    assert list(microscope.view.agents) == ["player_0", "player_1"]
    weights = mnb.Ablate("player/actor/player_1/head", units=[0, 1])
    effect = mnb.intervene(result.seatings["player_1"], weights, episodes=4, progress=False)
    assert "4 episodes" in effect.verdict
    decoding = mnb.decode(opened, site="player/actor/player_1/hidden_1", label="t", n_shuffles=2, progress=False)
    assert "player_1/hidden_1" in decoding.verdict and "untrained network" in decoding.verdict


def test_recordings_of_a_populations_members_know_their_policies(tmp_path: Path) -> None:
    evolution = ("evolution=tournament", "evolution.population=2", "evolution.fitness=nash")
    run = _trained(tmp_path / "run", RPS, "env.steps=2", *evolution, "evolution.generation_frames=64", "frames=128")
    first, second = run.population.members
    options = {"group": "player", "to": "action", "method": "saliency", "progress": False}

    def values(recording: mnb.Recording, **policies: object) -> np.ndarray:
        return np.asarray(mnb.attribute(recording, **options, **policies).values)

    alone = mnb.record(second, episodes=4, progress=False)
    assert values(alone) == pytest.approx(values(alone, policies=second.policies()), nan_ok=True)
    assert mnb.replay(alone, 0).largest < 1e-6
    game = mnb.match(first, second, episodes=2, sides="player_1", progress=False)
    both = mnb.Recording.open(game.recording.path)
    expected = values(both, policies=game.seatings["player_1"].policies())
    assert values(both) == pytest.approx(expected, nan_ok=True)


def test_of_two_players_the_edited_ones_own_return_is_reported(league: RunLeague) -> None:
    """Their mean is 0 in a game of zero sum, whatever an edit does."""
    seating = mnb.match(league["league_exploiter_1"], league["main_0"], episodes=2, progress=False).seatings["player_0"]
    site = "player/actor/player_1/head"
    always_paper = Raise(site, 30.0, Direction(site, "player_1", (0.0, 1.0, 0.0), mean=0.0, scale=1.0), None)
    result = mnb.intervene(seating, always_paper, episodes=8, explore=True, progress=False)
    effect = result.of("return", "player_1")
    assert effect.difference == -result.of("return", "player_0").difference != 0
    shown = f"the return of player_1 is not shown to change: {effect.difference:+.3g} ["
    assert shown in result.verdict and "return of player " not in result.verdict
    (row,) = result._repr_table().query("outcome == 'return'").itertuples()
    assert row.of == "player_1" and row.without == effect.before
    units = mnb.causal_map(seating, mnb.Ablate(site, 9.0), episodes=8, explore=True, progress=False)
    assert "the return of player_1 (" in units.verdict and "return of player_1" in units._repr_table()
    assert mnb.plots.causal_map(units).get_title(loc="left").endswith("return of player_1")


def test_of_players_that_are_all_edited_each_return_is_reported(league: RunLeague) -> None:
    result = mnb.intervene(
        league["main_0"],
        mnb.Ablate("player/actor/head", 9.0, units=(2,)),
        episodes=8,
        explore=True,
        progress=False,
    )
    assert list(result._repr_table().query("outcome == 'return'")["of"]) == ["player_0", "player_1"]


def test_networks_of_other_kinds_meet(league: RunLeague, recurrent: mnb.Run) -> None:
    """A recurrent and a feed-forward player; the recurrent one carries its state through the episode."""
    result = mnb.match(recurrent, league["main_0"], episodes=6, progress=False)
    recording = result.recordings["player_1"]
    policy = result.seatings["player_1"].policies()["player"]
    assert isinstance(policy, SeatedPolicy) and recording["player/actor/player_1/gru"].shape[-1] == 12
    alone = recurrent.policies()["player"]
    steps = recording.steps("player", "observation").sel(episode=0)
    states, state = recording["player/actor/player_1/gru"].sel(episode=0), None
    for observation, recorded in zip(torch.as_tensor(np.asarray(steps)), np.asarray(states)):
        _, state = alone.logits(observation[None], recurrent=state)
        assert state is not None and np.allclose(recorded[0], state[0, 1, 0].detach(), atol=1e-5)


@pytest.mark.parametrize("algorithm", [("algorithm=ippo",), ("algorithm=isac", "algorithm.learning_starts=0")])
def test_a_trained_player_meets_a_random_one(algorithm: tuple[str, ...], tmp_path: Path) -> None:
    """The random player's logits are zeros, as where it acts alone; it has neither sites nor values."""
    games = (RPS, "env.steps=2", "n_envs=4", "rollout_steps=16", "frames=64")
    trained, random = (
        mnb.train(mnb.Experiment.compose(*games, *options), tmp_path / options[0], progress=False)
        for options in (algorithm, ("algorithm=random",))
    )
    for players, seat in (((trained, random), 0), ((random, trained), 1)):
        recording = mnb.match(*players, episodes=4, progress=False).recordings["player_0"]
        logits = recording.steps("player", "logits").to_numpy()
        assert not logits[:, 1 - seat].any() and logits[:, seat].any()
        sites = [f"player/actor/player_{seat}/{layer}" for layer in ("hidden_1", "hidden_2", "head")]
        assert list(recording.sites) == sites


def test_sides_are_played_by_their_own_players(tmp_path: Path) -> None:
    tag = _trained(tmp_path / "tag", "env=mpe/simple_tag", "league=alphastar", "frames=64").league
    chaser, runner = tag["adversary_main_0"], tag["agent_main_0"]
    result = mnb.match(runner, chaser, episodes=3, win_threshold={"adversary": 0}, progress=False)
    assert list(result.recordings) == ["agent"]
    caught = result.recording.episodes[["adversary_0", "adversary_1", "adversary_2"]].mean(axis=1).to_numpy() > 0
    assert result.episodes["score"].tolist() == [0.0 if each else 1.0 for each in caught]
    with pytest.raises(ConfigError, match=r"no side 'adversaries' of .*simple_tag in win_threshold; did you mean"):
        mnb.match(runner, chaser, episodes=3, win_threshold={"adversaries": 0}, progress=False)
    with pytest.raises(ConfigError, match=r"adversary_main_0 plays only adversary .* only adversary, .* for agent"):
        mnb.match(chaser, tag["adversary_main_exploiter_0"], progress=False)


def test_players_of_their_own_sides_in_a_game_of_three(tmp_path: Path) -> None:
    run = _trained(tmp_path / "crypto", "env=mpe/simple_crypto", "league=self_play", "frames=96")
    eve = run.league["eve_main_0"]
    with pytest.raises(ConfigError, match=r"eve_main_0 plays only eve .* neither would act for alice\. Give a run"):
        mnb.match(eve, run.league["bob_main_0"], progress=False)
    assert list(mnb.match(eve, run, episodes=1, progress=False).recordings) == ["eve"]
    assert list(mnb.match(run, eve, episodes=1, progress=False).recordings) == ["all-but-eve"]


def test_matches_that_cannot_be_played_are_errors(league: RunLeague, tmp_path: Path) -> None:
    spread = _trained(tmp_path / "spread", "env=mpe/simple_spread", "frames=64")
    a, b = league["main_0"], league["main_0@0"]
    with pytest.raises(ConfigError, match="groups"):
        mnb.match(a, spread, progress=False)
    with pytest.raises(ConfigError, match="episodes must be 2 or more, one for each side"):
        mnb.match(a, b, episodes=1, progress=False)
    with pytest.raises(ConfigError, match=r"episodes .* whole number; got 2\.5"):
        mnb.match(a, b, episodes=2.5, progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"win_threshold\.player_1 .* number; got 'x'"):
        mnb.match(a, b, win_threshold={"player_1": "x"}, progress=False)  # type: ignore[dict-item]
    for checkpoints in ("last", ("last",)):
        with pytest.raises(ConfigError, match=r"checkpoints must be two, of a and of b, .*; got .*last"):
            mnb.match(a, b, checkpoints=checkpoints, progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no side 'north' of main_0 in this match"):
        mnb.match(a, b, sides="north", progress=False)
    with pytest.raises(ConfigError, match=r"mpe/simple_spread .*cooperative\. Say who wins with win_threshold={s"):
        mnb.match(spread, spread, episodes=96, progress=False)
    says = mnb.match(spread, spread, episodes=96, win_threshold={"agent_0": -1e9}, progress=False)
    assert says.table()["win_rate"].tolist() == [1, 0, 0, 1, 0, 1]
    assert says.to_json()["win_threshold"] == {"agent_0": -1e9}
    with pytest.raises(ConfigError, match=r"sides=\[\] names no side; valid: player_0, player_1"):
        mnb.match(a, b, episodes=2, sides=[], progress=False)
    for name in ("../b", "..", "a/b", ""):
        with pytest.raises(ConfigError, match="is not the name of a folder in matches"):
            mnb.match(a, b, episodes=2, name=name, progress=False)
    mnb.match(a, b, episodes=2, name="twice", progress=False)
    with pytest.raises(RecordingError, match="name"):
        mnb.match(a, b, episodes=4, name="twice", progress=False)
    for sides in (None, "player_1"):  # one side alone would be free, but match.json is of both
        mnb.match(a, b, episodes=2, name="mine", sides="player_0", progress=False)
        with pytest.raises(RecordingError, match="other weights than the match of main_0"):
            mnb.match(a, league["main_exploiter_0"], episodes=2, name="mine", sides=sides, progress=False)
        players = read_json(a.path / "matches/mine/match.json")["players"]
        assert [row["player"] for row in players] == ["main_0", "main_0@0"]


def test_wilsons_interval_of_eight_of_ten() -> None:
    """Newcombe 1998 (10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E): 81 of 263 is .2553 to .3662."""
    interval = wilson_interval(81 / 263, 263)
    assert (interval.low, interval.high) == (pytest.approx(0.2553, abs=5e-5), pytest.approx(0.3662, abs=5e-5))
    for n in range(1, 100):  # of n failures, z^2 / (n + z^2), with z = 1.96
        none, every = wilson_interval(0.0, n), wilson_interval(1.0, n)
        assert (none.low, every.high) == (0.0, 1.0)
        assert none.high == pytest.approx(3.8415 / (n + 3.8415), rel=1e-4) == 1 - every.low
