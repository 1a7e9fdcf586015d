"""Values of groups taken apart: VDN's by addition, QMIX's against the mixer called by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.analysis.attribution.value_decomposition import decompose_value
from marlnb.errors import AnalysisError
from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.training.train import train


def made(path: Path, algorithm: str) -> Run:
    short = ("n_envs=8", "rollout_steps=25", "frames=200", "threads=1")
    options = (*short, "algorithm.learning_starts=200", "algorithm.standardise_rewards=false")
    experiment = Experiment.compose("env=mpe/simple_spread", f"algorithm={algorithm}", *options)
    return train(experiment, run=path, progress=False)


def test_vdns_shares_are_the_agents_values(tmp_path: Path) -> None:
    run = made(tmp_path / "vdn", "vdn")
    with record(run, episodes=4, progress=False) as recording:
        found = decompose_value(recording, "agent")
        q = recording.steps("agent", "logits").to_numpy()
        action = recording.steps("agent", "action").to_numpy()
        taken = np.take_along_axis(q, action[..., None], -1)[..., 0]
        np.testing.assert_allclose(found.q, taken, atol=1e-5)
        np.testing.assert_array_equal(found.share, found.q)
        np.testing.assert_array_equal(found.weight, 1.0)
        np.testing.assert_array_equal(found.total, found.q.sum(1))
        best = decompose_value(recording, "agent", of="best")
        np.testing.assert_allclose(best.total, recording.steps("agent", "value").to_numpy()[:, 0], atol=1e-5)


def test_qmixs_shares_add_up_and_its_weights_are_its_slopes(tmp_path: Path) -> None:
    run = made(tmp_path / "qmix", "qmix")
    with record(run, episodes=4, progress=False) as recording:
        found = decompose_value(recording, "agent")
        assert found.warnings == () and (found.weight >= 0).all() and found.mixer == "monotonic"
        np.testing.assert_allclose(found.share.sum(1) + found.rest, found.total, atol=1e-4)
        mixer = run.policies()["agent"].mixer
        read = torch.from_numpy(recording.steps("agent", "observation").to_numpy()).flatten(1).double()
        mixer = mixer.double()
        q = torch.from_numpy(found.q).double()
        with torch.no_grad():
            np.testing.assert_allclose(found.total, mixer(q, read), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found.rest, mixer(torch.zeros_like(q), read), rtol=1e-4, atol=1e-4)
            for agent in range(3):
                step = torch.zeros_like(q)
                step[:, agent] = 1e-4
                slope = (mixer(q + step, read) - mixer(q - step, read)) / 2e-4
                np.testing.assert_allclose(found.weight[:, agent], slope, rtol=1e-3, atol=1e-4)
        mean = decompose_value(recording, "agent", baseline="mean")
        np.testing.assert_allclose(mean.baseline, found.q.mean(0), rtol=1e-4)
        assert found.table()["part"].sum() == pytest.approx(1)


def test_all_is_told_in_units_of_reward(tmp_path: Path) -> None:
    """A policy that learned from rewards less their mean over their deviation says so of its values alone."""
    run = made(tmp_path / "qmix", "qmix")
    policies = run.policies()
    with record(run, episodes=2, progress=False) as recording:
        plain = decompose_value(recording, "agent", of="best", baseline="mean")
        policies["agent"].value_scale.fill_(3.0)  # type: ignore[union-attr, operator]
        policies["agent"].value_shift.fill_(-20.0)  # type: ignore[union-attr, operator]
        found = decompose_value(recording, "agent", of="best", baseline="mean", policies=policies)
        observations = {"agent": torch.from_numpy(recording.steps("agent", "observation").to_numpy())}
    value, _ = policies["agent"].value(observations)  # type: ignore[operator]
    np.testing.assert_allclose(found.total, value[:, 0].detach(), rtol=1e-4)
    np.testing.assert_allclose(found.share, 3 * plain.share, rtol=1e-5)
    np.testing.assert_allclose(found.baseline, 3 * plain.baseline, rtol=1e-5)
    np.testing.assert_allclose(found.share.sum(1) + found.rest, found.total, atol=1e-3)
    np.testing.assert_array_equal(found.weight, plain.weight)


def test_what_has_no_mixer_is_refused(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="no mixer"):
        decompose_value(recording, "listener")
