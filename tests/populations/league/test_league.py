"""Payoff tables, draws and decisions of a league, without training."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.populations.append_only import cut_lines
from marlnb.populations.builders.alphastar import AlphaStarConfig, MainExploiterOptions, MainOptions
from marlnb.populations.builders.fictitious import DeltaUniformConfig
from marlnb.populations.builders.pfsp import PFSPConfig
from marlnb.populations.builders.psro import PSROConfig
from marlnb.populations.builders.self_play import SelfPlayConfig
from marlnb.populations.counter_draws import generator
from marlnb.populations.league.draws import draw_match, review
from marlnb.populations.league.matches import (
    Match,
    append_matches,
    check_competitive,
    count_by_kind,
    even_scores,
    from_text,
    outcomes_of,
    read_matches,
    scores_of,
    to_row,
    to_text,
)
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.pfsp import pfsp_weights
from marlnb.populations.league.player_log import PlayerEvent, append_events, players_after, read_events
from marlnb.populations.league.players import NewPlayer, Player, Side, snapshot_id
from marlnb.populations.league.rating_history import ratings_over_rounds
from marlnb.populations.league.resets import Resets
from marlnb.populations.league.roster import check_league, first_players, first_state, planned_league, sides_of
from marlnb.populations.league.state import Decision, LeagueState
from marlnb.populations.league.summary import summarise
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

LEAGUE_EXPLOITERS = ("league_exploiter_0", "league_exploiter_1")
SEATS = (Side("a", ("a",)), Side("b", ("b",)))


def group(name: str, *agents: str) -> GroupSpec:
    return GroupSpec(name, agents, ObservationSpec((3,)), ActionSpec("discrete", (2,)))


SYMMETRIC = EnvSpec("toy", (group("player", "a", "b"),))
TAG = EnvSpec("tag", (group("adversary", "adversary_0", "adversary_1"), group("agent", "agent_0")))


def played(a: str, b: str, score: float, number: int = 0, round: int = 0) -> Match:
    outcome = (score, 1 - score)
    return Match(number, a, "pfsp", {"a": a, "b": b}, outcome, outcome, 5, round=round)


def test_pfsp_by_hand() -> None:
    x = np.array([0.1, 0.5, 0.9, 1.0])
    assert pfsp_weights(x, "hard", 2) == pytest.approx([0.7570, 0.2336, 0.0093, 0], abs=5e-5)
    assert pfsp_weights(x, "var") == pytest.approx([0.2093, 0.5814, 0.2093, 0], abs=5e-5)
    assert pfsp_weights(x, "capped") == pytest.approx([0.4545, 0.4545, 0.0909, 0], abs=5e-5)
    assert pfsp_weights(np.ones(4), "hard") == pytest.approx([0.25] * 4)


def test_a_table_by_hand_in_parts_and_after_a_reset() -> None:
    matches = [
        played("x", "y", 1),
        played("y", "x", 1),
        played("x", "y", 0.5),
        played("x", "x", 0.5),
        played("x", "z", 1),
    ]
    table = PayoffTable.from_matches(matches, decay=0.5)
    assert table.win_rate("x", "y") == pytest.approx((0.25 * 1 + 0.5 * 0 + 0.5) / 1.75)
    assert table.win_rate("x", "y") + table.win_rate("y", "x") == pytest.approx(1)
    assert table.win_rate("y", "z") == 0.5 and table.win_rate("x", "x") == 0.5
    assert table.counts(["x"], ["x", "y", "z"]).tolist() == [[1, 3, 1]]
    with pytest.raises(ConfigError, match=r"no player 'w' in the payoff table. Valid: x, y, z"):
        table.win_rate("x", "w")
    parts = PayoffTable.empty(decay=0.5).add(matches[:2]).add(matches[2:])
    assert np.array_equal(parts.win_rates, table.win_rates) and parts.players == table.players
    later = [played("x", "y", 1, round=1)]
    forgotten = table.forget("y").add(later)
    again = PayoffTable.from_matches(
        [*matches, *later], decay=0.5, resets=Resets({"y": PlayerEvent("reset", "y", round=0)})
    )
    for name in ("x", "y", "z"):
        assert forgotten.rates(name, ["x", "y", "z"]) == pytest.approx(again.rates(name, ["x", "y", "z"]))


def test_a_reset_forgets_the_pairs_of_one_player_only() -> None:
    """In a match of three sides the other two keep their result: B beat C in each of five matches."""
    matches = [
        Match(k, "A", "pfsp", {"a": "A", "b": "B", "c": "C"}, (0.0, 1.0, 0.0), (0, 1, 0), 5, (0, 0, 0))
        for k in range(5)
    ]
    live = PayoffTable.empty(decay=1.0).add(matches).forget("A")
    resumed = PayoffTable.from_matches(matches, decay=1.0, resets=Resets({"A": PlayerEvent("reset", "A", round=0)}))
    for table in (live, resumed):
        assert table.win_rate("B", "C") == 1 and table.counts("A", "BC").tolist() == [[0, 0]]
        assert table.counts("B", "C").tolist() == [[5]]
    assert np.array_equal(live.games, resumed.games) and live.players == resumed.players


def test_trainings_of_single_players_compare_frames_not_rounds() -> None:
    """The reset is of another training's round 99, in which its weights had learned from 1,600 frames."""
    resets = Resets({"y": PlayerEvent("reset", "y", round=99, frames=1600)}, by_frames=True)
    matches = [replace(played("x", "y", 1, round=2), versions=(80, version)) for version in (1590, 1600, 1610)]
    assert [resets.valid(match) for match in matches] == [(True, False), (True, True), (True, True)]
    assert PayoffTable.from_matches(matches, resets=resets).counts("x", "y").tolist() == [[2]]
    (last,) = ratings_over_rounds(matches, list(resets.last.values()), 1.0, by_frames=True)
    assert last.matches == 3 and last.elo["x"] > last.elo["y"]


