"""The microscope without a browser: its methods, its state, and its snapshot."""

from __future__ import annotations

import base64
import gc
import json
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances as WIDGETS

import marlnb as mnb
from marlnb.errors import AnalysisError, ConfigError, RecordingError
from marlnb.widgets.core.background import wait_for_requests
from marlnb.widgets.microscope.edits_panel import EditsPanel, parse_units
from marlnb.widgets.microscope.episode_view import read_episode
from marlnb.widgets.microscope.microscope import Microscope
from tests.widgets.trained import until

SITE = "listener/actor/hidden_1"


@pytest.fixture
def scope(listener: mnb.Recording) -> Iterator[Microscope]:
    made = mnb.microscope(listener, 3, t=5, order="cluster")
    yield made
    assert made.wait(60)


@pytest.fixture(scope="module")
def development(listener: mnb.Recording) -> Iterator[mnb.Recording]:
    """Four episodes of each of two checkpoints."""
    assert listener.run_path is not None
    options = {"checkpoint": (10, 130), "episodes": 4, "sites": SITE, "name": "development"}
    with mnb.record(listener.run_path, **options, progress=False) as recording:
        yield recording


def test_everything_is_there_after_a_while(scope: Microscope) -> None:
    assert scope.t == 5 and scope.wait(60)
    assert sorted(scope.scope.images(0)) == list(range(25)) and scope.scope.notes == [""]
    assert set(scope.scope.attributions[0]["agents"]) == {"speaker_0", "listener_0"}
    assert set(scope.scope.get_state()["films"][0]["images"]) == {str(t) for t in range(25)}


def test_an_edited_rollout_is_what_evaluate_plays(scope: Microscope, listener: mnb.Recording) -> None:
    edit = mnb.Ablate(SITE, units=tuple(range(40)))
    change = scope.play_again(edit)
    run = listener.run_path
    assert run is not None
    returns = []
    for edits in ([], [edit]):
        played = mnb.evaluate(run, episodes=1, seed=2003, edits=edits, checkpoint=130).table
        assert played is not None
        returns.append(float(played.to_frame().iloc[0]["listener_0"]))
    before, after = scope.sides
    assert before.view.episode == 0 and scope.scope.sides[0]["episode"] == 3  # whose bookmarks are shown
    assert [side.view.returns["listener_0"] for side in scope.sides] == pytest.approx(returns, abs=1e-5)
    assert change["listener_0"] == pytest.approx(returns[1] - returns[0], abs=1e-5) and abs(change["listener_0"]) > 0.01
    assert (after.view.units(SITE)[:, 0, :40] == 0).all() and (before.view.units(SITE)[:, 0, :40] != 0).any()
    assert scope.wait(60)
    speaker = scope.scope.attributions[0]["agents"]["speaker_0"]  # compared with the recording, not with one episode
    assert np.abs(np.frombuffer(speaker["values"], "<f4")).max() > 0.1
    assert "edited" in scope.scope.attributions[1]["reasons"]["listener"]
    assert sorted(path.name for path in (run / "recordings").glob("played*")) == []
    scope.alone()
    assert len(scope.scope.sides) == 1 and scope.view.episode == 3


def test_closing_it_frees_every_widget_and_its_memory(listener: mnb.Recording) -> None:
    before = set(WIDGETS)
    made = mnb.microscope(listener, 3)
    made.pick("listener_0", 2)
    assert len(set(WIDGETS) - before) > 50
    known = weakref.ref(made)
    made.close()  # also while threads fill it
    assert made.wait(60)
    assert [type(WIDGETS[key]).__name__ for key in set(WIDGETS) - before] == []
    del made
    wait_for_requests()  # one that draws the snapshot again holds it
    gc.collect()
    assert known() is None


