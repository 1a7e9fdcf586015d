"""Leagues that cannot be trained or resumed, by the command: one clear error each, and nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marlnb.cli import main
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvError
from marlnb.experiment import Experiment
from marlnb.populations.league.matches import append_matches, read_matches
from marlnb.populations.training.league import players
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import ObservationSpec
from marlnb.training.runs.files import line_of, parse_line
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

SMALL = ("algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=16", "keep_checkpoints=0", "tuned=false")
RPS = ("env=tests.populations.training.games:RockPaperScissors", "league=alphastar")
SERVED = (
    *("env=external/server", "env.groups.player.agents=2", "env.groups.player.observation=[1]"),
    "env.groups.player.actions=3",
)


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that fails prints last; one line, without traceback."""
    capsys.readouterr()
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    return printed.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (*RPS, "league.main.count=0"),
            r"player 'main_exploiter_0': there is no opponent.*there are: league_exploiter_0",
        ),
        ((*RPS, "league.main_exploiter.gate=1"), r"league\.main_exploiter: gate=1 can never be reached"),
        ((*RPS, "league.players.main_0.gate=2"), r"league\.players\.main_0: gate=2 can never be reached"),
        ((*RPS, "league.players.main_0.count=3"), "main_0: 'count' is an option of the whole role; use league.main.c"),
        ((*RPS, "league.players.main_0.names=[a]"), "main_0: 'names' is an option of the whole role"),
        ((*RPS, "league.players.main_0.gat=1"), "no option 'gat' .* Valid: forgotten, .*_after, p, reset, self_play"),
        ((*RPS, "league.min_games=129"), r"'main_exploiter_0' can never.*min_games=129.*at most 128 in this run"),
        ((*RPS, "league.main_exploiter.curriculum=1"), "'main_exploiter_0' can never.*never the current mains"),
        (("env=matrix/climbing", "league=alphastar", "league.sides=groups"), "needs two sides"),
        (
            (*SERVED, "league=alphastar", "league.min_games=2"),
            "'main_exploiter_0' needs envs of its own, .*external/server .*; valid: .*self_play",
        ),
        (
            (*SERVED, "evolution=tournament", "evolution.population=3", "evolution.generation_frames=64"),
            "evolution=tournament gives each member envs of its own.*external/server.*an environment of another kind",
        ),
    ],
)
def test_options_that_cannot_work_leave_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "run"
    error = error_of(capsys, "train", *arguments, *SMALL, "frames=400", f"run={path}")
    assert re.search(message, error), error
    assert not path.exists()


@pytest.mark.parametrize(
    ("env", "observed"),
    [("matrix/climbing", "all sides had equal returns"), ("mpe/simple_spread", "rise and fall together")],
)
def test_a_cooperative_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str], env: str, observed: str) -> None:
    path = tmp_path / "run"
    options = (*SMALL, "rollout_steps=25", "n_envs=32", "frames=100000")
    error = error_of(capsys, "train", f"env={env}", "league=self_play", *options, f"run={path}")
    assert observed in error and f"in {env} " in error and "league.win_threshold" in error
    run = Run.open(path)
    assert run.status()["state"] == "failed" and len(run.league.matches()) >= 32


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    assert main(["train", *RPS, *SMALL, "frames=384", "seed=3", f"run={path}"]) == 0
    return path


def test_sides_that_competed_are_not_checked_again(trained: Path) -> None:
    matches = read_matches(trained / "league")
    (trained / "league" / "matches.jsonl").unlink()
    append_matches(trained / "league", [replace(match, returns=(k, k)) for k, match in enumerate(matches)])
    assert main(["resume", str(trained), "--frames", "768"]) == 0
    assert len(read_matches(trained / "league")) > len(matches)


def _delete(store: SnapshotStore, sha256: str) -> None:
    shutil.rmtree(store.path(sha256))


def _damage(store: SnapshotStore, sha256: str) -> None:
    tensors = store.path(sha256) / "tensors.bin"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)


CRC = r', "crc": "[0-9a-f]{8}"'


def _give_other_spaces(store: SnapshotStore, sha256: str) -> None:
    """The league's files name another environment's snapshot, as after a wrong copy."""
    (group,) = store.spec.groups
    other = replace(store.spec, groups=(replace(group, observation=ObservationSpec((7,))),))
    theirs = SnapshotStore(store.folder.parent, other).write("main_0", 0, {group.name: {"w": torch.zeros(1)}})
    players = store.folder.parent / "players.jsonl"
    rows = [parse_line(line.replace(sha256, theirs), "") for line in re.sub(CRC, "", players.read_text()).splitlines()]
    players.write_text("".join(f"{line_of(row)}\n" for row in rows))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_delete, "the snapshot main_0@0 is missing: no folder"),
        (_damage, "the snapshot main_0@0 cannot be read: "),
        (_give_other_spaces, "the snapshot main_0@0 was made for group 'player' with agents 2, observation [7]"),
    ],
)
def test_a_snapshot_that_cannot_be_used(
    trained: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[SnapshotStore, str], None], message: str
) -> None:
    run = Run.open(trained)
    checkpoint = run.league["main_0@0"].player.checkpoint
    assert checkpoint is not None
    spoil(SnapshotStore(run.league.folder, run.spec), checkpoint)
    matches, state = (trained / "league" / "matches.jsonl").read_text(), run.checkpoint().path
    error = error_of(capsys, "resume", str(trained), "--frames", "768")
    assert message in error, error
    assert (trained / "league" / "matches.jsonl").read_text() == matches
    assert Run.open(trained).checkpoint().path == state
    assert json.loads((trained / "status.json").read_text())["state"] in ("complete", "failed")


def test_a_league_whose_last_player_cannot_be_built_leaves_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def build(*arguments: Any, **options: Any) -> VectorEnv:
        if len(opened) == 2:
            raise EnvError("no more memory")
        opened.append(build_env(*arguments, **options))
        monkeypatch.setattr(opened[-1], "close", lambda env=opened[-1]: closed.append(env))
        return opened[-1]

    closed: list[VectorEnv] = []
    monkeypatch.setattr(players, "build_env", build)
    experiment = Experiment.compose(*RPS, *SMALL, "frames=256")
    with pytest.raises(EnvError, match="no more memory"):
        Trainer(experiment, Run.create(tmp_path / "run", experiment))
    assert len(opened) == 2 and closed == opened
