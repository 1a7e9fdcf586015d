"""Concept activation vectors: captum's scores, a planted concept, and concepts that mean nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.concept import TCAV, Classifier, Concept
from torch import Tensor, nn
from torch.utils.data import DataLoader

from marlnb.analysis.concepts.concept_effect import concept_effect, control_columns, tuned_units_effect
from marlnb.analysis.concepts.result import ConceptScore, Tcav
from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.concepts.tcav_score import concept_vector, score_p_value, tcav_score
from marlnb.analysis.data.labels import Labels
from marlnb.analysis.decoding.linear_decoder import DirectionKind
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.errors import AnalysisError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.recording.file.reader import Recording
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

SITE = "listener/actor/hidden_2"


class Ours(Classifier):
    """captum's interface around `concept_vector`."""

    def __init__(self) -> None:
        self.vector = np.zeros(0)

    def train_and_eval(self, dataloader: DataLoader, **options: object) -> dict[str, object]:
        batches = list(dataloader)
        x = torch.cat([batch[0] for batch in batches]).numpy()
        label = torch.cat([batch[1] for batch in batches]).numpy()
        self.vector, _ = concept_vector(x, label == 0, "filter")
        return {"accs": torch.tensor(1.0)}

    def weights(self) -> torch.Tensor:
        return torch.tensor(np.stack([self.vector, -self.vector]), dtype=torch.float32)

    def classes(self) -> list[int]:
        return [0, 1]


