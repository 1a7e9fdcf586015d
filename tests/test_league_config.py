"""Leagues as parts of an experiment: composing, files, import paths and trust."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from marlnb.cli import main
from marlnb.composition.overrides import overrides_of
from marlnb.errors import ConfigError, TrustError, UnknownNameError
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.trust import trust

ENV = "env=pettingzoo/tictactoe"
OWN = '''
from dataclasses import dataclass
from marlnb import LeagueConfig, option
from marlnb.populations.league.players import NewPlayer
from marlnb.populations.league.state import Draw

@dataclass(frozen=True)
class MyLeague(LeagueConfig):
    """Everybody plays everybody."""

    size: int = option(2, help="players", ge=1)

    def roster(self, sides):
        return tuple(NewPlayer(f"player_{k}", "player") for k in range(self.size))

    def draw(self, rng, player, league):
        return Draw("any", (league.learning[0].id,))
'''


def hop(experiment: Experiment) -> Experiment:
    return Experiment.from_json(json.loads(json.dumps(experiment.to_json())))


def test_without_a_league_there_is_none() -> None:
    experiment = Experiment.compose(ENV)
    assert experiment.league is None and hop(experiment) == experiment
    assert Experiment.compose(ENV, "league=null") == experiment


@pytest.mark.parametrize("name", LEAGUES.names())
def test_every_league_is_composed_and_survives_each_hop(name: str) -> None:
    experiment = Experiment.compose(ENV, f"league={name}", "league.decay=0.95", "league.min_games=3")
    assert experiment.league is not None and (experiment.league.name, experiment.league.decay) == (name, 0.95)
    assert hop(experiment) == experiment
    assert Experiment.compose(*overrides_of(experiment)) == experiment
    assert {"league.decay=0.95", "league.min_games=3", f"league={name}"} <= {*overrides_of(experiment)}


def test_options_of_roles_and_players_are_written_one_by_one() -> None:
    words = [ENV, "league=alphastar", "league.main.self_play=0.5", "league.players={main_0:{p:3}}"]
    experiment = Experiment.compose(*words)
    assert overrides_of(experiment) == [words[0], *words[1:]]
    assert experiment.league.main.forgotten == 0.15  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["league=alphastr"], "no league 'alphastr'; did you mean 'alphastar'"),
        (["league=pfsp", "league.pp=2"], "did you mean 'league.p'"),
        (["league=alphastar", "league.main.selfplay=1"], "did you mean 'league.main.self_play'"),
        (["league=pfsp", "league.p=0"], "league.p must be more than 0"),
        (["league=alphastar", "league.main_exploiter.gate=1"], "gate=1 can never be reached"),
        (["league=alphastar", "league.main.self_play=0.9"], "at most 1 together; got self_play=0.9 and forgotten=0.15"),
        (["league.builder=my:League"], "no name; valid: alphastar.*or a class of your own, league=module:Class"),
        (["league=[1]"], "league takes a name, such as league=alphastar"),
    ],
)
def test_errors_name_the_option_and_the_valid_ones(words: list[str], message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=message.replace("[", r"\[")):
        Experiment.compose(ENV, *words)


def test_a_variant_and_an_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "small.yaml").write_text(
        "defaults: [alphastar]\nleague_exploiter: {count: 1}\nmin_games: 4\n"
    )
    experiment = Experiment.compose(ENV, "league=small", "league.decay=0.9", config_dir=str(tmp_path))
    assert experiment.league.league_exploiter.count == 1  # type: ignore[union-attr]
    assert experiment.league.league_exploiter.reset == 0.25  # type: ignore[union-attr]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "first.yaml").write_text(
        "env: pettingzoo/tictactoe\nleague: {name: small, min_games: 5}\n"
    )
    assert Experiment.compose("experiment=first", config_dir=str(tmp_path)).league.min_games == 5  # type: ignore[union-attr]


def test_a_class_at_an_import_path_needs_trust_where_a_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "my_league_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    experiment = Experiment.compose(ENV, "league=my_league_module:MyLeague", "league.size=3", "league.max_players=9")
    assert len(experiment.league.roster(("",))) == 3  # type: ignore[union-attr]
    text = json.dumps(experiment.to_json())
    del sys.modules["my_league_module"]
    LEAGUES._members.pop("my_league_module:MyLeague")

    theirs = Experiment.from_json(json.loads(text), origin="runs/theirs")
    assert "my_league_module" not in sys.modules
    assert theirs.league is not None and theirs.league.max_players == 9
    assert theirs.unloaded["league"].size == 3 and theirs.to_json() == experiment.to_json()
    with pytest.raises(TrustError, match="league: imports my_league_module:MyLeague, from"):
        theirs.loaded()
    with pytest.raises(TrustError):
        theirs.league.roster(("",))
    trust(theirs.unloaded.values(), "granted")
    assert len(theirs.loaded().league.roster(("",))) == 3  # type: ignore[union-attr]
    LEAGUES._members.pop("my_league_module:MyLeague")


def test_lists_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "leagues", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["leagues"]) >= {*LEAGUES.names()}
    assert main(["train", ENV, "league=alphastar", "--help"]) == 0
    text = capsys.readouterr().out
    assert "league=NAME" in text and "league.main.self_play=0.35" in text and "league.evaluation_share=0.0" in text
