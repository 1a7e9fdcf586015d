"""embed: principal components are numpy's, UMAP keeps planted clusters apart, doubts are said."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from marlnb.analysis.representations import embedding as module
from marlnb.analysis.representations.embedding import _umap, embed
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def test_principal_components_are_numpys(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 101)
    found = embed(recording, site=SITE, color="goal", max_points=5000)
    x = recording[SITE].to_numpy()[:, 0].astype(float)
    centred = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.points), np.abs((u * s)[:, :2]), atol=1e-4)
    np.testing.assert_allclose(found.explained, (s**2 / (s**2).sum())[:2], rtol=1e-5)
    np.testing.assert_array_equal(found.color, recording.label("goal").to_numpy())
    assert found.color_names == ("red", "green", "blue") and 0.5 < found.trust <= 1 and found.warnings == ()
    assert len(found.table()) == 1500


def test_agents_share_one_map(team: Recording) -> None:
    found = embed(team, site="agent/actor/gru", max_points=200)
    x = np.concatenate([team["agent/actor/gru"].sel(agent=a).to_numpy() for a in ("agent_0", "agent_2")]).astype(float)
    _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    all_points = (x - x.mean(axis=0)) @ directions[:2].T
    place = team.rows.set_index(["episode", "t"]).index.get_indexer(list(zip(found.episode, found.t)))
    np.testing.assert_allclose(np.abs(found.points), np.abs(all_points[place + 300 * found.agent_index]), atol=1e-4)
    np.testing.assert_array_equal(found.color, found.agent_index)


def test_umap_keeps_planted_clusters_apart_and_is_seeded() -> None:
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(3), 40)
    x = 8 * np.eye(3, 10)[which] + rng.standard_normal((120, 10))
    points = _umap(x, 2, 10, 0.1, 0)
    centres = np.stack([points[which == k].mean(axis=0) for k in range(3)])
    reach = max(np.linalg.norm(points[which == k] - centres[k], axis=1).max() for k in range(3))
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in permutations(range(3), 2)) > 2 * reach
    np.testing.assert_array_equal(points, _umap(x, 2, 10, 0.1, 0))


def test_what_cannot_be_mapped_is_said(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'pca'"):
        embed(recording, site=SITE, method="pcaa")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="more than 12 points"):
        embed(recording, site=SITE, method="umap", max_points=12)
    assert embed(recording, site=SITE, max_points=50).warnings == ("only 50 points",)
