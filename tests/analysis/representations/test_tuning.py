"""tuning: planted units are found, noise is not, and the numbers are those of their formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from marlnb.analysis.data.row_values import RowValues
from marlnb.analysis.representations.bins import binned
from marlnb.analysis.representations.eta_squared import eta_squared, resampled_eta_squared, tuned_beyond_chance
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


@pytest.fixture(scope="module")
def planted(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A copy of the recording whose units are noise, but for 3 (goal 2), 7 (grows with goal_dx) and 9 (dead)."""
    path = tmp_path_factory.mktemp("planted") / "recording.h5"
    path.write_bytes(recording.path.read_bytes())
    rng = np.random.default_rng(0)
    with h5py.File(path, "r+") as file:
        units = file[f"activations/{SITE}"]
        values = rng.standard_normal(units.shape).astype(np.float32)
        values[:, 0, 3] += 8.0 * (file["labels/goal"][:] == 2)
        values[:, 0, 7] += 3.0 * file["labels/goal_dx"][:]
        values[:, 0, 9] = 0.5
        units[...] = values
    return Recording.open(path)


def test_eta_squared_by_hand() -> None:
    x = np.array([[0.0, 1, 5], [2, 1, 5], [4, 1, 5], [6, 1, 5]])
    # bins {0, 2} and {4, 6}: means 1 and 5 about 3, so between 4 * 4 = 16 of 9 + 1 + 1 + 9 = 20
    np.testing.assert_allclose(eta_squared(x, np.array([0, 0, 1, 1]), 2), [16 / 20, 0, 0])


def test_eta_squared_of_a_bootstrap_sample_is_that_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    x, label, episode = rng.standard_normal((20, 3)), rng.integers(0, 3, 20), np.repeat(np.arange(4), 5)
    (result,) = resampled_eta_squared(x, label, 3, episode, np.array([[2.0, 0.0, 1.0, 1.0]]))
    drawn = np.concatenate([np.flatnonzero(episode == number) for number in (0, 0, 2, 3)])
    np.testing.assert_allclose(result, eta_squared(x[drawn], label[drawn], 3))


def test_p_values_depend_on_the_units_ranks_alone() -> None:
    rng = np.random.default_rng(0)
    x, label, episode = rng.standard_normal((200, 4)), rng.integers(0, 2, 200), np.repeat(np.arange(20), 10)
    x[:, 0] += 0.4 * label
    options = {"n_bins": 2, "episode": episode, "t": np.tile(np.arange(10), 20), "n_shuffles": 40}
    plain, stretched = (
        tuned_beyond_chance(values, label, rng=np.random.default_rng(1), **options)  # type: ignore[arg-type]
        for values in (x, np.exp(4 * x))
    )
    np.testing.assert_array_equal(plain, stretched)
    assert plain[0] < 0.1 < plain[1:].min()


def test_tuning_selects_the_planted_units_and_no_other(planted: Recording) -> None:
    result = tuning(planted, site=SITE, label="goal", n_shuffles=50, n_bootstrap=50)
    assert result.bins == ("red", "green", "blue") and result.is_class
    assert result.tuned.tolist() == [3] and result.order[0] == 3
    goal, units = planted.label("goal").to_numpy(), planted[SITE].to_numpy()[:, 0]
    for k in range(3):
        np.testing.assert_allclose(result.curve[k], units[goal == k].mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.scale, units.std(axis=0), rtol=1e-4)
    assert result.bins[result.preferred[3]] == "blue"
    share = np.mean(goal == 2)
    expected = 64 * share * (1 - share) / (64 * share * (1 - share) + 1)
    assert result.strength[3] == pytest.approx(expected, abs=0.02)
    assert result.strength[9] == 0 and result.p_value[9] == 1
    assert result.low[2, 3] < 8 < result.high[2, 3] and result.high[2, 3] - result.low[2, 3] < 0.6
    assert result.warnings == () and "1 of 64 units of listener_0 at " in result.verdict
    assert json.loads(json.dumps(result.to_json()))["label"] == "goal" and result.table()["unit"][0] == 3


def test_the_strongest_of_a_verdict_is_among_the_tuned_units(planted: Recording) -> None:
    """p-values are of ranks, so the unit with the largest η² need not have the smallest."""
    result = tuning(planted, site=SITE, label="goal", n_shuffles=20, n_bootstrap=20)
    second = result.order[1]
    result = replace(result, p_value=np.where(np.arange(64) == second, 0.04, 0.19))
    assert "1 of 64 units" in result.verdict and f"the strongest is unit {second}, η² " in result.verdict


