"""What a decoding concludes: the verdict is against every control, and the numbers in it are those of the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.decoding.score import Gain
from marlnb.analysis.stats.linear_models import FoldScores, episode_folds, score_folds
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def planted_in_units(recording: Recording) -> np.ndarray:
    """A nonlinear function of the units `[row]`, which the observation alone does not give linearly."""
    units = recording[SITE].to_numpy()[:, 0]
    return units[:, 3] ** 2 + units[:, 10] ** 2 - 2 * units[:, 3] * units[:, 17]


def test_what_the_observation_holds_is_not_credited_to_the_units(recording: Recording) -> None:
    feature = recording.steps("listener", "observation").to_numpy()[:, 0, 2]
    result = decode(recording, site=SITE, label=feature)
    assert result.of().survives() and result.of().conclusion == "no more than controls"
    assert result.verdict.startswith("label is decoded from listener/actor/hidden_1 of listener_0 no better than from ")
    assert "the observation" in result.verdict and "a feed-forward unit cannot hold more" in result.verdict
    assert repr(result).startswith(result.verdict)
    assert result._repr_html_().startswith(
        "<p><b>label is decoded from listener/actor/hidden_1 of listener_0 no better"
    )


def test_a_gain_that_is_certain_but_negligible_is_no_gain(recording: Recording) -> None:
    """A score of 1.000 against 0.999 of the observation, which every fold shows."""
    result = decode(recording, site=SITE, label="goal_dx", n_shuffles=19)
    (score,) = result.scores
    for high, conclusion in ((0.0015, "no more than controls"), (0.15, "beyond controls")):
        gain = Gain("observation", 0.999, 0.001, 0.0005, high, p_value=1e-4, p_holm=1e-4)
        changed = replace(result, scores=(replace(score, gains=(gain,)),))
        assert changed.of().conclusion == conclusion
        assert ("no better than from the observation" in changed.verdict) == (high == 0.0015)


def test_what_units_hold_beyond_their_controls_is_named_so(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0].astype(np.float64)
    observation = recording.steps("listener", "observation").to_numpy()[:, 0].astype(np.float64)
    observed = np.concatenate([observation, np.ones((len(units), 1))], axis=1)
    mixture = units @ np.random.default_rng(0).normal(size=units.shape[1])
    nonlinear = mixture - observed @ np.linalg.lstsq(observed, mixture, rcond=None)[0]  # no linear part is observed
    result = decode(recording, site=SITE, label=nonlinear)
    score = result.of()
    assert score.conclusion == "beyond controls" and score.is_feed_forward and score.observation < 0.1 < score.score
    assert (
        "is decoded from listener/actor/hidden_1 of listener_0 better than from the observation and an"
        in result.verdict
    )
    assert f"R² {score.score:.2f} [{score.low:.2f}, {score.high:.2f}] (n = 60 episodes, chance 0.00" in result.verdict
    few = decode(recording, site=SITE, label=nonlinear, episodes=range(15))
    assert few.of().conclusion == "too few episodes" and "15 episodes are too few" in few.verdict


def test_noise_is_not_above_chance(recording: Recording) -> None:
    """One noise in twenty is above chance at p = 0.05: of five, three or more once in a thousand times."""
    episode = recording.rows["episode"].to_numpy()
    results = []
    for seed in range(5):
        noise = np.random.default_rng(seed).integers(0, 2, episode.max() + 1)[episode]
        results.append(decode(recording, site=SITE, label=noise, n_shuffles=19))
    noises = [result for result in results if result.of().conclusion == "not above chance"]
    assert len(noises) >= 3 and all("not decoded above chance" in result.verdict for result in noises)
    # a nonlinear code, such as an XOR of units, was not tested
    assert "by a linear model (no other was tested): balanced accuracy" in noises[0].verdict


def test_shuffles_that_tie_with_the_score_are_no_evidence(recording: Recording) -> None:
    """In episodes of equal length another episode's labels are the same where they depend on the step alone."""
    late = (recording.rows["t"].to_numpy() > 12).astype(int)
    assert decode(recording, site=SITE, label=late, n_shuffles=4, progress=False).of().p_value == 1.0