def test_the_score_is_captums(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 3  # saturated here and there: a derivative of either sign
    with_it, without = torch.randn(60, 4) + torch.tensor([1.5, 0, 0, 0]), torch.randn(60, 4)
    concepts = [Concept(k, f"c{k}", DataLoader(rows, batch_size=20)) for k, rows in enumerate((with_it, without))]
    inputs = torch.randn(200, 4)
    captum = TCAV(model, ["1"], classifier=Ours(), save_path=str(tmp_path))
    theirs = captum.interpret(inputs, [concepts], target=2)["0-1"]["1"]["sign_count"][0]
    hidden = model[1](model[0](inputs)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model[4](model[3](model[2](hidden)))[:, 2].sum(), hidden)
    x = model[1](model[0](torch.cat([with_it, without]))).detach().numpy()
    vector, _ = concept_vector(x, np.arange(120) < 60, "filter")
    ours = tcav_score(gradient.numpy(), vector)
    assert ours == pytest.approx(float(theirs), abs=1e-6) and 0 < ours < 1


def test_gradients_of_the_output_with_respect_to_the_agents_own_units(recording: Recording) -> None:
    """A unit's own derivative is 1 along itself; the logits' are the last layer's weights."""
    from marlnb.analysis.attribution.outputs import find_site, resolve_output
    from marlnb.analysis.concepts.tcav import _gradient
    from marlnb.analysis.data.rows import RowSource

    source = RowSource(recording, "listener")
    policy = source.policies()["listener"]
    rows, spec = source.rows([0, 1]), source.env.group("listener")
    unit = resolve_output(spec.action, "unit", (SITE, 3))
    (batch,) = source.batches(rows, len(rows), needs_state=unit.of_critic)
    result = _gradient(policy, find_site(policy.sites(), SITE), unit, 0, batch)
    np.testing.assert_array_equal(result, np.eye(64)[[3] * 50])
    logit = resolve_output(spec.action, "logit", 1)
    by_logit = _gradient(policy, find_site(policy.sites(), SITE), logit, 0, batch)
    head = next(p for n, p in policy.named_parameters() if "actor" in n and p.shape[-2:] == (5, 64))
    np.testing.assert_allclose(by_logit, head.detach().reshape(-1, 5, 64)[0, 1].expand(50, 64).numpy(), atol=1e-6)
    assert not any(module._forward_hooks for module in policy.modules())


def test_a_planted_concept_and_noise(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0]
    planted = units[:, 5] > np.median(units[:, 5])
    result = concept_activation(recording, site=SITE, concept=planted, to="unit", target=(SITE, 5))
    (score,) = result.scores
    assert score.score == 1.0 and score.accuracy > 0.9
    assert score.p_value > 0.3  # a unit is linear in itself: half of all directions score 1
    assert result.warnings == () and "linear in these units" in result.score_warnings[0]  # a unit is, in itself
    expected = units[planted, 5].mean() - units[~planted, 5].mean()
    assert score.effect == pytest.approx(expected, rel=1e-4) and score.effect_low < expected < score.effect_high
    assert score.p_effect == 1 / 401 and score.effect_random < expected / 2 and score.moves(expected / 2)
    assert not score.moves(expected + 1)
    episode = recording.rows["episode"].to_numpy()
    noise = np.random.default_rng(0).integers(0, 2, 60)[episode].astype(bool)
    nothing = concept_activation(recording, site=SITE, concept=noise, to="unit", target=(SITE, 5), n_runs=8)
    assert any("cannot be decoded" in note for note in nothing.warnings) and "NOT TO BE TRUSTED" in repr(nothing)
    assert nothing.scores[0].p_effect > 0.05 and not nothing.scores[0].moves(0.0)


def test_the_p_value_of_a_score_is_valid_and_finds_a_concept_that_matters() -> None:
    """Of 200 concepts that mean nothing, a twentieth is below 0.05; a rank test of runs had more than a third there."""
    rng = np.random.default_rng(0)
    episode, t = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
    shuffle, along = EpisodeShuffle(episode, t), np.eye(8)[0]

    def p_value(kind: DirectionKind, size: float, n_shuffles: int) -> float:
        """The concept moves unit 0 by 2 size. The output rises along it at most rows if size > 0, else at half."""
        truth = (rng.random(40) < 0.5)[episode]
        x = (rng.normal(size=(40, 8)) * 0.7)[episode] + rng.normal(size=(200, 8)) + 2 * size * truth[:, None] * along
        return score_p_value(x, truth, rng.normal(size=(200, 8)) + size * along, shuffle, kind, n_shuffles, rng)

    p = np.array([p_value("pattern", 0, 19) for _ in range(200)])
    assert np.mean(p <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200) and 0.4 < np.mean(p <= 0.5) < 0.6
    for kind in ("pattern", "filter"):
        assert np.mean([p_value(kind, 1, 99) <= 0.05 for _ in range(10)]) >= 0.9


def test_each_number_of_a_verdict_has_its_own_p_value() -> None:
    """Units that are tuned to a concept need not move the output: p_follows is no evidence of an effect."""
    score = ConceptScore("bird_1", 500, 60, 0.5, 0.4, 0.6, 0.5, 0.3, 0.7, 0.9, 0.5, 0.8, 0.8)
    score = replace(
        score, effect=0.5, effect_low=-2.2, effect_high=3.3, effect_random=4.0, p_effect=0.79,
        follows=1.3, follows_low=0.9, p_follows=0.015,
    )  # fmt: skip
    verdict = Tcav("bird/critic/hidden_1", "high", "value", "filter", 20, (score,)).verdict
    assert "its mean effect is +0.5 [-2.2, 3.3] (corrected p = 0.79, not beyond shuffled episodes)" in verdict
    assert "units are tuned to the concept (corrected p = 0.015), by which the output has a standard dev" in verdict
    assert "deviation of 1.3 (95% interval from 0.9)." in verdict and "move" not in verdict
    assert not score.moves(0.0) and score.moves(0.8) and not score.moves(1.0)
    growing = replace(score, effect_low=0.1, p_effect=0.03, p_follows=0.2)
    verdict = Tcav("bird/critic/hidden_1", "high", "value", "filter", 20, (growing,)).verdict
    assert "[0.1, 3.3] (corrected p = 0.03), and no unit is shown to be tuned to the concept" in verdict


def test_invalid_concepts_are_rejected(recording: Recording) -> None:
    red = concept_activation(recording, site=SITE, concept="goal", value="red", to="logit", target=1, n_runs=3)
    assert red.concept == "goal = red" and red.table()["agent"].tolist() == ["listener_0"]
    with pytest.raises(AnalysisError, match="set value="):
        concept_activation(recording, site=SITE, concept="goal")
    with pytest.raises(AnalysisError, match="did you mean 'red'"):
        concept_activation(recording, site=SITE, concept="goal", value="read")
    with pytest.raises(AnalysisError, match="'Filter' of direction; did you mean 'filter'"):
        concept_activation(recording, site=SITE, concept="goal", value="red", kind="Filter")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="'gaol'; did you mean 'goal'"):
        concept_activation(recording, site=SITE, concept="goal", value="red", controlling_for="gaol")
    with pytest.raises(AnalysisError, match="does not depend on listener/critic"):
        concept_activation(recording, site="listener/critic/hidden_1", concept="goal", value="red")


