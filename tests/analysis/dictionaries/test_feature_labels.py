"""label_features: a feature that goes with a label is found, and not where something else that is given explains it."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.feature_labels import label_features
from marlnb.analysis.dictionaries.feature_labels_result import FeatureLabels
from marlnb.analysis.representations.eta_squared import eta_squared
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


@pytest.fixture(scope="module")
def planted(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Units are noise, but for 3, which follows whether the listener's action is 2, and 5, which follows goal 1."""
    path = tmp_path_factory.mktemp("features") / "recording.h5"
    path.write_bytes(recording.path.read_bytes())
    rng = np.random.default_rng(0)
    with h5py.File(path, "r+") as file:
        units = file[f"activations/{SITE}"]
        values = 0.3 * rng.standard_normal(units.shape).astype(np.float32)
        values[:, 0, 3] += 6.0 * (file["steps/listener/action"][:, 0] == 2)
        values[:, 0, 5] += 6.0 * (file["labels/goal"][:] == 1)
        units[...] = values
    return Recording.open(path)


@pytest.fixture(scope="module")
def dictionary(planted: Recording) -> Dictionary:
    return mnb.train_dictionary(planted, site=SITE, n_features=32, k=3, epochs=20, progress=False)


def _feature_of(dictionary: Dictionary, unit: int) -> int:
    """The feature that writes most along a unit, over all rows; a rare one may take a part of them."""
    return int((dictionary.density * dictionary.autoencoder.decoder[:, unit].numpy()).argmax())


def test_the_feature_of_a_label_has_its_eta_squared(planted: Recording, dictionary: Dictionary) -> None:
    result = label_features(dictionary, planted, "goal")
    feature = _feature_of(dictionary, 5)
    assert feature in result.matched and result.share[feature] > 0.5 and result.p_value[feature] < 0.05
    assert result.bins[result.preferred[feature]] == "green" and result.low[feature] > 0.3
    values = dictionary.features(planted)[:, 0].astype(float)
    expected = eta_squared(values, planted.label("goal").to_numpy(), 3)
    np.testing.assert_allclose(result.share, expected, atol=1e-6)
    np.testing.assert_allclose(result.share_alone, expected, atol=1e-6)
    assert "features of listener/actor/hidden_1 of listener_0 go with goal (n = 60 episodes" in result.verdict
    assert json.dumps(result.to_json(), allow_nan=False) and "most active at" in repr(result).splitlines()[0]


def test_what_is_given_explains_a_feature_away(planted: Recording, dictionary: Dictionary) -> None:
    """`is_two` is a function of the action: beyond the action nothing of it is left, beyond half of it some."""
    action = planted.steps("listener", "action").to_numpy()[:, 0]
    rng = np.random.default_rng(3)
    copied = np.where(rng.random(len(action)) < 0.9, action == 2, rng.random(len(action)) < 0.5).astype(int)
    alone = label_features(dictionary, planted, copied)
    feature = _feature_of(dictionary, 3)
    assert feature in alone.matched and alone.share[feature] > 0.4
    beyond = label_features(dictionary, planted, copied, given="action")
    assert feature not in beyond.matched and beyond.share[feature] < 0.02 < beyond.share_alone[feature]
    assert beyond.given == "own action" and not len(beyond.matched)
    assert beyond.verdict.startswith("label is not separable from own action in the features of listener/actor/hidden")
    goal = label_features(dictionary, planted, "goal", given="action")
    assert _feature_of(dictionary, 5) in goal.matched and "go with goal beyond own action" in goal.verdict
    with pytest.raises(AnalysisError, match="determines the label"):
        label_features(dictionary, planted, "goal", given="goal")


def test_rows_choose_time_steps_by_a_condition(planted: Recording, dictionary: Dictionary) -> None:
    t = planted.rows["t"].to_numpy()
    result = label_features(dictionary, planted, "goal", rows="t < 10 and goal != 'red'")
    goal = planted.label("goal").to_numpy()
    assert result.n_rows == int(((t < 10) & (goal != 0)).sum()) and result.bins == ("green", "blue")
    assert "other rows do not count" in repr(result)
    with pytest.raises(AnalysisError, match="never varies over the"):
        label_features(dictionary, planted, "goal", rows="goal == 'red'")
    with pytest.raises(AnalysisError, match="takes positions of rows; label_features"):
        dictionary.features(planted, "t < 10")  # type: ignore[arg-type]


def test_noise_goes_with_no_feature(planted: Recording, dictionary: Dictionary) -> None:
    episode = planted.rows["episode"].to_numpy()
    noise = np.random.default_rng(0).integers(0, 2, episode.max() + 1)[episode]
    result = label_features(dictionary, planted, noise)
    assert isinstance(result, FeatureLabels) and result.verdict.startswith("No feature of listener/actor/hidden_1")
    assert "several features together were not tested" in result.verdict


def test_a_label_that_depends_on_time_alone_equals_its_shuffles(planted: Recording, dictionary: Dictionary) -> None:
    late = planted.rows["t"].to_numpy() > 12
    np.testing.assert_array_equal(label_features(dictionary, planted, late).p_value, 1)
