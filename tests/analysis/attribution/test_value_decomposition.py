"""Values of groups taken apart: VDN's by addition, QMIX's against the mixer called by hand."""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.analysis.conftest import copy_with


def made(path: Path, algorithm: str) -> Run:
    short = ("n_envs=8", "rollout_steps=25", "frames=200", "threads=1")
    options = (*short, "algorithm.learning_starts=200", "algorithm.standardise_rewards=false")
    experiment = Experiment.compose("env=mpe/simple_spread", f"algorithm={algorithm}", *options)
    return train(experiment, run=path, progress=False)


@pytest.fixture(scope="module")
def vdn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    run = made(tmp_path_factory.mktemp("runs") / "vdn", "vdn")
    with record(run, episodes=4, progress=False) as opened:
        yield opened


def test_vdns_shares_are_the_agents_values(vdn: Recording) -> None:
    result = decompose_value(vdn, "agent")
    q, action = (vdn.steps("agent", name).to_numpy() for name in ("logits", "action"))
    taken = np.take_along_axis(q, action[..., None], -1)[..., 0]
    np.testing.assert_allclose(result.q, taken, atol=1e-5)
    np.testing.assert_array_equal(result.share, result.q)
    np.testing.assert_array_equal(result.weight, 1.0)
    np.testing.assert_array_equal(result.total, result.q.sum(1))
    best = decompose_value(vdn, "agent", of="best")
    np.testing.assert_allclose(best.total, vdn.steps("agent", "value").to_numpy()[:, 0], atol=1e-5)


def test_agents_that_wait_and_choices_that_are_forbidden_do_not_count(vdn: Recording, tmp_path: Path) -> None:
    q = vdn.steps("agent", "logits").to_numpy()
    acting, allowed = np.ones(q.shape[:2], bool), np.ones(q.shape, bool)
    acting[10:, 1] = False
    np.put_along_axis(allowed, q.argmax(-1, keepdims=True), False, -1)
    with copy_with(vdn, tmp_path / "waiting.h5", "agent", acting=acting, action_mask=allowed) as changed:
        result = decompose_value(changed, "agent", of="best", baseline="mean")
    best = np.where(allowed, q, -np.inf).max(-1)
    mean = np.array([best[acting[:, agent], agent].mean() for agent in range(3)])
    np.testing.assert_allclose(result.q, np.where(acting, best, np.nan), atol=1e-5)
    np.testing.assert_allclose(result.baseline, mean, atol=1e-5)
    np.testing.assert_allclose(result.rest, acting @ mean, atol=1e-5)  # VDN: the sum over those that act


def test_qmixs_shares_add_up_and_its_weights_are_its_slopes(tmp_path: Path) -> None:
    run = made(tmp_path / "qmix", "qmix")
    with record(run, episodes=4, progress=False) as recording:
        result = decompose_value(recording, "agent")
        assert result.warnings == () and (result.weight >= 0).all() and result.mixer == "monotonic"
        np.testing.assert_allclose(result.share.sum(1) + result.rest, result.total, atol=1e-4)
        mixer = run.policies()["agent"].mixer
        read = torch.from_numpy(recording.steps("agent", "observation").to_numpy()).flatten(1).double()
        mixer = mixer.double()
        q = torch.from_numpy(result.q).double()
        with torch.no_grad():
            np.testing.assert_allclose(result.total, mixer(q, read), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(result.rest, mixer(torch.zeros_like(q), read), rtol=1e-4, atol=1e-4)
            for agent in range(3):
                step = torch.zeros_like(q)
                step[:, agent] = 1e-4
                slope = (mixer(q + step, read) - mixer(q - step, read)) / 2e-4
                np.testing.assert_allclose(result.weight[:, agent], slope, rtol=1e-3, atol=1e-4)
        mean = decompose_value(recording, "agent", baseline="mean")
        np.testing.assert_allclose(mean.baseline, result.q.mean(0), rtol=1e-4)
        assert result.table()["part"].sum() == pytest.approx(1)


def test_everything_is_in_units_of_reward(tmp_path: Path) -> None:
    """Only the values of a policy that learned from standardised rewards are scaled back."""
    run = made(tmp_path / "qmix", "qmix")
    policies = run.policies()
    with record(run, episodes=2, progress=False) as recording:
        plain = decompose_value(recording, "agent", of="best", baseline="mean")
        policies["agent"].value_scale.fill_(3.0)  # type: ignore[union-attr, operator]
        policies["agent"].value_shift.fill_(-20.0)  # type: ignore[union-attr, operator]
        result = decompose_value(recording, "agent", of="best", baseline="mean", policies=policies)
        observations = {"agent": torch.from_numpy(recording.steps("agent", "observation").to_numpy())}
    value, _ = policies["agent"].value(observations)  # type: ignore[operator]
    np.testing.assert_allclose(result.total, value[:, 0].detach(), rtol=1e-4)
    np.testing.assert_allclose(result.share, 3 * plain.share, rtol=1e-5)
    np.testing.assert_allclose(result.baseline, 3 * plain.baseline, rtol=1e-5)
    np.testing.assert_allclose(result.share.sum(1) + result.rest, result.total, atol=1e-3)
    np.testing.assert_array_equal(result.weight, plain.weight)


def test_a_policy_without_a_mixer_is_rejected(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="no mixer"):
        decompose_value(recording, "listener")
