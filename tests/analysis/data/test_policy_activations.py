"""Activations that a policy has on recorded observations, against those that were recorded while it played."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from marlnb.analysis.data.policy_activations import policy_activations
from marlnb.analysis.data.rows import RowSource
from marlnb.envs.games.tree import KuhnPokerConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from tests.recording.runs import make_run

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