def test_a_reset_in_a_round_without_matches_changes_the_ratings() -> None:
    matches = [*(played("a", "b", 1, round=0) for _ in range(10)), *(played("b", "c", 1, round=4) for _ in range(3))]
    events = [PlayerEvent("reset", "a", round=2)]
    before, after = ratings_over_rounds(matches, events, 1.0)
    assert set(before.elo) == {"a", "b"} and set(after.elo) == {"b", "c"}


def test_a_reset_holds_from_the_next_round_on() -> None:
    """x beats y ten times in round 0, after which y is reset; then y beats x, the one result that counts."""
    matches = [*(played("x", "y", 1, round=0) for _ in range(10)), played("x", "y", 0, round=1)]
    before, after = ratings_over_rounds(matches, [PlayerEvent("reset", "y", round=0)], 1.0)
    assert before.elo["x"] > before.elo["y"]
    # with a draw against 0, y at r has won 1.5 of s(2r) + s(r) = 1.5 games, where s(r) = 1 / (1 + exp(-r / 400))
    assert after.elo == pytest.approx({"x": -302.5, "y": 302.5}, abs=0.1)


def test_scores_and_those_of_equal_players_by_hand() -> None:
    """Of two sides an equal player has 1/2; of three with one winner 1/3, and 2/3 with two of them."""
    two, three = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.5] * 3])
    assert scores_of(two, [0]).tolist() == [1, 0.5, 0] and even_scores(two, [1]).tolist() == [0.5] * 3
    assert scores_of(three, [0]).tolist() == [0, 0.5, 0.5] and scores_of(three, [1, 2]).tolist() == [1, 0.5, 0.5]
    assert even_scores(three, [0]) == pytest.approx([1 / 3, 1 / 3, 1 / 2])
    assert even_scores(three, [1, 2]) == pytest.approx([2 / 3, 2 / 3, 1 / 2])