def test_units_are_tuned_by_their_ranks(planted: Recording, tmp_path: Path) -> None:
    path = tmp_path / "stretched.h5"
    path.write_bytes(planted.path.read_bytes())
    with h5py.File(path, "r+") as file:
        units = file[f"activations/{SITE}"]
        units[...] = np.where(units[...] > 1, 16 * units[...], units[...])
    options = {"site": SITE, "label": "goal", "n_shuffles": 20, "n_bootstrap": 20}
    with Recording.open(path) as stretched:
        plain, other = (tuning(each, **options) for each in (planted, stretched))  # type: ignore[arg-type]
    np.testing.assert_array_equal(plain.p_value, other.p_value)
    assert not np.allclose(plain.strength, other.strength)


def test_tuning_that_an_untrained_network_has_too_is_not_called_learned(
    recording: Recording, planted: Recording
) -> None:
    """The recorded policy is hardly trained; in the copy unit 3 was written by hand."""
    same = tuning(recording, site=SITE, label="goal_dx", n_shuffles=50, n_bootstrap=50)
    assert len(same.tuned) and same.untrained is not None and same.untrained.n_tuned
    assert same.untrained.low <= 0 and "this is not shown to be learned" in same.verdict
    strongest = "in one of 19 untrained networks the strongest unit has about as large an η² or a larger one"
    none_tuned = replace(same, untrained=replace(same.untrained, n_tuned=0)).verdict
    assert strongest in none_tuned and none_tuned.endswith("; 0 units are tuned beyond chance there).")
    for seed in (0, 3):  # here the first untrained network has lower values than most others
        velocity = tuning(
            recording, site="listener/actor/hidden_2", label="velocity_y", n_shuffles=20, n_bootstrap=50, seed=seed
        )
        assert len(velocity.tuned) and velocity.untrained is not None and velocity.untrained.low <= 0
    written = tuning(planted, site=SITE, label="goal", n_shuffles=50, n_bootstrap=50)
    assert written.untrained is not None and written.untrained.low > 0
    best = written.strength[3] - written.untrained.strength.max()
    assert written.untrained.gain == pytest.approx(best) and written.untrained.low < best < written.untrained.high
    assert (
        "is tuned more than any unit of 19 untrained networks" in written.verdict and "n = 60 epis" in written.verdict
    )


def test_a_quantity_is_binned_into_equally_many_rows(planted: Recording) -> None:
    result = tuning(planted, site=SITE, label="goal_dx", bins=8, n_shuffles=50, n_bootstrap=50)
    assert not result.is_class and len(result.bins) == 8
    assert result.count.tolist() == pytest.approx([1500 / 8] * 8, abs=40)  # agents that stand still see it again
    assert result.order[0] == 7 and 7 in result.tuned and (np.diff(result.curve[:, 7]) > 0).all()
    slope = np.polyfit(result.centres, result.curve[:, 7], 1)[0]
    assert slope == pytest.approx(3.0, abs=0.15)


def test_a_label_that_is_constant_within_episodes_is_permuted_by_episode(recording: Recording) -> None:
    """Noise drawn once an episode: without keeping episodes whole, every unit would be tuned to it."""
    episode = recording.rows["episode"].to_numpy()
    noise = np.random.default_rng(0).integers(0, 2, episode.max() + 1)[episode]
    result = tuning(recording, site=SITE, label=noise, n_shuffles=50, n_bootstrap=20)
    assert result.shuffled.mean() > 0.005  # far more than 1 / 1500, what single steps drawn at random would give
    assert len(result.tuned) <= 1


def test_labels_of_observation_action_and_time(recording: Recording) -> None:
    for by, n_bins in (("t", 25), ("action", None), ("velocity_x", 4)):
        result = tuning(recording, site=SITE, label=by, bins=4, n_shuffles=20, n_bootstrap=20)
        assert result.label in (by, "time (steps)") and (n_bins is None or len(result.bins) == n_bins)
    half = tuning(recording, site=SITE, label=lambda r: r.rows["t"].to_numpy() >= 12, n_shuffles=20, n_bootstrap=20)
    assert half.count.tolist() == [720, 780]