def test_another_checkpoint_plays_the_same_seed(scope: Microscope) -> None:
    scope.compare(checkpoint=10)
    left, right = scope.sides
    assert right.view.checkpoint == 10 and right.view.seed == left.view.seed
    assert right.view.returns["listener_0"] < left.view.returns["listener_0"]  # it was random then
    assert (left.view.groups[1].observation[0, 0, 2:8] == right.view.groups[1].observation[0, 0, 2:8]).all()


def test_another_checkpoint_plays_where_the_recorded_one_was_deleted(listener: mnb.Recording, tmp_path: Path) -> None:
    assert listener.run_path is not None
    early = shutil.copytree(listener.run_path, tmp_path / "early", ignore=shutil.ignore_patterns("recordings", "130"))
    scope = mnb.microscope(listener, policy_source=early)
    scope.compare(checkpoint=10)
    assert scope.sides[1].title == "checkpoint 10, the same seed" and scope.wait(60)


def test_other_networks_receive_the_same_observations(scope: Microscope, tmp_path: Path) -> None:
    """A copy of the run whose last checkpoint is an early one: other weights, the same observations."""
    run = scope.recording.run_path
    assert run is not None
    early = tmp_path / "early"
    shutil.copytree(run, early, ignore=shutil.ignore_patterns("recordings", "130"))
    scope.show_networks(early)
    recorded, other = (side.view for side in scope.sides)
    assert scope.t == 5 and other.seed == recorded.seed and other.returns == pytest.approx(recorded.returns, abs=1e-4)
    for mine, theirs in zip(recorded.groups, other.groups):
        assert np.allclose(mine.observation, theirs.observation, atol=1e-4) and (mine.action == theirs.action).all()
        assert theirs.kind == mine.kind == "probability" and np.abs(mine.choices - theirs.choices).max() > 0.01
    units = mnb.View(scope.recording, SITE, policy_source=early).open()
    assert other.units(SITE)[:, 0] == pytest.approx(units.all()[units.episode == 3], abs=1e-4)
    assert scope.wait(60) and scope.scope.notes == ["", ""]
    scope.show_networks(run, early)
    both = [side.view.units(SITE) for side in scope.sides]
    assert both[0] == pytest.approx(recorded.units(SITE), abs=1e-4) and (both[1] == other.units(SITE)).all()
    with pytest.raises(RecordingError, match="one run or two; got 0"):
        scope.show_networks()


def test_sampled_actions_get_the_same_noise(tag: mnb.Recording) -> None:
    scope = mnb.microscope(tag, 0)
    change = scope.play_again(mnb.Scale("adversary/actor/hidden_1", factor=1.0))  # changes nothing, bit for bit
    assert set(change.values()) == {0.0}
    assert (scope.sides[0].view.groups[0].action == scope.sides[1].view.groups[0].action).all()
    assert scope.wait(60)


def test_a_click_shows_the_exact_value_and_more(scope: Microscope, listener: mnb.Recording) -> None:
    scope.scope.set_state({"picked": {"side": 0, "agent": "listener_0", "layer": "actor/hidden_1", "unit": 9, "t": 7}})
    panel = scope.controls.unit
    assert f"{listener.file[f'activations/{SITE}'][82, 0, 9]:.6g}" in panel._line.value
    until(lambda: panel.tuning is not None)
    truth = mnb.tuning(listener, site=SITE, label="goal", agent="listener_0")
    assert panel.tuning is not None and panel.tuning.strength[9] == pytest.approx(truth.strength[9])
    assert scope.controls.edits.units.value == "9" and scope.controls.edits.site.value == SITE
    scope.go(panel.top[0].episode, panel.top[0].t)
    assert (scope.view.episode, scope.t) == panel.top[0][:2]


def test_buttons_go_to_episodes_of_the_microscopes_own_recording_only(
    scope: Microscope, development: mnb.Recording
) -> None:
    shown = []
    for compare in (
        lambda: scope.compare(episode=5),
        lambda: scope.compare(development),
        lambda: scope.compare(checkpoint=10),
    ):
        compare()
        scope.scope.picked = {"side": 1, "agent": "listener_0", "layer": "actor/hidden_1", "unit": 9, "t": 7}
        wait_for_requests()
        shown.append(len(scope.controls.unit._top.children))
    assert shown == [6, 0, 0]


