"""similarity: measures equal their formulas, have their invariances, and are compared with chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cross_decomposition import CCA

from marlnb.analysis.data.views import View
from marlnb.analysis.representations.similarity import similarity, similarity_matrix
from marlnb.analysis.stats.similarity_measures import (
    METHODS,
    SimilarityMethod,
    block_sums,
    canonical_correlations,
    similarity_function,
)
from marlnb.errors import AnalysisError, SiteError
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run

SITE = "listener/actor/hidden_1"


def score(x: np.ndarray, y: np.ndarray, method: SimilarityMethod) -> float:
    """Through sums over three blocks in two batches, as recordings are read."""
    block = np.arange(len(x)) % 3
    half = len(x) // 2
    batches = [(x[:half], y[:half], block[:half]), (x[half:], y[half:], block[half:])]
    return similarity_function(method)(block_sums(batches, x.shape[1], y.shape[1], 3).weighted(np.ones(3)))


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 5)) * [3, 1, 1, 0.5, 0.2] + 7
    return x, x[:, :3] @ rng.standard_normal((3, 4)) + rng.standard_normal((300, 4)) - 2


def test_cka_equals_its_formula_over_kernel_matrices(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pair
    centring = np.eye(len(x)) - 1 / len(x)
    k, l = centring @ x @ x.T @ centring, centring @ y @ y.T @ centring  # noqa: E741
    expected = np.sum(k * l) / np.sqrt(np.sum(k * k) * np.sum(l * l))
    assert score(x, y, "cka") == pytest.approx(expected, rel=1e-9)


def test_unbiased_cka_equals_its_formula_over_kernel_matrices(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pair

    def hsic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
        n, one = len(k), np.ones(len(k))
        cross = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * one @ k @ l @ one
        return float((np.trace(k @ l) + cross) / (n * (n - 3)))

    k, l = x @ x.T, y @ y.T  # noqa: E741
    np.fill_diagonal(k, 0), np.fill_diagonal(l, 0)
    expected = hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))
    assert score(x, y, "unbiased_cka") == pytest.approx(expected, rel=1e-7)


def test_unbiased_cka_of_unrelated_units_is_about_zero_and_cka_is_not() -> None:
    rng = np.random.default_rng(1)
    result = [
        [score(rng.standard_normal((30, 20)), rng.standard_normal((30, 20)), method) for _ in range(20)]
        for method in ("cka", "unbiased_cka")
    ]
    assert np.mean(result[0]) > 0.35 and abs(np.mean(result[1])) < 0.05


def test_canonical_correlations_equal_scikit_learns(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pair
    oracle = CCA(n_components=4, max_iter=5000, tol=1e-12).fit(x, y)
    u, v = oracle.transform(x, y)
    expected = [np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(4)]
    sums = block_sums([(x, y, np.zeros(len(x), int))], 5, 4, 1).weighted(np.ones(1))
    np.testing.assert_allclose(canonical_correlations(sums), expected, atol=1e-5)
    assert score(x, y, "cca") == pytest.approx(np.mean(expected), abs=1e-5)
    weights = np.abs((x - x.mean(0)).T @ (u / np.linalg.norm(u, axis=0))).sum(0)
    assert score(x, y, "pwcca") == pytest.approx(weights @ expected / weights.sum(), abs=1e-4)


def test_svcca_ignores_directions_of_little_variance() -> None:
    rng = np.random.default_rng(2)
    shared = rng.standard_normal((500, 2))
    x = np.hstack([shared, 1e-2 * rng.standard_normal((500, 6))])
    y = np.hstack([shared, 1e-2 * rng.standard_normal((500, 6))])
    assert score(x, y, "svcca") == pytest.approx(1.0, abs=1e-3)
    assert score(x, y, "cca") < 0.5  # six of eight directions are noise


@pytest.mark.parametrize("method", METHODS)
def test_invariances(pair: tuple[np.ndarray, np.ndarray], method: SimilarityMethod) -> None:
    x, y = pair
    rotation, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))
    assert score(x, x, method) == pytest.approx(1.0, abs=1e-6)
    assert score(x, 5 * (x - 3) @ rotation, method) == pytest.approx(1.0, abs=1e-6)
    turned = x if method == "pwcca" else x @ rotation  # its weights are of single units
    assert score(0.1 * turned + 4, 2 * y - 1, method) == pytest.approx(score(x, y, method), abs=1e-6)
    assert 0.1 < score(x, y, method) < 0.999


def test_cca_is_invariant_to_linear_maps_and_cka_is_not(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = pair
    mixed = x @ np.diag([0.01, 1, 1, 1, 30])
    assert score(x, mixed, "cca") == pytest.approx(1.0, abs=1e-6)
    assert score(x, mixed, "cka") < 0.5
    flat = (x - x.mean(0)) / x.std(0)
    u, _, vt = np.linalg.svd(flat, full_matrices=False)
    white = u @ vt  # equal variances, no correlations: half the directions shared
    half = np.hstack([white[:, :2], np.random.default_rng(4).standard_normal((300, 2)) * 1e-9])
    assert score(white[:, :4], half, "cka") == pytest.approx(np.sqrt(2 / 4), abs=1e-6)


def test_a_recording_compared_with_itself_and_with_chance(recording: Recording) -> None:
    result = similarity((recording, SITE), (recording, "listener/actor/hidden_2"), n_shuffles=5)
    x, y = (recording[site].to_numpy()[:, 0] for site in (SITE, "listener/actor/hidden_2"))
    assert result.score == pytest.approx(score(x, y, "cka"), rel=1e-9)
    assert result.low < result.score < result.high and result.high - result.low < 0.2
    assert result.shuffled_high < result.low and result.p_value == 1 / 6 and result.warnings == ()
    assert result.n_rows == 1500 and result.n_episodes == 60 and result.a_units == 64
    assert "are not shown to be more alike" in result.verdict and "5 pairings: too few to test" in result.verdict
    tested = replace(result, n_shuffles=20, p_value=1 / 21)
    assert "are more alike" in tested.verdict and "p = 0.048" in tested.verdict
    assert similarity((recording, SITE), (recording, SITE), n_shuffles=1).score == pytest.approx(1.0)


def test_reading_in_small_batches_changes_nothing(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    from marlnb.analysis.representations import similarity as module

    ask: Callable[[], float] = lambda: similarity((recording, SITE), (recording, "speaker/actor/hidden_1")).shuffled  # noqa: E731
    whole = ask()
    monkeypatch.setattr(module, "BATCH_ROWS", 97)
    assert ask() == pytest.approx(whole, rel=1e-9)


def test_a_policy_on_its_own_recording_gives_the_recorded_activations(
    recording: Recording, team: Recording, run: Run
) -> None:
    for opened, site, agent in ((recording, SITE, None), (team, "agent/actor/gru", "agent_2")):
        recorded = View(opened, site, agent).open()
        shown = View(opened, site, agent, policy_source=str(opened.run_path)).open()
        np.testing.assert_allclose(shown.all(), recorded.all(), atol=1e-5)
    assert "talk@last" in View(recording, SITE, policy_source=run).open().name


def test_a_matrix_over_a_recording(recording: Recording) -> None:
    result = similarity_matrix(recording, sites="listener/actor/*", n_shuffles=1, n_bootstrap=20)
    assert result.rows == result.columns and result.values.shape == (3, 3)
    np.testing.assert_allclose(np.diag(result.values), 1.0)
    np.testing.assert_array_equal(result.values, result.values.T)
    assert result.of(result.rows[0], result.columns[1]) == result.values[0, 1]
    assert len(result.table()) == 9
    assert " of 3 pairs are more alike at the same steps than in episodes paired at random" in result.verdict
    assert "there is no untrained control" in result.verdict


def test_invalid_requests_are_rejected(recording: Recording, team: Recording) -> None:
    with pytest.raises(AnalysisError, match=r"different time steps.*policy_source=run"):
        similarity((recording, SITE), (team, "agent/actor/gru", "agent_0"))
    with pytest.raises(AnalysisError, match=r"belongs to several agents.*agent_0"):
        similarity((team, "agent/actor/gru"), (team, "agent/actor/gru"))
    for wrong in (recording, "a.h5", (recording,)):
        with pytest.raises(AnalysisError, match=r"expected a view: .* \(recording, site\) .*; got "):
            similarity(wrong, wrong)  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="no views to compare"):
        similarity_matrix([])
    with pytest.raises(AnalysisError, match="did you mean 'cka'"):
        similarity((recording, SITE), (recording, SITE), method="ckaa")  # type: ignore[arg-type]
    with pytest.raises(SiteError, match="hidden_9"):
        View(recording, "listener/actor/hidden_9", policy_source=str(recording.run_path)).open()
    few = similarity((team, "agent/actor/gru", "agent_0"), (team, "agent/actor/gru", "agent_2"), method="cca")
    assert any("12 episodes" in note for note in few.warnings)
    assert any("300 rows for 128 units" in note for note in few.warnings) and "NOT TO BE TRUSTED" in repr(few)
