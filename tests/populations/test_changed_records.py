"""The records of leagues and evolutions after they were changed: noticed, and no path leads out of the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marlnb.errors import CheckpointError, RunError
from marlnb.populations.append_only import append_rows
from marlnb.populations.evolution.lineage import LINEAGE, read_lineage
from marlnb.populations.league.matches import MATCHES, Match, append_matches, read_matches
from marlnb.populations.league.player_log import PLAYERS, PlayerEvent, append_events, read_events
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

MATCH = Match(0, "main_0", "self_play", {"a": "main_0", "b": "main_0@0"}, (1.0, -1.0), (1.0, 0.0), 25, (10, 0))
SPEC = EnvSpec("x", (GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("discrete", n=(2,))),))


def test_a_changed_outcome_is_noticed(tmp_path: Path) -> None:
    append_matches(tmp_path, [MATCH, MATCH])
    assert read_matches(tmp_path) == [MATCH, MATCH]
    path = tmp_path / MATCHES
    path.write_text(path.read_text().replace('"outcomes": [1.0, 0.0]', '"outcomes": [0.0, 1.0]', 1))
    with pytest.raises(RunError, match=r"matches.jsonl, line 1, is damaged: its values were changed"):
        read_matches(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcomes": [2.0, 0.0]}, "numbers from 0 to 1 as outcomes"),
        ({"returns": [None, 0.0]}, "finite numbers as returns"),
        ({"players": {"a": ["main_0"], "b": "main_0"}}, "texts as learner, kind and players"),
        ({"steps": "25"}, "whole numbers as number, steps"),
        ({"players": "ab"}, "is not a match"),
        ({"color": "red"}, "unexpected keyword argument 'color'"),
    ],
)
def test_lines_that_are_no_matches(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    append_rows(tmp_path / MATCHES, [{**vars(MATCH), **changes}])
    with pytest.raises(RunError, match=message):
        read_matches(tmp_path)


@pytest.mark.parametrize("player", ["../../run", "/etc", "..", "", "a" * 1000, "a\0"])
def test_no_player_is_a_path(tmp_path: Path, player: str) -> None:
    """Recordings of a player are in the folder of its name."""
    append_events(tmp_path, [PlayerEvent("added", "main_0"), PlayerEvent("added", player)])
    with pytest.raises(RunError, match=r"players.jsonl, line 2, is damaged: .* is not the id of a player"):
        read_events(tmp_path)


def test_events_and_members_of_other_types(tmp_path: Path) -> None:
    (tmp_path / PLAYERS).write_text(json.dumps({"event": "added", "player": ["main_0"]}) + "\n")
    with pytest.raises(RunError, match=r"players.jsonl, line 1, is damaged: player must be a text"):
        read_events(tmp_path)
    (tmp_path / LINEAGE).write_text(json.dumps({"generation": "../..", "member": 0, "parent": None}) + "\n")
    with pytest.raises(RunError, match=r"lineage.jsonl, line 1, is damaged: operator has no default"):
        read_lineage(tmp_path)


def test_no_snapshot_is_a_path(tmp_path: Path) -> None:
    """Its name is read from another training's files; it is opened, copied and deleted."""
    store = SnapshotStore(tmp_path / "league", SPEC)
    store.folder.mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    for act in (store.remove, lambda name: store.read("main_0", name), lambda name: store.adopt(tmp_path, name)):
        with pytest.raises(CheckpointError, match=r"'../../precious' is not the SHA-256 of a snapshot"):
            act("../../precious")
    assert (tmp_path / "precious").is_dir()