def test_bookmarks_are_stored_next_to_the_recording(listener: mnb.Recording, tmp_path: Path) -> None:
    path = shutil.copy(listener.path, tmp_path / "copied.h5")
    scope = mnb.microscope(path, 1, t=4)
    mark = scope.bookmark("here")
    stored = tmp_path / "copied.h5.bookmarks.json"
    assert json.loads(stored.read_text()) == [{"episode": 1, "t": 4, "note": "here"}]
    again = mnb.microscope(path)
    assert again.bookmarks == [mark] and again.scope.bookmarks == [{"episode": 1, "t": 4, "note": "here"}]
    again.remove_bookmark(mark)
    assert json.loads(stored.read_text()) == []
    stored.write_text("{}")
    broken = mnb.microscope(path)
    assert "is not a file of bookmarks" in broken.controls.bookmarks._status.value
    broken.bookmark("in memory only")  # the file is not overwritten
    assert stored.read_text() == "{}" and len(broken.scope.bookmarks) == 1


def test_without_its_run_it_shows_what_the_file_has(listener: mnb.Recording, tmp_path: Path) -> None:
    scope = mnb.microscope(shutil.copy(listener.path, tmp_path / "copied.h5"))
    assert scope.wait(60)
    assert "is in no run folder" in scope.scope.notes[0]
    with pytest.raises(RecordingError, match="is in no run folder"):
        scope.play_again(mnb.Ablate(SITE))
    with_run = mnb.microscope(scope.recording, policy_source=listener.run_path)
    assert with_run.wait(60) and len(with_run.scope.images(0)) == 25


def test_a_recording_of_another_environment_is_not_played_again_in_the_runs_own(listener: mnb.Recording) -> None:
    run = mnb.Run.open(str(listener.run_path))
    other = replace(run.experiment.env, max_cycles=10, goal_steps=1)  # the spec has no goal_steps
    with mnb.record(run, episodes=1, env=other, name="other", progress=False) as recording:
        message = "with goal_steps=1, max_cycles=10, but .* with goal_steps=None, max_cycles=25; give env="
        with pytest.raises(RecordingError, match=message):
            mnb.microscope(recording).play_again(mnb.Ablate(SITE))
        scope = mnb.microscope(recording, env=other)
        scope.play_again(mnb.Ablate(SITE))
        assert scope.sides[0].view.returns == pytest.approx(scope.view.returns, abs=1e-4) and scope.wait(60)
    with pytest.raises(RecordingError, match=r"goal_steps=None, .* with goal_steps=1"):
        mnb.microscope(listener, env=other).play_again(mnb.Ablate(SITE))


def test_other_weights_neither_explain_nor_replay_a_recording(listener: mnb.Recording, tmp_path: Path) -> None:
    assert listener.run_path is not None
    other = shutil.copytree(listener.run_path, tmp_path / "other", ignore=shutil.ignore_patterns("recordings"))
    checkpoints = other / "checkpoints"
    shutil.rmtree(checkpoints / "130")
    shutil.copytree(checkpoints / "10", checkpoints / "130")  # trained again
    scope = mnb.microscope(listener, policy_source=other)
    assert scope.wait(60) and scope.scope.attributions[0]["agents"] == {}
    assert "was made by weights" in scope.scope.attributions[0]["reasons"]["listener"]
    with pytest.raises(RecordingError, match="was made by weights"):
        scope.play_again(mnb.Ablate(SITE))
    with pytest.raises(RecordingError, match="was made by weights"):
        scope.compare(checkpoint=10)
    scope.show_networks(listener.run_path)  # these are not claimed to have acted
    assert scope.wait(60) and set(scope.scope.attributions[1]["agents"]) == {"speaker_0", "listener_0"}


