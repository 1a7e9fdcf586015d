"""Agents that take turns: rewards during an agent's wait count, and labels may be some steps away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.data.labels import resolve_label
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.tuning import tuning
from marlnb.cli import main
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from tests.analysis.conftest import make_run

SITE = "player/actor/hidden_1"


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    run = make_run(tmp_path_factory.mktemp("runs") / "game", "pettingzoo/tictactoe", "env.workers=0")
    with record(run, episodes=30, explore=True, progress=False) as opened:
        yield opened


def test_the_return_to_go_at_a_turn_counts_what_comes_while_one_waits(games: Recording) -> None:
    source = RowSource(games, "player")
    every = source.rows(None)
    acting = source.acting(every)[:, 0].astype(bool)
    mine = type(every)(every.index[acting], every.episode[acting], every.t[acting])
    values = resolve_label(source, mine, "return_to_go").values[:, 0]
    # all of it is given at the end, to the loser while it waits
    expected = games.episodes["player_1"].loc[mine.episode].to_numpy()
    np.testing.assert_allclose(values, expected)
    assert set(expected) == {-1.0, 1.0} or set(expected) == {-1.0, 0.0, 1.0}
    tuned = tuning(games, site=SITE, label="return_to_go", agent="player_1", n_shuffles=20, n_bootstrap=20)
    assert tuned.bins[0] == "-1" and tuned.bins[-1] == "1" and tuned.count.sum() == acting.sum()


def test_what_the_other_does_lies_a_step_off(games: Recording) -> None:
    with pytest.raises(AnalysisError, match=r"in 0 episodes of this recording; if agents take turns.*offset="):
        decode(games, site=SITE, label=("player_2", "action"), agent="player_1", progress=False)
    here = ("player_2", "action")
    score = decode(games, site=SITE, label=here, agent="player_1", offset=1, n_shuffles=1, progress=False).of()
    assert score.n_episodes == 30 and score.n_rows < 30 * 5


def test_the_command_draws_the_attributions_of_those_who_acted(
    games: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first_turn = tmp_path / "first"
    words = ["attribute", str(games.path), "--group", "player", "--method", "saliency", "--out"]
    assert main([*words, str(first_turn), "--steps", "0"]) == 0  # player_2 waits
    assert first_turn.with_suffix(".png").stat().st_size > 0
    no_turn = tmp_path / "none"
    assert main([*words, str(no_turn), "--steps", "0", "--agent", "player_2"]) == 0
    assert "no agent was acting" in capsys.readouterr().err
    assert sorted(path.suffix for path in tmp_path.glob("none.*")) == [".csv", ".h5"]
