"""An episode's arrays equal the recording's; orders and top episodes equal those of a plain search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import RecordingError
from marlnb.widgets.microscope.episode_view import read_episode
from marlnb.widgets.microscope.payload import unit_orders
from marlnb.widgets.microscope.unit_panel import top_episodes


def test_arrays_are_the_files_rows(listener: mnb.Recording) -> None:
    view = read_episode(listener, 7)
    file, rows = listener.file, slice(7 * 25, 8 * 25)  # episodes of this environment are 25 steps, in order here
    assert (file["steps/episode"][rows] == 7).all()
    _, hearer = view.groups
    np.testing.assert_array_equal(hearer.observation, file["steps/listener/observation"][rows])
    np.testing.assert_array_equal(hearer.reward, file["steps/listener/reward"][rows])
    assert hearer.value is not None
    np.testing.assert_array_equal(hearer.value, file["steps/listener/value"][rows])
    site = "listener/actor/hidden_2"
    np.testing.assert_array_equal(view.units(site), file[f"activations/{site}"][rows])
    np.testing.assert_array_equal(view.t, np.arange(25))
    assert view.checkpoint == 130 and view.seed == 2007
    assert view.returns["listener_0"] == pytest.approx(hearer.reward.sum(), abs=1e-4)
    goal = next(label for label in view.labels if label.name == "goal")
    np.testing.assert_array_equal(goal.values, file["labels/goal"][rows])
    assert goal.classes == ("red", "green", "blue")


def test_only_the_episodes_rows_are_read(listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    from marlnb.recording.file.array import LabelledArray

    read: list[int] = []
    whole = LabelledArray._read

    def counted(self: LabelledArray, rows: Any, **options: Any) -> Any:
        read.append(len(rows))
        return whole(self, rows, **options)

    monkeypatch.setattr(LabelledArray, "_read", counted)
    read_episode(listener, 3).units("listener/actor/hidden_1")
    assert read and max(read) == 25


def test_probabilities_are_those_of_the_actions_taken(tag: mnb.Recording) -> None:
    for group in read_episode(tag, 1).groups:
        assert group.kind == "probability"
        np.testing.assert_allclose(group.choices.sum(-1), 1, atol=1e-5)
        taken = np.take_along_axis(group.choices, group.action[..., None], axis=-1)[..., 0]
        stored = tag.steps(group.name, "log_prob").sel(episode=1).to_numpy()
        np.testing.assert_allclose(taken, np.exp(stored), atol=1e-4)


def test_a_missing_episode_is_an_error(listener: mnb.Recording) -> None:
    with pytest.raises(RecordingError, match=r"no episode 99; valid: 0 to 11"):
        read_episode(listener, 99)


def test_orders_sort_what_they_say() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 30))
    orders = unit_orders(x)
    for order in orders.values():
        assert sorted(order.tolist()) == list(range(30))
    peaks = [max(range(40), key=lambda t: x[t, unit]) for unit in orders["peak"]]
    assert peaks == sorted(peaks)
    spreads = [float(np.mean((x[:, unit] - x[:, unit].mean()) ** 2)) for unit in orders["variance"]]
    assert spreads == sorted(spreads, reverse=True)


def test_similar_units_are_neighbours() -> None:
    rng = np.random.default_rng(1)
    kinds = rng.permutation(np.repeat(np.arange(3), 8))
    x = rng.normal(size=(60, 3))[:, kinds] * rng.uniform(0.5, 5, 24) + 0.05 * rng.normal(size=(60, 24))
    shown = kinds[unit_orders(x)["cluster"]]
    assert (np.diff(shown) != 0).sum() == 2  # three blocks
    assert sorted(unit_orders(np.zeros((5, 4)))["cluster"].tolist()) == [0, 1, 2, 3]


def test_top_episodes_are_those_of_a_plain_sort(tag: mnb.Recording) -> None:
    site, agent, unit = "adversary/actor/hidden_1", "adversary_2", 11
    episodes = top_episodes(tag, site, agent, unit, n=3)
    brute = []
    for episode in range(4):
        course = tag.file[f"activations/{site}"][:][tag.file["steps/episode"][:] == episode][:, 2, unit]
        brute.append((float(max(course)), episode, int(np.argmax(course))))
    brute.sort(reverse=True)
    assert [(top.value, top.episode, top.t) for top in episodes] == brute[:3]


def test_an_episode_that_several_checkpoints_played_has_no_weights(tmp_path: Path) -> None:
    """A training's episode of 6 steps, with a rollout of 4: the weights changed within it."""
    planned = mnb.Experiment.compose(
        *("env=mpe/simple_speaker_listener", "env.max_cycles=6", "algorithm=ippo", "model=mlp", "model.hidden=[4]"),
        *("n_envs=1", "rollout_steps=4", "frames=12", "checkpoint_every=1", "keep_checkpoints=0", "tuned=false"),
    )
    run = mnb.train(planned, tmp_path / "run", progress=False, callbacks=[mnb.FlightRecorder(every_envs=1)])
    several = r"episode 1 was played by the weights of checkpoints 1, 2; .*replay_training\(run, 2, \[0\], iterations=2"
    with mnb.Recording.open(run.recordings["flight"]) as recording:
        scope = mnb.microscope(recording, episode=1)
        assert [scope.view.checkpoint_at(t) for t in range(6)] == [1, 1, 2, 2, 2, 2]
        with pytest.raises(RecordingError, match=several):
            scope.play_again(mnb.Ablate("listener/actor/hidden_1"))
        with pytest.raises(RecordingError, match=several):
            scope.decode("t", site="listener/actor/hidden_1")
        assert scope.wait(60)
        assert all(re.search(several, scope.scope.attributions[0]["reasons"][group]) for group in recording.groups)
        scope.compare(checkpoint=3)
        assert [side.weights for side in scope.sides] == [None, run.checkpoint(3).sha256]
        units = recording["listener/actor/hidden_1"].sel(agent="listener_0", unit=2).to_numpy()
        (top,) = top_episodes(recording, "listener/actor/hidden_1", "listener_0", 2, checkpoint=2)
        assert (top.episode, top.value) == (1, units[8:12].max())
        scope.close()