def test_concepts_are_drawn_on_the_network_that_they_were_fitted_to(scope: Microscope, tmp_path: Path) -> None:
    run = scope.recording.run_path
    assert run is not None
    early = shutil.copytree(run, tmp_path / "early", ignore=shutil.ignore_patterns("recordings", "130"))
    decoding = scope.decode("goal", SITE, folds=2, n_shuffles=2)
    n_drawn = []
    for show in (
        lambda: scope.play_again(mnb.Ablate(SITE, units=(3,))),
        lambda: scope.compare(checkpoint=10),
        lambda: scope.show_networks(run, early),
    ):
        show()
        n_drawn.append([len(concepts) for concepts in scope.scope.concepts])
    assert n_drawn == [[1, 1], [1, 0], [1, 0]]
    again = scope.decode("goal", SITE, folds=2, n_shuffles=2)
    assert len(scope.decodings) == 1 and scope.decodings[0] is again and scope.as_code().count("scope.decode") == 1
    scope.show_decoding(replace(decoding, given="action"))  # another question
    assert [other.given for other in scope.decodings] == ["", "action"]
    with pytest.raises(AnalysisError, match="fitted to checkpoint 10, but checkpoint 130 played episode 3"):
        scope.show_decoding(replace(decoding, checkpoint=10))


def test_directions_are_offered_for_the_checkpoint_that_they_were_fitted_to(development: mnb.Recording) -> None:
    scope = mnb.microscope(development, 0)
    along = scope.controls.edits.along
    scope.decode("goal", SITE, folds=2, n_shuffles=2)
    n_offered = []
    for episode in (0, 4, 0):
        scope.go(episode)
        n_offered.append(len(along.options))
    assert n_offered == [2, 1, 2] and scope.wait(60)  # the other one is that of the chosen units


def test_a_panel_that_computes_does_not_end_the_computation_of_another(scope: Microscope) -> None:
    concepts, edits = scope.controls.concepts, scope.controls.edits
    concepts.button.click()
    edits.button.click()
    until(lambda: len(scope.decodings) == 1 and len(scope.sides) == 2, deadline_s=120)
    assert not concepts.button.disabled and not edits.button.disabled


def test_a_page_without_widgets_gets_a_picture_and_numbers(scope: Microscope) -> None:
    bundle = scope._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "episode 3, step 5" in bundle["text/plain"]


def test_its_code_shows_the_same(scope: Microscope) -> None:
    scope.scope.t = 11
    names: dict[str, object] = {}
    exec(scope.as_code().rsplit("\n", 1)[0], names)
    again = names["scope"]
    assert isinstance(again, Microscope)
    assert (again.view.episode, again.t, again.scope.order) == (3, 11, "cluster") and again.wait(60)


