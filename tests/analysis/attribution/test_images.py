"""Attribution to pixels: bytes are explained as the networks read them, held to captum on the scaled images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import Tensor

import marlnb as mnb
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from tests.envs.sample_envs import Screens

SHAPE = (6, 5, 1)


@mnb.environment("toy/screens")
def screens() -> Screens:
    return Screens(SHAPE)


@pytest.fixture(scope="module", params=["cnn", "cnn and gru"])
def looked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[mnb.Recording, Policy]:
    small = "{name: cnn, channels: [3], kernels: [3], strides: [1], hidden: [8], activation: tanh}"
    model = f"model.models=[{small},{{name: gru, hidden: [], recurrent_size: 5}}]"
    options = ["model=sequence", model, "model.widths=[6]", "algorithm.sequence_length=5"]
    if request.param == "cnn":
        options = ["model=cnn", "model.channels=[3]", "model.kernels=[3]", "model.strides=[1]", "model.hidden=[8]"]
        options += ["model.activation=tanh"]
    experiment = mnb.Experiment.compose(
        *("env=toy/screens", "env.workers=0", "algorithm=ippo", "algorithm.lr=0.02", *options),
        *("n_envs=2", "rollout_steps=10", "frames=40", "threads=1"),
    )
    run = mnb.train(experiment, tmp_path_factory.mktemp("screens") / "run", progress=False)
    return mnb.record(run, episodes=4, sites="*", progress=False), run.policies()["eye"]


def scaled(recording: mnb.Recording) -> Tensor:
    return torch.from_numpy(recording.steps("eye", "observation").to_numpy()).float() / 255


def test_pixels_are_explained_as_the_network_reads_them(looked: tuple[mnb.Recording, Policy]) -> None:
    recording, policy = looked
    result = mnb.attribute(recording, group="eye", to="logit", target=1, steps=[0], n_steps=40, progress=False)
    image, first = scaled(recording), torch.from_numpy(np.asarray(recording.rows["t"]) == 0)
    assert result.warnings == () and result.values.shape == (4, 2, 30)
    for agent in range(2):

        def logit(x: Tensor, agent: int = agent) -> Tensor:
            seen = torch.zeros(len(x), 2, *SHAPE)
            seen[:, agent] = x  # floats: read as they are
            return policy.logits(seen)[0][:, agent, 1]

        x, mean = image[first][:, agent], image[:, agent].mean(0, keepdim=True)
        expected = IntegratedGradients(logit).attribute(x, mean.expand_as(x), n_steps=40)
        np.testing.assert_allclose(result.values[:, agent], expected.detach().flatten(1), atol=1e-5)
        np.testing.assert_allclose(result.score[:, agent], logit(x).detach(), atol=1e-5)


@pytest.mark.parametrize("method", ["gradient", "gradient_shap", "deeplift", "feature_ablation", "saliency"])
def test_every_kind_of_method_takes_pixels(looked: tuple[mnb.Recording, Policy], method: Any) -> None:
    recording, policy = looked
    result = mnb.attribute(recording, group="eye", to="logit", target=1, method=method, steps=[0], progress=False)
    no_rule = method == "deeplift" and policy.recurrent_shape is not None  # for a GRU's gates, which it says itself
    assert any("did not converge" in warning for warning in result.warnings) == no_rule
    assert np.isfinite(result.values).all() and np.abs(result.values).max() > 0
    if method != "gradient":
        return
    image = scaled(recording)[torch.from_numpy(np.asarray(recording.rows["t"]) == 0)].requires_grad_()
    (slope,) = torch.autograd.grad(policy.logits(image)[0][..., 1].sum(), image)
    np.testing.assert_allclose(result.values, slope.flatten(2) / 255, atol=1e-7)  # a step of a byte is 1/255


def test_pixels_of_the_steps_before(looked: tuple[mnb.Recording, Policy]) -> None:
    recording, policy = looked
    if policy.recurrent_shape is None:
        with pytest.raises(
            AnalysisError, match="no recurrent state, so its output depends on the current observation alone"
        ):
            mnb.attribute_over_time(recording, group="eye", to="logit", target=1, t=4, lookback=3)
        return
    result = mnb.attribute_over_time(recording, group="eye", to="logit", target=1, t=4, lookback=3)
    logits = recording.steps("eye", "logits").to_numpy()[np.asarray(recording.rows["t"]) == 4]
    np.testing.assert_allclose(result.score, logits[..., 1], atol=1e-5)
    assert np.abs(result.convergence_delta).max() < 1e-3


def test_a_value_of_pixels(looked: tuple[mnb.Recording, Policy]) -> None:
    recording, _ = looked
    result = mnb.attribute(recording, group="eye", to="value", steps=[0, 1], progress=False)
    recorded = recording.steps("eye", "value").to_numpy()[np.asarray(recording.rows["t"]) <= 1]
    np.testing.assert_allclose(result.score, recorded, atol=1e-5)
    assert np.abs(result.values).max() > 0 and result.warnings == ()
