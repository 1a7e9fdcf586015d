"""Every analysis that counts episodes warns about episodes that repeat one another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from marlnb import plots
from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.interventions.intervene import intervene
from marlnb.analysis.interventions.mediation import mediation
from marlnb.analysis.interventions.tracing import trace
from marlnb.analysis.interventions.usage import usage
from marlnb.analysis.representations.event_average import event_average
from marlnb.analysis.representations.roles import roles
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.models.hooks.directions import Clamp, Direction
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.analysis.conftest import make_run

SITE = "player/actor/hidden_1"


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("runs") / "game"
    return make_run(path, "pettingzoo/tictactoe", "algorithm=ippo", "env.workers=0")


@pytest.fixture(scope="module")
def same(game: Run) -> Iterator[Recording]:
    """Twelve times the same game: the most likely moves from an empty board."""
    with record(game, episodes=12, name="same", progress=False) as opened:
        yield opened


def test_the_same_game_twelve_times_is_one(game: Run, same: Recording) -> None:
    message = "only 1 of 12 episodes are different, the others repeat them"
    every = same.rows["episode"].to_numpy()
    assert (
        duplicate_episode_warnings(same, every)[0].startswith(message)
        and duplicate_episode_warnings(same, every[every == 3]) == ()
    )
    with record(game, episodes=12, name="drawn", explore=True, progress=False) as drawn:
        assert duplicate_episode_warnings(drawn, drawn.rows["episode"].to_numpy()) == ()
    late = same.rows["t"].to_numpy() >= 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fewer different points than groups is no matter of scikit-learn's
        results = [
            decode(same, site=SITE, label=late, agent="player_1", n_shuffles=3, progress=False),
            tuning(same, site=SITE, label=late, agent="player_1", n_shuffles=20, n_bootstrap=20),
            event_average(same, site=SITE, event=late, agent="player_1", n_shuffles=20, n_bootstrap=20),
            roles(same, site=SITE, n_shuffles=20),
            similarity((same, SITE, "player_1"), (same, "player/actor/hidden_2", "player_1")),
        ]
    assert results[3].points.shape[1] == 2 and plots.role_map(results[3]) is not None  # type: ignore[union-attr]
    for result in results:
        assert any(note.startswith(message) for note in result.warnings), result
        assert "NOT TO BE TRUSTED: only 1 of 12 episodes are different" in repr(result)


def test_rollouts_of_the_same_game_are_one_as_well(game: Run, same: Recording) -> None:
    message = "only 1 of 6 episodes are different, the others repeat them"
    late = same.rows["t"].to_numpy() >= 2
    tuned = tuning(same, site=SITE, label=late, agent="player_1", n_shuffles=20, n_bootstrap=20)
    clamp = Clamp(SITE, 2.0, units=(0,), agents=("player_1",))
    direction = Direction(SITE, "player_1", tuple(np.eye(tuned.n_units)[0]), 0.0, 1.0)
    for results in (
        intervene(game, clamp, episodes=6),
        trace(game, clamp, sites=[SITE], episodes=6),
        usage(game, direction, episodes=6, n_random_directions=5),
        mediation(game, tuned, episodes=6),
    ):
        assert any(note.startswith(message) for note in results.warnings), results
    drawn = intervene(game, clamp, episodes=6, explore=True)
    assert not any("episodes are different" in note for note in drawn.warnings)


def test_different_episodes_draw_no_warning(recording: Recording) -> None:
    assert duplicate_episode_warnings(recording, recording.rows["episode"].to_numpy()) == ()
    assert duplicate_episode_warnings(recording, np.array([4])) == ()
