"""What is counted as preserved where some actions are not allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.analysis.dictionaries.behaviour_preserved import behaviour_preserved
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.recording.capture.recorder import record
from tests.recording.runs import LivesConfig, make_run

SITE = "a/actor/hidden_1"


def test_the_most_likely_action_is_one_that_is_allowed(tmp_path: Path) -> None:
    """By the mean activation m all rows have the logits W m + b; recorded actions are the greedy allowed ones."""
    run = make_run(tmp_path / "run", LivesConfig(), MLPConfig(hidden=(8,)), MLPConfig(hidden=(8,)))
    with record(run, episodes=30, seed=0, sites=SITE, values=False, progress=False) as recording:
        stream = ActivationStream(recording, SITE, None, seed=0)
        autoencoder = SparseAutoencoder(8, 8, "topk", 2, seed=0)
        autoencoder.mean, autoencoder.scale = stream.mean_and_scale()
        dictionary = evaluate_dictionary(autoencoder, stream, site=SITE, losses=[])
        result = behaviour_preserved(dictionary, str(recording.path))
        acting, action, mask = (recording.steps("a", name).to_numpy() for name in ("acting", "action", "action_mask"))
    head = {n: p.detach().numpy() for n, p in run.policies()["a"].actor.named_parameters() if p.shape[-1] in (4, 8)}
    weight = next(p.reshape(4, 8) for p in head.values() if p.size == 32)
    bias = next(p.reshape(4) for p in head.values() if p.size == 4)
    logits = weight @ dictionary.autoencoder.mean.numpy() + bias
    allowed = np.where(mask.astype(bool), logits, -np.inf).argmax(-1)
    expected = (allowed == action)[acting.astype(bool)].mean()
    assert (~mask.astype(bool))[..., logits.argmax()][acting.astype(bool)].mean() > 0.1  # often not allowed
    assert result.actions_preserved_by_mean == pytest.approx(expected, abs=1e-9)
