"""embed: principal components equal numpy's, UMAP separates planted clusters, warnings."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from marlnb.analysis.representations import embedding as module
from marlnb.analysis.representations.embedding import _umap, embed
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def test_principal_components_are_numpys(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 101)
    result = embed(recording, site=SITE, color="goal", max_points=5000)
    x = recording[SITE].to_numpy()[:, 0].astype(float)
    centred = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(result.points), np.abs((u * s)[:, :2]), atol=1e-4)
    np.testing.assert_allclose(result.explained, (s**2 / (s**2).sum())[:2], rtol=1e-5)
    np.testing.assert_array_equal(result.color, recording.label("goal").to_numpy())
    assert result.color_names == ("red", "green", "blue") and 0.5 < result.trust <= 1 and result.warnings == ()
    assert len(result.table()) == 1500


def test_agents_are_embedded_together(team: Recording) -> None:
    result = embed(team, site="agent/actor/gru", max_points=200)
    x = np.concatenate([team["agent/actor/gru"].sel(agent=a).to_numpy() for a in ("agent_0", "agent_2")]).astype(float)
    _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    all_points = (x - x.mean(axis=0)) @ directions[:2].T
    place = team.rows.set_index(["episode", "t"]).index.get_indexer(list(zip(result.episode, result.t)))
    np.testing.assert_allclose(np.abs(result.points), np.abs(all_points[place + 300 * result.agent_index]), atol=1e-4)
    np.testing.assert_array_equal(result.color, result.agent_index)


@pytest.fixture
def umap_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling umap takes half a minute; on few points its functions are fast enough in plain Python."""
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)  # read when umap is imported


@pytest.mark.usefixtures("umap_is_not_compiled")
def test_umap_separates_planted_clusters_and_is_seeded() -> None:
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(3), 12)
    x = 8 * np.eye(3, 10)[which] + rng.standard_normal((36, 10))
    points = _umap(x, 6, 0)
    assert torch.get_num_threads() == 1
    centres = np.stack([points[which == k].mean(axis=0) for k in range(3)])
    reach = max(np.linalg.norm(points[which == k] - centres[k], axis=1).max() for k in range(3))
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in permutations(range(3), 2)) > 2 * reach
    np.testing.assert_array_equal(points, _umap(x, 6, 0))


def test_invalid_requests_are_rejected(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'pca'"):
        embed(recording, site=SITE, method="pcaa")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="needs more than 15 points"):
        embed(recording, site=SITE, method="umap", max_points=12)
    assert embed(recording, site=SITE, max_points=50).warnings == ("only 50 points",)