def test_of_three_sides_the_first_wins_and_two_seats_of_a_player_are_one_game() -> None:
    def three(a: str, b: str, c: str, outcomes: tuple[float, ...]) -> PayoffTable:
        return PayoffTable.from_matches([Match(0, a, "pfsp", {"a": a, "b": b, "c": c}, outcomes, outcomes, 5)])

    tied = three("A", "B", "C", (0.5, 0.5, 0.0))
    assert (tied.win_rate("A", "C"), tied.win_rate("A", "B")) == (1.0, 0.5)
    assert three("A", "B", "A", (1.0, 0.0, 0.0)).counts("A", "B").tolist() == [[1]]


def test_who_won() -> None:
    assert outcomes_of("ab", (1, -1)) == (1, 0) and outcomes_of("ab", (2, 2)) == (0.5, 0.5)
    assert outcomes_of("abc", (2, 2, 1)) == (0.5, 0.5, 0)
    assert outcomes_of(("adversary", "agent"), (10, -10), {"adversary": 0}) == (1, 0)
    assert outcomes_of(("adversary", "agent"), (0, 5), {"adversary": 0}) == (0, 1)


def test_files_hold_the_record(tmp_path: Path) -> None:
    matches = [played("x", "y", 1, number=k) for k in range(4)]
    append_matches(tmp_path, matches[:3])
    append_matches(tmp_path, matches[3:])
    assert read_matches(tmp_path) == matches and json.dumps(to_row(matches[0]))
    cut_lines(tmp_path / "matches.jsonl", 2)
    assert read_matches(tmp_path) == matches[:2] and count_by_kind(matches) == {"x": {"pfsp": 4}}
    events = [
        PlayerEvent("added", "m", role="main"),
        PlayerEvent("snapshot", "m@0", parent="m", role="main", checkpoint="f00", frames=7),
        PlayerEvent("added", "e", role="exploiter"),
        PlayerEvent("reset", "e", round=3),
        PlayerEvent("frozen", "m", round=4, frames=9, checkpoint="ba4"),
        PlayerEvent("retired", "m@0", round=5),
    ]
    append_events(tmp_path, events)
    assert read_events(tmp_path) == events and Resets.of(events).last == {"e": events[3]}
    assert players_after(events) == {
        "m": Player("m", "main", learning=False, born_at_frames=9, checkpoint="ba4"),
        "e": Player("e", "exploiter"),
    }


def test_a_checkpoint_holds_matches_as_text() -> None:
    matches = [played("x", "y", 1.0, number) for number in range(2)]
    assert from_text(to_text(matches)) == matches


def test_a_summary_by_hand() -> None:
    events = [
        PlayerEvent("added", "m", role="main"),
        PlayerEvent("snapshot", "m@0", parent="m", role="main", checkpoint="f00"),
        PlayerEvent("snapshot", "m@1", parent="m", role="main", checkpoint="f01", frames=5),
        PlayerEvent("added", "<b>", role="exploiter"),
        PlayerEvent("added", "old", role="exploiter"),
        PlayerEvent("retired", "old"),
    ]
    matches = [played("m", "m@0", 1), played("m", "m@0", 1), played("m", "m@1", 0), played("m", "<b>", 0.5, round=2)]
    payoff = PayoffTable.from_matches(matches, tuple(players_after(events)), decay=1.0)
    summary = summarise("League toy", events, matches, payoff, {"m": 70})
    shown = summary.to_json()
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["title"] == "League toy: 3 players, 2 snapshots, 4 matches in 3 rounds"
    without = summarise("League toy", events, [], PayoffTable.empty(tuple(players_after(events))), {})
    assert without.title == "League toy: 3 players, 2 snapshots, no match has ended yet"
    assert [
        (row["player"], row["state"], row["frames"], row["snapshots"], row["games"]) for row in shown["players"]
    ] == [
        ("m", "learning", 70, 2, 4),
        ("<b>", "learning", 0, 0, 1),
        ("old", "retired", 0, 0, 0),
    ]
    assert shown["matches"] == {"m": {"pfsp": 4}}
    assert shown["win_rates"]["m"] == {"m": None, "<b>": 0.5, "m@*": pytest.approx(2 / 3)}
    assert shown["win_rates"]["<b>"] == {"m": 0.5, "<b>": None, "m@*": None}
    assert repr(summary).splitlines()[:2] == [summary.title, summary.ratings.verdict]
    assert "#1@*" in repr(summary) and "<b>" in repr(summary) and "<td><b>" not in summary._repr_html_()
    empty = summarise("League toy", [], [], PayoffTable.empty(), {})
    assert "no two players have met" in repr(empty) and empty.to_json()["win_rates"] == {}