def test_ties_make_fewer_bins() -> None:
    values = np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0])
    result = binned(RowValues(values, np.ones(10, bool), "x", ()), 4)
    assert result.names == ("0", "1", "2 to 4") and np.bincount(result.index).tolist() == [6, 1, 3]
    np.testing.assert_allclose(result.centres, [0, 1, 3])
    mostly = np.concatenate([np.zeros(900), np.linspace(1, 2, 100)])  # nine quantiles of ten are 0
    assert np.bincount(binned(RowValues(mostly, np.ones(1000, bool), "x", ()), 10).index).tolist() == [900, 100]


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.25, 1.0), (-1.0, 2.5, 2.75, 9.0)])
def test_a_quantity_of_few_values_has_a_bin_for_each(recording: Recording, values: tuple[float, ...]) -> None:
    drawn = np.random.default_rng(1).integers(0, len(values), len(recording))
    as_quantity = tuning(recording, site=SITE, label=np.array(values)[drawn], n_shuffles=20, n_bootstrap=20)
    as_classes = tuning(recording, site=SITE, label=drawn, n_shuffles=20, n_bootstrap=20)
    assert as_quantity.bins == tuple(f"{value:g}" for value in values)
    np.testing.assert_array_equal(as_quantity.strength, as_classes.strength)
    np.testing.assert_array_equal(as_quantity.curve, as_classes.curve)
    assert np.isfinite(as_quantity.curve).all() and as_quantity.strength.max() > 0


def test_invalid_requests_are_rejected(recording: Recording, team: Recording) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'goal'"):
        tuning(recording, site=SITE, label="gaol")
    with pytest.raises(AnalysisError, match="never varies"):
        tuning(recording, site=SITE, label=np.ones(len(recording), int))
    with pytest.raises(AnalysisError, match="1500 whole values, more than 32"):
        tuning(recording, site=SITE, label=np.arange(len(recording)))
    few = tuning(team, site="agent/actor/gru", agent="agent_0", label="t", n_shuffles=20, n_bootstrap=20)
    assert any("only 12 episodes" in note for note in few.warnings) and "NOT TO BE TRUSTED" in repr(few)


def test_rows_are_chosen_and_what_is_given_no_longer_counts(planted: Recording) -> None:
    """Unit 3 differs for goal 2 alone, so among the other goals, and given the goal, nothing of it is left."""
    options = {"site": SITE, "label": "goal", "n_shuffles": 20, "n_bootstrap": 20}
    others = tuning(planted, rows="goal != 'blue'", **options)  # type: ignore[arg-type]
    assert others.bins == ("red", "green") and others.strength[3] < 0.02 and others.rows == "goal != 'blue'"
    assert "other rows do not count" in repr(others)
    goal = planted.label("goal").to_numpy()
    assert others.count.sum() == (goal != 2).sum()
    given = tuning(planted, given=lambda _: (goal == 2).astype(int), **options)  # type: ignore[arg-type]
    assert given.strength[3] < 0.02 and given.given == "<lambda>" and "given <lambda>" in given.verdict
    assert "beyond chance, each by itself" in given.verdict
    unit = planted[SITE].to_numpy()[:, 0, 3]
    np.testing.assert_allclose(given.curve[2, 3], unit.mean(), atol=1e-5)  # what is given says when the goal is 2
    with pytest.raises(AnalysisError, match="given goal: it determines 'goal', so nothing of it is left"):
        tuning(planted, given="goal", **options)  # type: ignore[arg-type]
    unrelated = tuning(planted, given="goal_dx", **options)  # type: ignore[arg-type]
    assert unrelated.tuned.tolist() == [3] and unrelated.strength[7] < 0.05
    with pytest.raises(AnalysisError, match="goal_dx"):
        tuning(planted, given="goal_dxx", **options)  # type: ignore[arg-type]


def test_units_that_what_is_given_determines_have_no_tuning(planted: Recording, tmp_path: Path) -> None:
    """Units 0 to 31 are functions of the goal, so that a regression on it leaves rounding errors of them."""
    path = tmp_path / "determined.h5"
    path.write_bytes(planted.path.read_bytes())
    with h5py.File(path, "r+") as file:
        units, goal = file[f"activations/{SITE}"], file["labels/goal"][:]
        values = units[...]
        values[:, 0, :32] = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)[goal]
        units[...] = values
    options = {"site": SITE, "label": "action", "given": "goal", "n_shuffles": 20, "n_bootstrap": 20}
    with Recording.open(path) as recording:
        result = tuning(recording, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(result.strength[:32], 0)
    np.testing.assert_array_equal(result.p_value[:32], 1)
    assert result.scale[:32].max() < 1e-12 and result.scale[32] > 0.9
    with h5py.File(path, "r+") as file:
        file[f"activations/{SITE}"][...] = np.tile(values[..., :32], 2)
    with Recording.open(path) as recording, pytest.raises(AnalysisError, match="given goal, nothing is left of"):
        tuning(recording, **options)  # type: ignore[arg-type]