def test_gains_are_paired_over_the_same_folds(recording: Recording) -> None:
    result = decode(recording, site=SITE, label=planted_in_units(recording), n_shuffles=1)
    assert (
        "cannot be distinguished from chance" in result.verdict
        and "p = 0.05 needs 19 shuffles of the labels" in result.verdict
    )
    several = decode(recording, site=[SITE, "listener/actor/hidden_2"], label="goal", n_shuffles=2)
    assert several.verdict.startswith("2 of 2 scores: too few shuffles; ")
    assert "needs 19 shuffles of the labels, got 2" in several.verdict  # the best of all scores needs no more of them
    assert set(several.table()["conclusion"]) == {"too few shuffles"}
    gain = next(gain for gain in result.of().gains if gain.control == "observation")
    assert gain.gain == pytest.approx(result.of().score - result.of().observation)
    assert gain.low < gain.gain < gain.high and 0 < gain.p_value <= gain.p_holm


def test_the_corrected_t_test_is_the_ordinary_one_with_a_larger_error() -> None:
    differences = np.array([0.2, 0.1, 0.3, 0.25, 0.15])
    ordinary = ttest_1samp(differences, 0)
    inflation = np.sqrt((1 / 5 + 1 / 4) / (1 / 5))  # Nadeau and Bengio 2003: the folds share training data
    scores = FoldScores(differences + 0.5) - FoldScores(np.full(5, 0.5))
    low, high = scores.interval()
    interval = ordinary.confidence_interval(0.95)
    assert high - low == pytest.approx(inflation * (interval.high - interval.low))
    assert scores.p_value == pytest.approx(2 * student.sf(ordinary.statistic / inflation, 4))
    assert FoldScores(np.zeros(5)).p_value == 1.0


def test_given_asks_what_the_units_add(recording: Recording) -> None:
    planted = planted_in_units(recording)
    alone = decode(recording, site=SITE, label=planted, n_shuffles=1)
    result = decode(recording, site=SITE, label=planted, n_shuffles=1, given=["landmark_0_dx", "action"])
    assert result.given == "landmark_0_dx, own action" and alone.given == ""
    gain = next(gain for gain in result.of().gains if gain.control == "given")
    units = recording[SITE].to_numpy()[:, 0]
    dx = recording.steps("listener", "observation").to_numpy()[:, :1, 2]
    action = recording.steps("listener", "action").to_numpy()[:, :1]
    known = np.concatenate([dx, action == np.unique(action)], axis=1)
    episode = recording.rows["episode"].to_numpy()
    fold = episode_folds(planted, episode, "regression", 5, 0)
    with_units = score_folds(np.concatenate([units, known], axis=1), planted, fold, "regression")
    without = score_folds(known, planted, fold, "regression")
    assert gain.score == pytest.approx(without.mean) and gain.gain == pytest.approx(with_units.mean - without.mean)
    fully_known = decode(recording, site=SITE, label="landmark_0_dx", n_shuffles=19, given="landmark_0_dx")
    assert fully_known.of().conclusion == "no more than controls" and "landmark_0_dx" in fully_known.verdict
    with pytest.raises(AnalysisError, match="given= does not support"):
        decode(recording, site=SITE, label=planted, given="action", memory_bytes=1, progress=False)


def test_rows_choose_what_is_decoded(recording: Recording) -> None:
    result = decode(recording, site=SITE, label="goal_dx", n_shuffles=1, rows="t >= 5 and goal in ('red', 'blue')")
    assert "note: rows=\"t >= 5 and goal in ('red', 'blue')\": other rows do not count" in repr(result)
    goal, t = recording.label("goal").to_numpy(), recording.rows["t"].to_numpy()
    assert result.of().n_rows == ((t >= 5) & np.isin(goal, [0, 2])).sum()
    assert result.of().n_episodes == len(np.unique(recording.rows["episode"].to_numpy()[np.isin(goal, [0, 2])]))
    at_7 = decode(recording, site=SITE, label="goal_dx", n_shuffles=1, at=7)
    of_rows = decode(recording, site=SITE, label="goal_dx", n_shuffles=1, rows="t == 7")
    assert of_rows.of().score == pytest.approx(at_7.of().score)


def test_several_scores_are_counted_and_tabled(recording: Recording) -> None:
    result: Decoding = decode(recording, site="*/actor/hidden_*", label="goal")
    lines = repr(result).splitlines()
    assert lines[0].startswith(f"{sum(s.conclusion == 'no more than controls' for s in result.scores)} of 4 scores: ")
    assert lines[1].split() == ["site", "agent", "score", "observation", "untrained", "conclusion"]
    table = result.table()
    assert {"gain_over_observation", "p_holm_over_untrained", "conclusion"} <= set(table.columns)
    p_values = [gain.p_value for score in result.scores for gain in score.gains]
    p_holm = [gain.p_holm for score in result.scores for gain in score.gains]
    assert min(p_holm) == pytest.approx(min(1.0, min(p_values) * len(p_values)))