def test_draws_are_functions_of_their_number() -> None:
    config = AlphaStarConfig()
    league = check_league(config, SYMMETRIC)
    draws = [draw_match(config, league, "main_0", n, seed=3) for n in range(50)]
    assert draws == [draw_match(config, league, "main_0", n, seed=3) for n in reversed(range(50))][::-1]
    assert draws != [draw_match(config, league, "main_0", n, seed=4) for n in range(50)]
    seats = Counter(
        next(side for side, name in pair.players.items() if name == "league_exploiter_0")
        for pair in (draw_match(config, league, "league_exploiter_0", n, 0) for n in range(2000))
    )
    assert chisquare(list(seats.values())).pvalue > 0.001


def test_a_draw_is_philox_with_this_key_and_counter() -> None:
    digest = hashlib.sha256(b"3/match/main_0").digest()
    key = [int.from_bytes(digest[k : k + 8], "little") for k in (0, 8)]
    philox = np.random.Philox(key=np.array(key, np.uint64), counter=np.array([0, 0, 0, 12], np.uint64))
    expected = np.random.Generator(philox)
    assert generator(3, "match", "main_0", 12).random(9).tolist() == expected.random(9).tolist()


def test_another_process_draws_the_same() -> None:
    code = (
        "from tests.populations.league.test_league import *; config = AlphaStarConfig();"
        "league = league_of(config, lost_to('main_0', 'main_0@0', 7));"
        "print([draw_match(config, league, 'league_exploiter_1', n, 5) for n in reversed(range(40))])"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    printed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    config = AlphaStarConfig()
    league = league_of(config, lost_to("main_0", "main_0@0", 7))
    assert printed == f"{[draw_match(config, league, 'league_exploiter_1', n, 5) for n in reversed(range(40))]}\n"


def league_of(config: LeagueConfig, matches: list[Match], extra: Sequence[Player] = (), **frames: int) -> LeagueState:
    state = first_state(config, SEATS, first_players(config, SEATS, True))
    players = {**state.players, **{player.id: player for player in extra}}
    return replace(state, players=players, payoff=PayoffTable.from_matches(matches), frames={**state.frames, **frames})


def kinds(config: LeagueConfig, league: LeagueState, player: str, n: int = 4000) -> Counter[str]:
    return Counter(draw_match(config, league, player, k, seed=0).kind for k in range(n))


def lost_to(player: str, other: str, wins: int, games: int = 20) -> list[Match]:
    return [played(player, other, float(k < wins), k) for k in range(games)]


def test_the_papers_shares() -> None:
    config = AlphaStarConfig()
    exploiter = Player("main_exploiter_0@0", "main_exploiter", learning=False, parent="main_exploiter_0")
    league = league_of(config, lost_to("main_0", "main_exploiter_0@0", 2), [exploiter])
    counts = kinds(config, league, "main_0")
    assert chisquare([counts["self_play"], counts["pfsp"], counts["forgotten"]], [1400, 2000, 600]).pvalue > 0.001
    without = kinds(config, league_of(config, []), "main_0")
    assert chisquare([without["self_play"], without["pfsp"]], [2000, 2000]).pvalue > 0.001
    half = kinds(config, league_of(config, []), "main_exploiter_0")
    assert chisquare([half["main"], half["curriculum"]]).pvalue > 0.001
    assert set(kinds(config, league_of(config, lost_to("main_exploiter_0", "main_0", 2)), "main_exploiter_0", 200)) == {
        "curriculum"
    }
    assert set(kinds(config, league, "league_exploiter_0", 200)) == {"pfsp"}
    one = league_of(config, [played("main_exploiter_0", "main_0", 0)])
    assert set(kinds(config, one, "main_exploiter_0", 200)) == {"main", "curriculum"}


def test_a_player_is_forgotten_only_after_min_games() -> None:
    for min_games, is_forgotten in ((5, False), (1, True)):
        config = AlphaStarConfig(min_games=min_games)
        league = league_of(config, [played("main_0", "main_0@0", 0)])
        assert ("forgotten" in kinds(config, league, "main_0", 200)) == is_forgotten


@pytest.mark.parametrize("config", [AlphaStarConfig(), PFSPConfig()])
def test_an_opponent_is_met_again_until_its_win_rate_is_known(config: LeagueConfig) -> None:
    newer = Player("main_0@1", "main", learning=False, parent="main_0")
    known = lost_to("main_0", "main_0@1", 10)

    def meetings(games: int) -> Counter[str]:
        """With two past players: the one beaten in half of 20 games, and the other in all of these."""
        league = league_of(config, [*known, *lost_to("main_0", "main_0@0", games, games)], [newer])
        drawn = (draw_match(config, league, "main_0", number, seed=0) for number in range(1000))
        return Counter(name for pair in drawn if pair.kind == "pfsp" for name in pair.players.values() if "@" in name)

    few = meetings(7)
    assert chisquare([few["main_0@0"], few["main_0@1"]]).pvalue > 0.001
    assert set(meetings(8)) == {"main_0@1"}


def test_gates_wait_for_games_and_snapshots_precede_resets() -> None:
    config = AlphaStarConfig()
    frames = {"main_exploiter_0": 5_000}
    few = league_of(config, lost_to("main_exploiter_0", "main_0", 7, 7), **frames)
    assert review(config, few, "main_exploiter_0", 0) == ()
    beaten = league_of(config, lost_to("main_exploiter_0", "main_0", 20), **frames)
    assert [d.action for d in review(config, beaten, "main_exploiter_0", 0)] == ["snapshot", "reset"]
    for wins, opens in ((7, False), (8, True)):  # of ten games, at a gate of 0.7
        table = PayoffTable.from_matches(lost_to("main_exploiter_0", "main_0", wins, 10), decay=1.0)
        assert bool(review(config, replace(few, payoff=table), "main_exploiter_0", 0)) == opens
    early = league_of(config, lost_to("main_exploiter_0", "main_0", 20), main_exploiter_0=100)
    assert review(config, early, "main_exploiter_0", 0) == ()
    due = league_of(config, [], main_0=10_000, league_exploiter_0=10_000)
    assert [d.action for d in review(config, due, "main_0", 0)] == ["snapshot"]
    resets = sum(len(review(config, replace(due, round=r), "league_exploiter_0", 0)) == 2 for r in range(2000))
    assert abs(resets / 2000 - 0.25) < 0.04


def test_exploiters_of_a_short_training_learn_before_they_are_reset() -> None:
    turn = 512  # a hundredth of each player's 20,000 frames is less than a turn

    def actions(player: str, turns: int, **roles: Any) -> list[str]:
        config = AlphaStarConfig(**roles)
        league = planned_league(config, SYMMETRIC, 80_000, turn)
        league = replace(league, frames={**league.frames, player: turns * turn})
        return [decision.action for decision in review(config, league, player, seed=0)]

    assert actions("main_0", 1) == ["snapshot"]
    assert actions("main_exploiter_0", 19) == [] and actions("main_exploiter_0", 20) == ["snapshot", "reset"]
    assert actions("league_exploiter_0", 9) == [] and actions("league_exploiter_0", 10)[0] == "snapshot"
    given = MainExploiterOptions(snapshot_frames=3 * turn)
    assert actions("main_exploiter_0", 2, main_exploiter=given) == []
    assert actions("main_exploiter_0", 3, main_exploiter=given) == ["snapshot", "reset"]


def test_a_planted_league_is_recovered_within_binomial_error() -> None:
    rng, n = np.random.default_rng(0), 20
    angle = rng.uniform(0, 2 * np.pi, n)
    strength = rng.normal(size=n)
    logits = strength[:, None] - strength[None] + np.sin(angle[:, None] - angle[None])
    true = 1 / (1 + np.exp(-logits))
    ids = [f"p{k}" for k in range(n)]
    matches = [
        played(ids[i], ids[j], float(rng.random() < true[i, j])) for i in range(n) for j in range(i) for _ in range(60)
    ]
    table = PayoffTable.from_matches(matches, ids, decay=1.0)
    i, j = np.tril_indices(n, -1)
    z = (table.win_rates[i, j] - true[i, j]) / np.sqrt(true[i, j] * (1 - true[i, j]) / 60)
    assert 0.8 < z.std() < 1.2 and abs(z.mean()) < 0.25


def test_delta_uniform_leaves_out_the_oldest() -> None:
    past = tuple(Player(snapshot_id("main_0", k), "main", learning=False, parent="main_0") for k in range(6))
    for delta, weights in ((0.0, [1] * 6), (0.5, [0, 0, 0, 1, 1, 1]), (1.0, [0] * 5 + [1])):
        assert DeltaUniformConfig(delta=delta).weights(past[0], past, None).tolist() == weights  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solver", "expected"),
    [("nash", [0, 0, 1]), ("uniform", [1 / 3] * 3), ("alpha_rank", [0, 0, 1]), ("prd", [0, 0, 1])],
)
def test_psro_solves_the_meta_game(solver: Any, expected: list[float]) -> None:
    past = [Player(f"oracle_0@{k}", "oracle", learning=False, parent="oracle_0") for k in range(3)]
    matches = [m for a, b in ((1, 0), (2, 0), (2, 1)) for m in lost_to(past[a].id, past[b].id, 20)]
    config = PSROConfig(solver=solver)
    tolerance = 0.02 if solver == "prd" else 1e-3  # it approaches the solution in finitely many steps
    assert config.meta_strategy(league_of(config, matches, past), "") == pytest.approx(expected, abs=tolerance)