def test_a_correlated_concept_has_no_effect_if_the_used_one_is_held_fixed() -> None:
    """The output hangs on x alone; y goes along with x. The regression's coefficient is numpy's."""
    rng = np.random.default_rng(0)
    episode, t = np.repeat(np.arange(80), 5), np.tile(np.arange(5), 80)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    output, truth = 3 * x + 0.1 * rng.normal(size=400), y > 0
    labels = Labels(x[:, None], np.ones((400, 1), bool), "x", ())
    options = {"n_shuffles": 200, "n_bootstrap": 100}
    alone = concept_effect(output, truth, np.ones((400, 1)), episode, t, rng=rng, **options)
    assert alone.value == pytest.approx(output[truth].mean() - output[~truth].mean())
    assert alone.low > 1 and alone.p_value == 1 / 201
    controls = control_columns([labels], np.ones(400, bool), 0)
    fixed = concept_effect(output, truth, controls, episode, t, rng=rng, **options)
    assert fixed.value == pytest.approx(np.linalg.lstsq(np.column_stack([controls, truth]), output, rcond=None)[0][-1])
    assert abs(fixed.value) < 0.05 and fixed.low < 0 < fixed.high and fixed.p_value > 0.05


def test_a_gate_shows_in_the_units_that_it_opens() -> None:
    """Unit 0 follows a place where the concept holds, unit 1 where it does not; the output adds both."""
    rng = np.random.default_rng(1)
    episode, t, truth = np.repeat(np.arange(60), 4), np.tile(np.arange(4), 60), np.arange(240) < 120
    place = np.tile(np.abs(rng.normal(size=120)), 2)  # the same with the concept and without
    x = np.column_stack([place * truth, place * ~truth, rng.normal(size=240)])
    slope = np.array([1.0, 1.0, 0.0])
    effect = concept_effect(x @ slope, truth, np.ones((240, 1)), episode, t, n_shuffles=99, n_bootstrap=50, rng=rng)
    assert effect.value == pytest.approx(0) and effect.p_value > 0.9
    through = tuned_units_effect(x, slope, truth, episode, t, rng)
    assert through.units.tolist() == [0, 1] and through.p_value < 0.02
    assert through.deviation == pytest.approx(place.std()) and 0 < through.low < through.deviation


def head_gradient(action: ActionSpec, taken: Tensor, mask: Tensor | None) -> tuple[np.ndarray, Tensor, Tensor]:
    """TCAV's gradient of log_prob for one agent; the head's parameters at each row, and its weights."""
    from marlnb.analysis.attribution.outputs import find_site, resolve_output
    from marlnb.analysis.concepts.tcav import _gradient
    from marlnb.analysis.data.rows import RowBatch

    group = GroupSpec("agent", ("agent_0",), ObservationSpec((6,)), action)
    torch.manual_seed(0)
    policy = ActorCritic(group, EnvSpec("test", (group,)), MLPConfig(hidden=(8,)), MLPConfig(hidden=(8,))).eval()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    observation = torch.randn(len(taken), 1, 6)
    batch = RowBatch({"agent": observation}, taken, torch.ones(len(taken), 1, dtype=torch.bool), action_mask=mask)
    site = find_site(policy.sites(), "agent/actor/hidden_1")
    gradient = _gradient(policy, site, resolve_output(action, "log_prob", None), 0, batch)
    weights = [p for n, p in policy.named_parameters() if n.startswith("actor") and p.shape[-1] == 8 and p.ndim > 1]
    return gradient, policy.logits(observation)[0][:, 0].detach(), weights[-1].detach().reshape(-1, 8)


def test_the_log_probability_of_an_action_is_that_of_its_distribution() -> None:
    """With m = W h + b: d log N(u; m, s) / dh = sum_i (u_i - m_i) / s_i² W_i, and the squashing adds nothing.

    Of a choice among the allowed ones: d log p(a) / dh = W_a - sum over allowed k of p_k W_k.
    """
    continuous = ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0))
    unbounded = torch.linspace(-1, 1, 10).reshape(5, 1, 2)
    gradient, parameters, weights = head_gradient(continuous, unbounded.tanh(), None)
    mean, log_std = parameters.chunk(2, dim=-1)
    expected = ((unbounded[:, 0] - mean) / (2 * log_std).exp()) @ weights[:2]
    np.testing.assert_allclose(gradient, expected.numpy(), atol=1e-4)
    taken, mask = torch.tensor([[0], [1], [1]]), torch.tensor([[[True, True, False]]]).expand(3, 1, 3)
    gradient, parameters, weights = head_gradient(ActionSpec("discrete", n=(3,)), taken, mask)
    p = parameters[:, :2].exp() / parameters[:, :2].exp().sum(-1, keepdim=True)
    np.testing.assert_allclose(gradient, (weights[taken[:, 0]] - p @ weights[:2]).numpy(), atol=1e-5)
