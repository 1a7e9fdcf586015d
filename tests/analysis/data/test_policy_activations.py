"""Activations that a policy has on recorded observations, against those that were recorded while it played."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.analysis.data.policy_activations import policy_activations, untrained_policy
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import View
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.dictionaries.behaviour_preserved import behaviour_preserved
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.analysis.representations.tuning import tuning
from marlnb.envs.games.tree import KuhnPokerConfig
from marlnb.errors import AnalysisError
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.recording.capture.recorder import record
from tests.recording.runs import LivesConfig, make_run

SITE = "player/actor/gru"


def test_an_agent_that_waits_for_its_turn_keeps_its_memory(tmp_path: Path) -> None:
    """In Kuhn poker a player who checked acts again after the other's bet: the recording has what its memory was."""
    run = make_run(tmp_path / "kuhn", KuhnPokerConfig(), GRUConfig())
    with record(run, episodes=30, explore=True, sites=SITE, progress=False) as recording:
        source = RowSource(recording, "player")
        rows = source.rows(None)
        again = policy_activations(source, run.policies()["player"].eval(), SITE, rows)
        acting, recorded = source.acting(rows), recording[SITE].to_numpy()
    assert acting[rows.t == 2].sum() > 3 and not acting.all()
    np.testing.assert_allclose(again[acting], recorded[acting], atol=1e-5)


def test_a_network_that_reads_agents_needs_a_recording_of_them(tmp_path: Path) -> None:
    """Zeros instead of their observations would be other inputs: the network would differ from itself."""
    run = make_run(tmp_path / "run", LivesConfig(), GNNConfig(hidden=(8,)), centralised=False)
    site = "a/actor/messages_1"
    with record(run, episodes=30, sites=site, name="all", progress=False) as whole:
        recorded, again = View(whole, site, "a_0").open(), View(whole, site, "a_0", policy_source=run).open()
        np.testing.assert_allclose(again.all(), recorded.all(), atol=1e-5)
        assert untrained_policy(recorded.source, site, recorded.source.rows(None), 0)[0] is not None
    sites = [site, "a/critic/messages_1"]
    with record(run, episodes=30, sites=sites, agents=["a_0"], name="one", progress=False) as one:
        missing = r"not recorded: \['a_1', 'a_2'\]"
        with pytest.raises(AnalysisError, match=missing):
            View(one, site, "a_0", policy_source=run).open()
        with pytest.raises(AnalysisError, match=missing):
            concept_activation(one, concept="odd", site=site)
        stream, autoencoder = ActivationStream(one, site, None, seed=0), SparseAutoencoder(64, 8, "topk", 2, seed=0)
        autoencoder.mean, autoencoder.scale = stream.mean_and_scale()
        with pytest.raises(AnalysisError, match=missing):
            behaviour_preserved(evaluate_dictionary(autoencoder, stream, site=site, losses=[]), one)
        tuned = tuning(one, site=site, label="odd", n_shuffles=20, n_bootstrap=20)
        decoded = [decode(one, site=name, label="odd", n_shuffles=5, folds=3, progress=False) for name in sites]
    reason = "no untrained network to compare with: it reads agents that were not recorded: ['a_1', 'a_2'"
    assert tuned.untrained is None and any(reason in note for note in tuned.notes)
    for result in decoded:
        assert any(reason in text for text in result.warnings)


def test_another_policy_at_the_site_of_one_agent(tmp_path: Path) -> None:
    """It has what was recorded, and its agent need not be named."""
    models = {"a_0": GRUConfig(hidden=(), recurrent_size=4), "a_2": MLPConfig(hidden=(5,))}
    run = make_run(tmp_path / "run", LivesConfig(), models=models, centralised=False)
    sites = ["a/actor/a_0/gru", "a/actor/a_2/hidden_1"]
    with record(run, episodes=6, sites=sites, name="all", progress=False) as whole:
        for site in sites:
            recorded, again = (View(whole, site, policy_source=source).open() for source in (None, run))
            assert again.agent == recorded.agent and len(again) > 10
            np.testing.assert_allclose(again.all(), recorded.all(), atol=1e-5)
        with pytest.raises(AnalysisError, match=r"no agent 'a_0' at 'a/actor/a_2/hidden_1'.* Valid: a_2"):
            View(whole, sites[1], "a_0", policy_source=run).open()
    with record(run, episodes=2, sites=sites[1], agents=["a_2"], name="one", progress=False) as one:
        with pytest.raises(AnalysisError, match=f"the recording has no agent that site {sites[0]} belongs to"):
            View(one, sites[0], policy_source=run).open()
