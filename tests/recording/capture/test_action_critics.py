"""Runs of learners whose critics judge actions can be recorded and explained as any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.errors import AnalysisError
from marlnb.experiment import Experiment


@pytest.mark.parametrize("name", ["matd3", "masac"])
@pytest.mark.parametrize("continuous", ["true", "false"])
def test_values_sites_and_attributions_of_a_run(name: str, continuous: str, tmp_path: Path) -> None:
    experiment = Experiment.compose(
        *("env=mpe/simple_speaker_listener", f"env.continuous_actions={continuous}", f"algorithm={name}"),
        *("algorithm.updates=1", "algorithm.learning_starts=0", "algorithm.buffer_frames=300", "model.hidden=[8]"),
        *("algorithm.batch_size=32", "n_envs=4", "rollout_steps=16", "frames=64"),
    )
    run = mnb.train(experiment, tmp_path / "run", progress=False)
    recording = mnb.record(run, episodes=2, sites="*", progress=False)
    policies = run.policies()
    observations = {group: recording.steps(group, "observation").to_torch() for group in policies}
    value, _ = policies["listener"].value(observations)
    recorded = recording.steps("listener", "value").to_torch()
    torch.testing.assert_close(recorded, value.detach(), atol=1e-5, rtol=1e-5)
    assert {"listener/critic/head", "listener/critic_2/hidden_1"} <= set(recording.sites)
    target = 0 if continuous == "true" else None
    attribution = mnb.attribute(recording, group="listener", to="action", target=target)
    assert np.abs(attribution.convergence_delta).max() < 1e-3
    assert np.isfinite(mnb.attribute(recording, group="listener", to="value").values).all()
    if name == "matd3" and continuous == "true":
        with pytest.raises(AnalysisError, match="is deterministic: its actions have no log-probability"):
            mnb.attribute(recording, group="listener", to="log_prob")