def test_layers_that_were_not_sent_come_when_asked_for(
    listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marlnb.widgets.microscope.payload.MAX_UNIT_BYTES", 0)
    scope = mnb.microscope(listener)
    assert list(scope.scope.sides[0]["units"]) == ["actor/hidden_1"]
    scope.scope.layer = "actor/hidden_2"
    assert set(scope.scope.sides[0]["units"]) == {"actor/hidden_1", "actor/hidden_2"} and scope.wait(60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episode": 77}, "no episode 77; valid: 0 to 11"),
        ({"layer": "actor/hidden_9"}, "actor/hidden_2"),
        ({"order": "peek"}, "peak"),
        ({"agents": ["missing"]}, "speaker_0, listener_0"),
    ],
)
def test_errors_name_what_is_valid(listener: mnb.Recording, options: dict[str, object], message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        mnb.microscope(listener, **options)  # type: ignore[arg-type]


def test_a_common_direction_of_units_is_measured_where_the_agent_acts() -> None:
    recording = mnb.gallery("tictactoe_league").recording
    panel = EditsPanel(read_episode(recording), lambda edits: None, lambda: None)
    panel.kind.value, panel.units.value = "steer by the strength", "0, 1"
    edit = panel.edit()
    assert isinstance(edit, mnb.Steer)
    agent = next(iter(recording[panel.site.value].labels["agent"]))
    x = recording[panel.site.value].sel(agent=agent).to_numpy()[:, :2].sum(1) / 2**0.5
    acting = recording.steps("player", "acting").sel(agent=agent).to_numpy().astype(bool)
    assert edit.direction.scale == pytest.approx(x[acting].std()) != pytest.approx(x.std())


def test_a_common_direction_of_units_is_measured_in_the_checkpoint_that_played(development: mnb.Recording) -> None:
    panel = EditsPanel(read_episode(development, 0), lambda edits: None, lambda: None)
    panel.kind.value, panel.units.value = "steer by the strength", "0, 1"
    scales = []
    for episode in (0, 4):
        panel.show(read_episode(development, episode), {})
        edit = panel.edit()
        assert isinstance(edit, mnb.Steer)
        scales.append(edit.direction.scale)
    played = development.checkpoints
    x = development[SITE].sel(agent="listener_0").to_numpy()[:, :2].sum(1) / 2**0.5
    expected = [x[a:b].std() for a, b in zip(played["row_start"], played["row_stop"])]
    assert scales == pytest.approx(expected) and x.std() not in [pytest.approx(scale) for scale in scales]


def test_units_are_read_as_people_write_them() -> None:
    assert parse_units("3, 17 20-22,3") == (3, 17, 20, 21, 22) and parse_units(" ") is None
    for wrong in ("a", "5-3", "1..4"):
        with pytest.raises(ConfigError):
            parse_units(wrong)


def test_the_shown_step_is_attributed_if_the_episode_is_too_large(
    listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marlnb.widgets.microscope.attribution.MAX_NUMBERS", 100)
    whole = mnb.attribute(listener, group="listener", progress=False)  # episode 0 comes first
    scope = mnb.microscope(listener, t=3)
    assert scope.wait(60) and scope.wait(60)
    for t in (3, 17):
        scope.go(t=t)
        assert scope.wait(60)
        payload = scope.scope.attributions[0]
        speaker, step = (payload["agents"][agent] for agent in ("speaker_0", "listener_0"))
        assert (speaker["at"], step["at"]) == (None, t) and payload["reasons"] == {}
        values = dict(zip(step["names"], np.frombuffer(step["values"], "<f4")))
        truth = dict(zip(whole.feature_names, whole.values[t, 0]))
        assert values.keys() == truth.keys() and values == pytest.approx(truth, abs=1e-4)
    assert scope.controls.anyway.layout.display == ""
    scope.controls.anyway.click()
    assert scope.wait(60)
    assert scope.scope.attributions[0]["agents"]["listener_0"]["at"] is None
    assert scope.controls.anyway.layout.display == "none" and scope.scope.working == ""


def test_a_step_that_is_too_large_as_well_says_so(listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.widgets.microscope.attribution.MAX_NUMBERS", 100)
    monkeypatch.setattr("marlnb.widgets.microscope.attribution.MAX_STEP_NUMBERS", 10)
    scope = mnb.microscope(listener)
    assert scope.wait(60) and scope.wait(60)
    payload = scope.scope.attributions[0]
    assert payload["agents"].keys() == {"speaker_0"} and "11 features over 25 steps" in payload["reasons"]["listener"]


def test_the_step_that_is_shown_comes_before_a_long_episode(
    listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marlnb.widgets.microscope.attribution.MAX_FAST_NUMBERS", 0)
    monkeypatch.setattr("marlnb.widgets.microscope.attribution.START_DELAY_S", 3.0)
    scope = mnb.microscope(listener, t=4)
    until(lambda: scope.scope.attributions[0])
    assert {one["at"] for one in scope.scope.attributions[0]["agents"].values()} == {4}
    assert scope.wait(60)
    assert {one["at"] for one in scope.scope.attributions[0]["agents"].values()} == {None}