def test_evaluation_matches_fill_empty_pairs() -> None:
    past = [Player(f"oracle_0@{k}", "oracle", learning=False, parent="oracle_0") for k in range(3)]
    config = PSROConfig(evaluation_share=0.9)
    names = ["oracle_0", *(p.id for p in past)]
    matches = [
        m for i, a in enumerate(names) for b in names[:i] for m in lost_to(a, b, 1, 1) if {a, b} != {names[1], names[3]}
    ]
    league = league_of(config, matches, past)
    drawn = [draw_match(config, league, "oracle_0", n, 0) for n in range(100)]
    evaluated = {frozenset(p.players.values()) for p in drawn if p.kind == "evaluation"}
    assert evaluated == {frozenset({names[1], names[3]})}


@pytest.mark.parametrize("name", LEAGUES.names())
def test_every_league_draws_in_both_kinds_of_games(name: str) -> None:
    for spec in (SYMMETRIC, TAG):
        config = LEAGUES.get(name)()
        league = check_league(config, spec)
        for player in league.learning:
            pairing = draw_match(config, league, player.id, 0, 0)
            assert list(pairing.players) == [side.name for side in league.sides]
            for side, opponent in pairing.players.items():
                assert league.players[opponent].side in ("", side)


@pytest.mark.parametrize(
    ("override", "frames", "message"),
    [
        ("league.main_exploiter.gate=1.0", 10**6, r"gate=1 can never be reached"),
        ("league.players.league_exploiter_1.gate=1.5", 10**6, r"league_exploiter_1: gate=1\.5 can never be reached"),
        ("league.min_games=500 league.main_exploiter.reset=0.9", 499, "'main_exploiter_0' can never.*at most 499 in"),
        ("league.min_games=81 league.evaluation_share=0.1", 900, "at most 80 between two resets"),
        ("league.main_exploiter.snapshot_frames=7", 10**6, "at most 7 between two resets"),
        ("league.min_games=21", 900, "'main_exploiter_0' can never.*at most 20 between"),  # by default 20 updates
        ("league.min_games=7 league.main.count=3", 900, "each of 3 opponents, but has at most 20 between two resets"),
        ("league.main.count=2 league.main_exploiter.count=0 league.min_games=51", 101, "each of 2.*at most 101 in"),
        ("league.main_exploiter.curriculum=1", 10**6, "curriculum=1 it meets snapshots alone, never the current mains"),
        ("league.main_exploiter.curriculum_below=0.6", 10**6, "it meets snapshots alone.*counts as 0.5 before"),
    ],
)
def test_a_gate_that_can_never_be_reached(override: str, frames: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment = Experiment.compose("env=matrix/climbing", "algorithm=ippo", "league=alphastar", *override.split())
        assert experiment.league is not None
        check_league(experiment.league, SYMMETRIC, frames)


def test_gates_that_can_be_reached() -> None:
    check_league(AlphaStarConfig(min_games=500, main_exploiter=MainExploiterOptions(reset=0.9)), SYMMETRIC, 500)
    check_league(AlphaStarConfig(min_games=80, evaluation_share=0.1), SYMMETRIC, 900)
    check_league(AlphaStarConfig(min_games=20), SYMMETRIC, 900)
    check_league(AlphaStarConfig(min_games=128), SYMMETRIC, 100, turn_frames=64)  # the second turn ends at 128 frames
    for never_but_evaluated in ({"curriculum": 1.0}, {"curriculum_below": 1.0}):
        options = MainExploiterOptions(**never_but_evaluated)  # type: ignore[arg-type]
        check_league(AlphaStarConfig(main_exploiter=options, evaluation_share=0.1), SYMMETRIC, 10**6)
    mains = AlphaStarConfig(main_exploiter=MainExploiterOptions(curriculum=0.99, curriculum_below=0.5))
    assert "main" in kinds(mains, check_league(mains, SYMMETRIC, 10**6), "main_exploiter_0", 2000)
    closed = {"gate": None}
    config = AlphaStarConfig(players=dict.fromkeys(("main_exploiter_0", *LEAGUE_EXPLOITERS), closed), min_games=500)
    check_league(config, SYMMETRIC, 100)


def test_players_have_the_names_that_a_user_gives_them() -> None:
    main = MainOptions(count=2, names=("ana", "ben"))
    config = AlphaStarConfig(main=main, players={"ben": {"self_play": 1.0, "forgotten": 0.0}})
    league = check_league(config, SYMMETRIC)
    assert list(league.players) == ["ana", "ana@0", "ben", "ben@0", "main_exploiter_0", *LEAGUE_EXPLOITERS]
    kinds = {draw_match(config, league, "ben", number, seed=0).kind for number in range(50)}
    assert kinds == {"self_play"}
    both = [player.id for player in check_league(SelfPlayConfig(names=("ana",)), TAG).learning]
    assert both == ["adversary_ana", "agent_ana"]
    with pytest.raises(ConfigError, match="one for each of its players, 1; got ana, ben"):
        check_league(AlphaStarConfig(main=MainOptions(names=("ana", "ben"))), SYMMETRIC)
    for name in ("ana@0", "a/b", "-ana", ""):
        with pytest.raises(ConfigError, match=rf"letters, digits, _ and - alone.*got '{name}'"):
            check_league(AlphaStarConfig(main=MainOptions(names=(name,))), SYMMETRIC)


def test_with_a_margin_the_lead_counts_and_win_rates_are_mean_returns() -> None:
    assert outcomes_of(["a", "b"], (50.0, -50.0), win_margin=100.0) == (1.0, 0.0)
    assert outcomes_of(["a", "b"], (-5.0, 5.0), win_margin=100.0) == (0.45, 0.55)
    assert outcomes_of(["a", "b"], (400.0, 0.0), win_margin=100.0) == (1.0, 0.0)
    games = [played("x", "y", 0.45)] * 3 + [played("x", "y", 1.0)]
    assert PayoffTable.from_matches(games, decay=1.0).win_rate("x", "y") == pytest.approx((3 * 0.45 + 1.0) / 4)
    with pytest.raises(ConfigError, match=r"win_margin compares the returns of two sides.*2 sides, win_threshold"):
        sides_of(TAG, AlphaStarConfig(win_margin=1.0, win_threshold={"adversary": 0.0}))


def test_errors() -> None:
    alone = EnvSpec("alone", (group("player", "a"),))
    with pytest.raises(ConfigError, match="needs two sides or more"):
        check_league(AlphaStarConfig(), alone)
    with pytest.raises(ConfigError, match=r"main_exploiter_0.*there is no opponent"):
        check_league(AlphaStarConfig(main=MainOptions(count=0)), SYMMETRIC)
    with pytest.raises(ConfigError, match="at most 3"):
        check_league(AlphaStarConfig(max_players=3), SYMMETRIC)
    with pytest.raises(ConfigError, match=r"no player 'main_7' in league\.players"):
        check_league(AlphaStarConfig(players={"main_7": {}}), SYMMETRIC)
    with pytest.raises(ConfigError, match="no side 'wolf' of tag"):
        sides_of(TAG, AlphaStarConfig(win_threshold={"wolf": 0.0}))
    with pytest.raises(ConfigError, match=r"in spread all sides .* looks cooperative\. Give it up$"):
        check_competitive([replace(played("x", "y", 0.5), returns=(3.0, 3.0))] * 32, "spread", remedy="Give it up")
    draws = [replace(played("x", "y", 0.5), returns=(0.0, 0.0))] * 32
    assert not check_competitive(draws, "draws", remedy="Give it up")


def deciding(decision: Decision, **options: Any) -> LeagueConfig:
    """A league that decides this for every player."""

    class Config(AlphaStarConfig):
        def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
            return (decision,)

    return Config(**options)


def test_a_training_of_one_player_decides_about_this_player_alone() -> None:
    league = check_league(AlphaStarConfig(), SYMMETRIC)
    snapshot, new = Decision("snapshot", reason="due"), NewPlayer("main_7", "main")
    for decision, what in [
        (Decision("add", reason="strong", new=new), "add a new player"),
        (Decision("freeze", reason="strong"), "freeze 'main_0'"),
        (Decision("snapshot", reason="due", player="main_exploiter_0"), "snapshot 'main_exploiter_0'"),
    ]:
        with pytest.raises(ConfigError, match=rf"wants to {what}, but .*trains 'main_0' alone; valid: snapshot or res"):
            review(deciding(decision, learner="main_0"), league, "main_0", seed=0)
        assert review(deciding(decision), league, "main_0", seed=0) == (decision,)
    assert review(deciding(snapshot, learner="main_0"), league, "main_0", seed=0) == (snapshot,)


def test_a_decision_about_a_player_that_does_not_learn() -> None:
    league = league_of(AlphaStarConfig(), [])
    for action in ("snapshot", "reset"):
        config = deciding(Decision(action, player="main_0@0"))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"a decision to {action} 'main_0@0', which does not learn"):
            review(config, league, "main_0", seed=0)
