"""Shapley values, units, layers, groups of features and baselines, against captum called by hand and enumeration."""

from __future__ import annotations

import itertools
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import (
    GradientShap,
    KernelShap,
    LayerConductance,
    LayerFeatureAblation,
    LayerGradientXActivation,
    LayerIntegratedGradients,
    NeuronGradient,
    NeuronIntegratedGradients,
)
from captum.metrics import infidelity
from torch import Tensor, nn

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.batch_attribution import attribute_batch
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.explain import explain
from marlnb.analysis.attribution.faithfulness import measure_faithfulness
from marlnb.analysis.attribution.kernel_shap import coalitions, shapley_by_regression
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.target import Examples
from marlnb.analysis.progress import AnalysisProgress
from marlnb.errors import AnalysisError, ConfigError
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run

N_UNITS = 64


def options_of(method: str, **options: object) -> AttributionConfig:
    return AttributionConfig(group="listener", method=method, **options)  # type: ignore[arg-type]


class ListenerLogit(nn.Module):
    """The listener's network as a person would call it: its own observation to its five logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.network = run.policies()["listener"].actor.network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.unsqueeze(1))[0][:, 0]


@pytest.fixture(scope="module")
def plain(run: Run) -> ListenerLogit:
    return ListenerLogit(run)


@pytest.fixture(scope="module")
def seen(recording: Recording) -> Tensor:
    return torch.from_numpy(recording.steps("listener", "observation").to_numpy())[:, 0]


def exact_shapley(f: nn.Module, x: Tensor, baseline: Tensor) -> Tensor:
    """By the definition: the weighted mean, over all sets of other features, of what adding the feature changes."""
    n = x.shape[1]
    values = torch.zeros_like(x)
    for feature in range(n):
        others = [k for k in range(n) if k != feature]
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            for chosen in itertools.combinations(others, size):
                without = baseline.clone()
                without[:, list(chosen)] = x[:, list(chosen)]
                with_it = without.clone()
                with_it[:, feature] = x[:, feature]
                values[:, feature] += weight * (f(with_it) - f(without))
    return values


@pytest.fixture(scope="module")
def curved() -> tuple[nn.Module, Tensor, Tensor]:
    """A network of four features with interactions, examples and a baseline."""
    torch.manual_seed(5)
    f = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
    for parameter in f.parameters():
        parameter.data.mul_(3)
    return f.requires_grad_(False), torch.randn(7, 4), torch.randn(1, 4).expand(7, 4)


def test_kernel_shap_of_all_coalitions_is_shapleys_value(curved: tuple[nn.Module, Tensor, Tensor]) -> None:
    f, x, baseline = curved
    result = shapley_by_regression(f, x, baseline, (), n_samples=14)
    np.testing.assert_allclose(result, exact_shapley(f, x, baseline), atol=1e-5)
    one = KernelShap(f).attribute(x[:1], baseline[:1], n_samples=600)
    np.testing.assert_allclose(result[:1], one, atol=0.4)  # captum draws coalitions
    few = shapley_by_regression(f, x, baseline, (), n_samples=8, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(few.sum(-1), f(x) - f(baseline), atol=1e-5)


def test_sizes_of_drawn_coalitions_follow_the_kernel() -> None:
    members, _ = coalitions(16, 40_000, torch.Generator().manual_seed(0))
    size, sizes = members.sum(1), np.arange(1, 16)
    weight = 1 / (sizes * (16 - sizes))  # C(16, s) times the kernel, up to a factor
    share = ((size == 1) | (size == 15)).double().mean().item()
    assert share == pytest.approx(2 * weight[0] / weight.sum(), abs=0.01)  # 0.3215


def test_sampled_permutations_approach_shapleys_value_and_add_up(curved: tuple[nn.Module, Tensor, Tensor]) -> None:
    f, x, baseline = curved
    options = options_of("shapley_value_sampling", n_samples=400)
    result = explain(f, x, [baseline], (), options, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(result.sum(-1), f(x) - f(baseline), atol=1e-5)
    np.testing.assert_allclose(result, exact_shapley(f, x, baseline), atol=0.2)


def test_groups_of_features_are_taken_away_together(curved: tuple[nn.Module, Tensor, Tensor]) -> None:
    f, x, baseline = curved
    groups = torch.tensor([0, 1, 0, 1])
    ablated = explain(f, x, [baseline], (), options_of("feature_ablation"), groups=groups)
    for k in range(2):
        without = torch.where(groups == k, baseline, x)
        np.testing.assert_allclose(ablated[:, k], f(x) - f(without), atol=1e-6)
    shap = explain(f, x, [baseline], (), options_of("kernel_shap", n_samples=2), groups=groups)
    alone = [f(torch.where(groups == k, x, baseline)) - f(baseline) for k in range(2)]
    joined = [f(x) - f(torch.where(groups == k, baseline, x)) for k in range(2)]
    for k in range(2):
        np.testing.assert_allclose(shap[:, k], (alone[k] + joined[k]) / 2, atol=1e-5)
    each = explain(f, x, [baseline], (), options_of("integrated_gradients"))
    summed = explain(f, x, [baseline], (), options_of("integrated_gradients"), groups=groups)
    np.testing.assert_allclose(summed, torch.stack((each[:, [0, 2]].sum(1), each[:, [1, 3]].sum(1)), 1), atol=1e-6)


def test_gradient_shap_approaches_captums_over_the_same_baselines(curved: tuple[nn.Module, Tensor, Tensor]) -> None:
    f, x, _ = curved
    drawn = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    baselines = [one.expand_as(x) for one in drawn for _ in range(600)]
    generator = torch.Generator().manual_seed(2)
    result = explain(f, x, baselines, (), options_of("gradient_shap"), generator=generator)
    torch.manual_seed(0)
    np.random.seed(0)
    expected = GradientShap(f).attribute(x, drawn, n_samples=4000)
    scale = expected.abs().mean().item()
    assert (result - expected).abs().mean().item() < 0.1 * scale


def test_smoothing_averages_over_noisy_copies(curved: tuple[nn.Module, Tensor, Tensor]) -> None:
    f, x, baseline = curved
    options = options_of("gradient", smooth=3, noise=0.5)
    deviations = torch.tensor([[1.0, 0.0, 2.0, 0.0]])
    generator = torch.Generator().manual_seed(7)
    result = explain(f, x, [baseline], (), options, deviations=deviations, generator=generator)
    generator, total = torch.Generator().manual_seed(7), torch.zeros_like(x)
    for _ in range(3):
        noisy = (x + 0.5 * deviations * torch.randn(x.shape, generator=generator)).requires_grad_()
        total += torch.autograd.grad(f(noisy).sum(), noisy)[0]
    np.testing.assert_allclose(result, total / 3, atol=1e-6)


@pytest.mark.parametrize("layer", [0, 1])
def test_layers_equal_captums(recording: Recording, plain: ListenerLogit, seen: Tensor, layer: int) -> None:
    site, module = f"listener/actor/hidden_{layer + 1}", plain.network.hidden[layer]  # type: ignore[union-attr]
    x, mean = seen[:50], seen.double().mean(0).float().unsqueeze(0)
    reference = seen.double().mean(0).float().numpy()

    def ours(method: str, baseline: object) -> np.ndarray:
        result = attribute(
            recording, group="listener", to="logit", target=2, site=site, method=method, baseline=baseline,
            episodes=[0, 1], n_steps=30,
        )  # fmt: skip
        assert result.values.shape == (50, 1, N_UNITS) and result.site == site
        assert result.feature_names[3] == "unit_3"
        return result.values[:, 0]

    with torch.no_grad():
        resting = module(plain.network.hidden[0](mean.unsqueeze(1)) if layer else mean.unsqueeze(1))[0]  # type: ignore[index]
    expected = LayerIntegratedGradients(plain, module).attribute(x, mean, target=2, n_steps=30)[:, 0]
    np.testing.assert_allclose(ours("integrated_gradients", resting), expected.detach(), atol=2e-6)
    expected = LayerConductance(plain, module).attribute(x, mean, target=2, n_steps=30)[:, 0]
    np.testing.assert_allclose(ours("conductance", reference), expected.detach(), atol=2e-6)
    expected = LayerGradientXActivation(plain, module).attribute(x, target=2)[:, 0]
    np.testing.assert_allclose(ours("input_x_gradient", "mean"), expected.detach(), atol=2e-6)
    expected = LayerFeatureAblation(plain, module).attribute(x, 0.0, target=2, perturbations_per_eval=16)[:, 0]
    np.testing.assert_allclose(ours("feature_ablation", "zero"), expected.detach(), atol=2e-6)


def test_what_drives_a_unit_equals_captums(recording: Recording, plain: ListenerLogit, seen: Tensor) -> None:
    module, x = plain.network.hidden[1], seen[:25]  # type: ignore[union-attr]
    mean = seen.double().mean(0).float().unsqueeze(0)
    options = {"group": "listener", "to": "unit", "target": ("listener/actor/hidden_2", 9), "episodes": [0]}
    result = attribute(recording, **options, baseline=mean.numpy())  # type: ignore[arg-type]
    expected = NeuronIntegratedGradients(plain, module).attribute(x, (0, 9), mean, n_steps=50)
    np.testing.assert_allclose(result.values[:, 0], expected.detach(), atol=2e-6)
    recorded = recording["listener/actor/hidden_2"].sel(episode=0, unit=9).to_numpy()
    np.testing.assert_allclose(result.score, recorded, atol=1e-5)
    assert result.units == "activation" and result.warnings == ()
    gradient = attribute(recording, **options, method="gradient")  # type: ignore[arg-type]
    expected = NeuronGradient(plain, module).attribute(x.clone().requires_grad_(), (0, 9))
    np.testing.assert_allclose(gradient.values[:, 0], expected.detach(), atol=2e-6)
    through = attribute(recording, **options, site="listener/actor/hidden_1")  # type: ignore[arg-type]
    assert through.values.shape == (25, 1, N_UNITS) and np.nanmax(through.relative_delta) < 1e-3
    with pytest.raises(AnalysisError, match="computed later"):
        attribute(recording, **options, site="listener/actor/head")  # type: ignore[arg-type]


def test_units_of_a_critic_carry_its_value(recording: Recording) -> None:
    result = attribute(recording, group="listener", to="value", site="listener/critic/hidden_2", episodes=[0, 1])
    assert result.values.shape == (50, 1, N_UNITS) and np.nanmax(result.relative_delta) < 1e-3
    unit = attribute(recording, group="listener", to="unit", target=("listener/critic/hidden_1", 0), episodes=[0])
    recorded = recording["listener/critic/hidden_1"].sel(episode=0, unit=0).to_numpy()
    np.testing.assert_allclose(unit.score, recorded, atol=1e-5)
    assert unit.feature_agents[:3] == ("speaker_0",) * 3
    with pytest.raises(AnalysisError, match="zero by construction"):
        attribute(recording, group="listener", to="action", site="listener/critic/hidden_1")


def test_recurrent_units_agent_by_agent(team: Recording) -> None:
    result = attribute(team, group="agent", to="logit", target=1, site="agent/actor/gru", episodes=[0, 1])
    assert np.isnan(result.values[:, 1]).all() and np.nanmax(result.relative_delta) < 1e-3
    # the head is linear: a unit's share is its weight times its distance from the mean
    weight = attribute(team, group="agent", to="logit", target=1, site="agent/actor/gru", method="gradient")
    units = team["agent/actor/gru"].to_numpy()[:50]
    mean = result.baseline[[0, 2]]
    np.testing.assert_allclose(result.values[:, [0, 2]], weight.values[:50][:, [0, 2]] * (units - mean), atol=1e-6)


def test_features_in_groups(recording: Recording) -> None:
    each = attribute(recording, group="listener", episodes=[0])
    auto = attribute(recording, group="listener", episodes=[0], features="auto")
    assert auto.feature_names == ("own velocity", "landmarks", "message")
    assert auto.feature_groups["message"] == ("message_0", "message_1", "message_2")
    np.testing.assert_allclose(auto.values[..., 1], each.values[..., 2:8].sum(-1), atol=1e-6)
    np.testing.assert_allclose(auto.values.sum(-1), each.values.sum(-1), atol=1e-5)
    options = {"first": ["landmark_0_*"], "said": "message_?"}
    named = attribute(recording, group="listener", episodes=[0], features=options, method="feature_ablation")
    assert named.feature_names == ("first", "said", "other features")
    value = attribute(recording, group="listener", to="value", episodes=[0], features="auto")
    assert value.feature_names[0] == "goal" and value.feature_agents[0] == "speaker_0"
    with pytest.raises(AnalysisError, match="landmark_9"):
        attribute(recording, group="listener", features={"none": ["landmark_9*"]})
    with pytest.raises(AnalysisError, match="two groups"):
        attribute(recording, group="listener", features={"a": ["message_*"], "b": ["message_1"]})


def test_baselines_are_what_they_say(recording: Recording, seen: Tensor) -> None:
    options = {"group": "listener", "episodes": [2, 5], "n_steps": 20}
    start = attribute(recording, baseline="start", **options)  # type: ignore[arg-type]
    first = seen.view(60, 25, -1)[:, 0].mean(0)  # of all episodes, whichever are explained
    np.testing.assert_allclose(start.baseline[0], first, atol=1e-6)
    time_step = attribute(recording, baseline=("episode", 3, "t", 7), **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(time_step.baseline[0], seen[3 * 25 + 7])
    assert time_step.baseline_name == "episode 3, t 7"
    with pytest.raises(AnalysisError, match="t from 0 to 24"):
        attribute(recording, baseline=("episode", 3, "t", 25), **options)  # type: ignore[arg-type]
    drawn = attribute(recording, baseline="distribution", n_baselines=5, seed=3, **options)  # type: ignore[arg-type]
    assert drawn.baseline.shape == (5, 1, 11) and "seed 3" in drawn.baseline_name
    ones = [attribute(recording, baseline=one, **options).values for one in drawn.baseline]  # type: ignore[arg-type]
    np.testing.assert_allclose(drawn.values, np.mean(ones, axis=0), atol=1e-6)
    assert drawn.warnings == ()
    deeplift = attribute(recording, method="deeplift_shap", n_baselines=3, **options)  # type: ignore[arg-type]
    assert "distribution" in deeplift.baseline_name and np.nanmax(deeplift.relative_delta) < 1e-3
    with pytest.raises(ConfigError, match="baseline='distribution'"):
        attribute(recording, method="gradient_shap", baseline="mean", **options)  # type: ignore[arg-type]


def test_methods_that_promise_nothing_are_measured(recording: Recording, plain: ListenerLogit, seen: Tensor) -> None:
    ablation = attribute(recording, group="listener", to="logit", target=0, method="feature_ablation")
    assert ablation.faithfulness is not None and ablation.faithfulness.n_rows == 64
    assert 0 <= ablation.faithfulness.infidelity < 0.3 and ablation.warnings == ()  # an almost linear head
    gradient = attribute(recording, group="listener", to="logit", target=0, method="saliency")
    assert gradient.faithfulness is not None

    mean = seen.mean(0, keepdim=True)

    def remove(x: Tensor, _: object = None) -> tuple[Tensor, Tensor]:
        taken = (torch.rand(x.shape, generator=draws) < 0.5).float()
        return taken, torch.where(taken.bool(), mean, x)

    draws = torch.Generator().manual_seed(0)
    x, f = seen[:300], lambda x: plain(x)[:, 0]
    values = torch.from_numpy(ablation.values[:300, 0])
    errors = infidelity(f, lambda x: remove(x), x, values, n_perturb_samples=30)
    change = torch.stack([(f(x) - f(remove(x)[1])).square() for _ in range(30)]).mean()
    share = (errors.mean() / change).item()
    assert ablation.faithfulness.infidelity == pytest.approx(share, rel=0.5)


def test_values_that_miss_what_features_do_are_not_trusted() -> None:
    """A product of two features has no gradient where both are 0: gradients show no effect there."""

    class Product(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, 0] * x[:, 1] * 100

    x = 1e-3 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    examples = Examples(Product(), x, (), 1, torch.tensor([0]))
    result = measure_faithfulness(
        examples, [torch.ones_like(x)], options_of("gradient"), acting=torch.ones(64, dtype=torch.bool),
        groups=None, deviations=torch.ones(1, 2),
    )  # fmt: skip
    assert result.infidelity > 0.9 and result.sensitivity > 1 and len(result.warnings) == 2


def test_an_interrupted_file_is_continued(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attribute(recording, group="listener", method="shapley_value_sampling", n_samples=2, batch_size=400)
    options = {"group": "listener", "method": "shapley_value_sampling", "n_samples": 2, "batch_size": 400}
    calls, real = [], attribute_batch

    def breaks(*args: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("marlnb.analysis.attribution.attribution_rows.attribute_batch", breaks)
    with pytest.raises(KeyboardInterrupt):
        attribute(recording, save="stream", **options)  # type: ignore[arg-type]
    path = recording.path.with_suffix(".attributions") / "stream.h5"
    broken = Attribution.load(path)
    assert broken.values.shape[0] == 800 and "interrupted after 800 of 1500 rows" in broken.warnings[0]
    with pytest.raises(AnalysisError, match="has other options"):
        attribute(recording, save="stream", **{**options, "n_samples": 3})  # type: ignore[arg-type]
    done = attribute(recording, save="stream", **options)  # type: ignore[arg-type]
    assert len(calls) == 3 + 2 and isinstance(done.values, np.memmap)
    np.testing.assert_array_equal(done.values, whole.values)
    assert done.warnings == whole.warnings == ()
    with pytest.raises(AnalysisError, match="exists and is complete"):
        attribute(recording, save="stream", **options)  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="without folders"):
        attribute(recording, save="../stream", **options)  # type: ignore[arg-type]
    assert Path(path).exists()


def test_a_file_is_continued_with_the_same_rows_baseline_and_weights_only(
    recording: Recording, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"group": "listener", "method": "saliency", "smooth": 1, "baseline": np.zeros(11)}
    options |= {"episodes": range(2), "batch_size": 30, "save": "same_options"}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AnalysisProgress, "add", interrupt)
        attribute(recording, **options)
    changed = run.policies()
    with torch.no_grad():
        next(changed["listener"].parameters()).add_(1)
    others = {"episode": {"episodes": range(1, 3)}, "t": {"episodes": range(3), "steps": range(17)}}
    others |= {"baseline": {"baseline": np.ones(11)}, "noise": {"noise": 0.2}, "weights_sha256": {"policies": changed}}
    for name, other in others.items():
        with pytest.raises(AnalysisError, match=f"has other options, which differ in .*{name}"):
            attribute(recording, **options | other)
    file = attribute(recording, **options)
    memory = attribute(recording, **options | {"save": None})
    np.testing.assert_array_equal(file.values, memory.values)
    with pytest.raises(AnalysisError, match="has other options, which differ in baseline"):
        attribute(recording, **options | {"baseline": np.ones(11)})
