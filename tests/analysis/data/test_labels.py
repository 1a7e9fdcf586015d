"""Labels from elsewhere: other agents, functions, other times; and several sites at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from marlnb.analysis.data.labels import resolve_label, rows_later
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.event_average import event_average
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from tests.recording.runs import LivesConfig, make_run


def test_the_row_some_steps_later_by_hand() -> None:
    rows = Rows(np.arange(7), np.array([4, 4, 4, 1, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 3, 4]))
    assert rows_later(rows, 1).tolist() == [1, 2, -1, 4, -1, 6, -1]
    assert rows_later(rows, -1).tolist() == [-1, 0, 1, -1, 3, -1, 5]
    assert rows_later(rows, 9).tolist() == [-1] * 7


def test_what_another_agent_sees_does_and_earns(recording: Recording) -> None:
    source = RowSource(recording, "listener")
    rows = source.rows([3, 5])
    seen = resolve_label(source, rows, ("speaker_0", "observation", "goal_red"))
    theirs = recording.steps("speaker", "observation").sel(episode=[3, 5]).to_numpy()
    np.testing.assert_array_equal(seen.values[:, 0], theirs[:, 0, 0])
    spoken = resolve_label(source, rows, ("speaker_0", "action"))
    np.testing.assert_array_equal(
        spoken.values[:, 0], recording.steps("speaker", "action").sel(episode=[3, 5]).to_numpy()[:, 0]
    )
    reward = recording.steps("listener", "reward").sel(episode=[3, 5]).to_numpy()[:, 0].reshape(2, 25)
    to_go = resolve_label(source, rows, "return_to_go").values[:, 0].reshape(2, 25)
    np.testing.assert_allclose(to_go, reward[:, ::-1].cumsum(axis=1)[:, ::-1], rtol=1e-5)
    later = spoken.later(rows, 2)
    np.testing.assert_array_equal(later.values[:23, 0], spoken.values[2:25, 0])
    assert later.known[:, 0].reshape(2, 25).sum(axis=1).tolist() == [23, 23]


def test_the_return_to_go_is_unknown_where_the_end_was_not_recorded(tmp_path: Path) -> None:
    """a_1 dies at its third step, so what is left of its rewards is known; the other agents play on."""
    run = make_run(tmp_path / "run", LivesConfig(shortest=200), centralised=False)
    steps = iter(range(150))  # the rows of the first 128 are written before the end
    with pytest.raises(StopIteration):
        record(run, episodes=1, n_envs=1, progress=False, on_step=lambda _: next(steps))
    with Recording.open(run.recordings["recording"]) as cut:
        source = RowSource(cut, "a")
        result = resolve_label(source, source.rows(None), "return_to_go")
    assert result.known.sum(axis=0).tolist() == [0, 3, 0]
    assert result.values[:3, 1].tolist() == [6, 5, 3]  # of 1, 2 and 3


def test_a_reward_that_is_not_a_number_is_in_no_other_return_to_go(recording: Recording, tmp_path: Path) -> None:
    copy = Path(shutil.copy(recording.path, tmp_path))
    with h5py.File(copy, "r+") as file:
        file["steps/listener/reward"][30] = np.nan  # episode 1, t = 5

    def returns_to_go(of: Recording) -> np.ndarray:
        source = RowSource(of, "listener")
        return resolve_label(source, source.rows(None), "return_to_go").values[:, 0]

    with Recording.open(copy) as spoilt:
        expected = returns_to_go(recording)
        expected[25:31] = np.nan
        np.testing.assert_allclose(returns_to_go(spoilt), expected, atol=1e-9)


def test_a_label_of_an_agent_is_unknown_once_it_is_dead(tmp_path: Path) -> None:
    """a_1 lives at t = 0, 1, 2; that it does, and acts, is known at every step."""
    run = make_run(tmp_path / "run", LivesConfig(shortest=6), centralised=False)
    with record(run, episodes=2, agents=["a_1", "b_0"], n_envs=1, progress=False) as recording:
        source, group = RowSource(recording, "b"), RowSource(recording, "a")
        rows = source.rows(None)
        for label in (("a_1", "height"), "height"):
            np.testing.assert_array_equal(resolve_label(source, rows, label).known[:, 0], rows.t < 3)
        assert resolve_label(source, rows, "odd").known.all()
        for flag in ("alive", "acting"):
            lives = resolve_label(source, rows, ("a_1", flag))
            assert lives.known.all() and (lives.values[:, 0] == (rows.t < 3)).all()
        of_group = resolve_label(group, rows, "height")
        np.testing.assert_array_equal(of_group.known, (rows.t < 3)[:, None] & [False, True, False])
        np.testing.assert_array_equal(of_group.later(rows, 1).known, (rows.t < 2)[:, None] & [False, True, False])


def test_several_sites_and_offsets_are_one_result(recording: Recording) -> None:
    speed = ("listener_0", "observation", "velocity_x")
    result = decode(recording, site="listener/actor/hidden_*", label=speed, offset=[-1, 0], n_shuffles=3)
    assert [(s.site[-1], s.offset, s.n_rows) for s in result.scores] == [
        ("1", -1, 60 * 24), ("1", 0, 60 * 25), ("2", -1, 60 * 24), ("2", 0, 60 * 25),
    ]  # fmt: skip
    assert result.of(site="listener/actor/hidden_1", offset=0).score > 0.95
    assert all(s.p_holm == 1.0 and s.p_value == 0.25 for s in result.scores)
    assert "none can survive Holm's correction with fewer than 79 shuffles" in result.resolution
    assert len(result.direction(site="listener/actor/hidden_2", offset=0).vector) == 64
    assert result.to_json()["scores"][0]["offset"] == -1
    with pytest.raises(AnalysisError, match="2 scores match"):
        result.of(offset=0)


def test_each_group_has_classes_of_its_own(recording: Recording) -> None:
    """What the speaker says and how the listener moves have equal numbers and other names."""
    options = {"label": "action", "n_shuffles": 1, "progress": False}
    both = decode(recording, site="*/actor/hidden_1", **options)  # type: ignore[arg-type]
    names: list[str] = []
    for decoder, score in zip(both.decoders, both.scores):
        alone = decode(recording, site=decoder.site, **options)  # type: ignore[arg-type]
        assert decoder.classes == alone.classes and (score.score, score.chance) == (alone.of().score, alone.of().chance)
        assert set(decoder.classes) <= set(recording.spec.group_of(decoder.agent).action.names)
        names += decoder.classes
    assert both.agents == ("speaker_0", "listener_0") and both.classes == tuple(names)
    np.testing.assert_array_equal(
        both.direction("speaker_0", "say_1").vector,
        decode(recording, site="speaker/actor/hidden_1", **options).direction(value="say_1").vector,  # type: ignore[arg-type]
    )


def test_a_planted_share_of_variance_is_recovered(recording: Recording) -> None:
    units = recording["listener/actor/hidden_1"].to_numpy()[:, 0]
    noise = np.random.default_rng(0).standard_normal(len(units))
    signal = units @ np.linspace(-1, 1, 64)

    def half_known(recording: Recording) -> np.ndarray:
        return signal / signal.std() + noise

    result = decode(recording, site="listener/actor/hidden_1", label=half_known, n_shuffles=1)
    assert result.label == "half_known" and result.of().score == pytest.approx(0.5, abs=0.08)


def test_invalid_labels_are_rejected(recording: Recording) -> None:
    def ask(label: object, **options: object) -> None:
        decode(recording, site="listener/actor/hidden_1", label=label, **options)  # type: ignore[arg-type]

    with pytest.raises(AnalysisError, match="did you mean 'goal_red'"):
        ask(("speaker_0", "observation", "goal_re"))
    with pytest.raises(AnalysisError, match="which feature of observation"):
        ask(("speaker_0", "observation"))
    with pytest.raises(AnalysisError, match="did you mean 'speaker_0'"):
        ask(("speaker_1", "action"))
    with pytest.raises(AnalysisError, match="no rows of checkpoint 99"):
        ask("goal", checkpoint=99)
    with pytest.raises(AnalysisError, match="offset=30 is outside every episode"):
        ask("goal", offset=30)


def test_words_are_classes(recording: Recording) -> None:
    goal = recording.label("goal").to_numpy()
    words = np.array(["red", "green", "blue"])[goal]
    for label in (words, words.astype(object), lambda recording: words):
        result = decode(recording, site="listener/actor/hidden_1", label=label, n_shuffles=1, progress=False)
        assert result.kind == "classification" and result.classes == ("blue", "green", "red") and result.notes == ()
        same = decode(recording, site="listener/actor/hidden_1", label=2 - goal, n_shuffles=1, progress=False)
        swapped = np.array([2, 1, 0])  # alphabetical order is the other way round
        np.testing.assert_array_equal(result.decoders[0].patterns, same.decoders[0].patterns)
        assert swapped[goal].tolist() == (2 - goal).tolist() and result.of().score == same.of().score
    tuned = tuning(recording, site="listener/actor/hidden_1", label=words, n_shuffles=20, n_bootstrap=20)
    assert tuned.bins == ("blue", "green", "red")
    happened = event_average(recording, site="listener/actor/hidden_1", event=words, value="green")
    assert happened.event == "label = green"


def test_values_that_a_mask_hides_are_unknown(recording: Recording) -> None:
    goal, hidden = recording.label("goal").to_numpy(), recording.rows["t"].to_numpy() % 2 == 1
    source = RowSource(recording, "listener")
    rows = source.rows([3, 5])
    words = np.array(["red", "green", "blue"])[goal]
    for values, fill in ((goal, -999), (goal.astype(float), 1e20), (words, "N/A")):
        masked = np.ma.masked_array(np.where(hidden, fill, values), mask=hidden)
        for label in (masked, masked[:, None], lambda recording, masked=masked: masked):
            result = resolve_label(source, rows, label)
            np.testing.assert_array_equal(result.known[:, 0], ~hidden[rows.index])
    result = decode(recording, site="speaker/actor/hidden_1", label=np.ma.masked_array(goal, hidden), n_shuffles=1)
    assert result.classes == ("0", "1", "2") and result.of().n_rows == (~hidden).sum()


def test_objects_are_what_they_hold(recording: Recording) -> None:
    """As pandas gives them: None is no value, and no class either."""
    speed = recording.steps("listener", "observation").sel(feature="velocity_x").to_numpy()[:, 0].astype(object)
    speed[:100] = None
    source = RowSource(recording, "listener")
    result = resolve_label(source, source.rows(None), speed)
    assert result.values.dtype == np.float64 and result.known[:, 0].tolist() == [False] * 100 + [True] * 1400
    mixed = np.where(np.arange(1500) < 7, None, "here").astype(object)
    with pytest.raises(AnalysisError, match="a word at some rows and none at 7"):
        resolve_label(source, source.rows(None), mixed)
    with pytest.raises(AnalysisError, match="neither numbers nor words"):
        resolve_label(source, source.rows(None), np.array([{}] * 1500, dtype=object))


def test_whole_numbers_as_floats_draw_a_note(recording: Recording) -> None:
    """An integer column with missing values is one of floats."""
    goal = recording.label("goal").to_numpy().astype(float)
    goal[:40] = np.nan
    site = "listener/actor/hidden_1"
    result = decode(recording, site=site, label=goal, n_shuffles=1, progress=False)
    assert result.kind == "regression"
    assert (
        result.notes[0]
        == "'label' holds 0, 1, 2 as floats and is taken as a quantity; kind='classification' makes classes"
    )
    options = decode(recording, site=site, label=goal, kind="regression", n_shuffles=1, progress=False)
    assert len(options.notes) == 1 and "not a number" in options.notes[0]
    with pytest.raises(AnalysisError, match="no kind 'classify' of decoding; did you mean 'classification'"):
        decode(recording, site=site, label=goal, kind="classify")  # type: ignore[arg-type]


def test_a_class_that_is_missing_from_folds_raises_chance_and_no_interval_leaves_the_scale(
    recording: Recording,
) -> None:
    """Where four folds of five hold one class only, the constant answer is right in them: 0.9 and not 0.5."""
    rare = (recording.rows["episode"].to_numpy() == 1).astype(int)
    result = decode(recording, site="listener/actor/hidden_1", label=rare, n_shuffles=2, progress=False).of()
    assert result.chance == pytest.approx(0.9) and 0 <= result.low <= result.high <= 1
    streamed = decode(
        recording, site="listener/actor/hidden_1", label=rare, n_shuffles=2, memory_bytes=1, progress=False
    ).of()
    assert streamed.chance == pytest.approx(0.9) and not streamed.survives()
