from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch import distributions as td
from torchrl.modules import MaskedCategorical, TanhNormal

from marlnb.errors import ConfigError
from marlnb.models.policies.categorical import log_prob_and_entropy, log_softmax
from marlnb.models.policies.choices import Squash
from marlnb.models.policies.distributions import Categorical, Gaussian, MultiDiscrete, action_distribution
from marlnb.models.policies.q_critic import ActionEncoder
from marlnb.specs import ActionSpec

LOW, HIGH = (-2.0, 0.0), (4.0, 1.0)


def test_categorical_equals_torchs() -> None:
    logits, action = torch.randn(7, 3, 5), torch.randint(5, (7, 3))
    log_prob, entropy = Categorical(5).evaluate(logits, action)
    oracle = td.Categorical(logits=logits)
    torch.testing.assert_close(log_prob, oracle.log_prob(action))
    torch.testing.assert_close(entropy, oracle.entropy())
    sample = Categorical(5).sample(logits)
    torch.testing.assert_close(sample.log_prob, oracle.log_prob(sample.action))


@pytest.mark.parametrize("n_choices", [2, 5, 15, 16, 21])
def test_log_softmax_of_few_choices_equals_torchs(n_choices: int) -> None:
    """Of whole tensors, of parts of one, without rows, and of impossible choices; with its gradient."""
    lowest = torch.finfo(torch.float32).min
    part = torch.randn(4, 3, n_choices + 2)[..., 1:-1]
    masked = part.index_fill(-1, torch.tensor(0), lowest)
    for logits in (torch.randn(n_choices), part, torch.randn(0, 3, n_choices), masked):
        ours, torchs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        expected = torchs.log_softmax(-1)
        torch.testing.assert_close(log_softmax(ours), expected)
        weights = torch.randn_like(expected)
        log_softmax(ours).backward(weights)
        expected.backward(weights)
        torch.testing.assert_close(ours.grad, torchs.grad)


def test_a_masked_categorical_equals_torchrls_and_never_takes_a_forbidden_choice() -> None:
    logits = torch.randn(500, 3, 5, requires_grad=True)
    allowed = torch.rand(500, 3, 5) < 0.5
    allowed[..., 2] = True
    ours = Categorical(5)
    masked = ours.mask(logits, allowed)
    action = ours.sample(masked).action
    assert allowed.gather(-1, action.unsqueeze(-1)).all()
    assert allowed.gather(-1, ours.mode(masked).action.unsqueeze(-1)).all()
    log_prob, entropy = ours.evaluate(masked, action)
    oracle = MaskedCategorical(logits=logits, mask=allowed)
    torch.testing.assert_close(log_prob, oracle.log_prob(action))
    torch.testing.assert_close(entropy, td.Categorical(logits=masked).entropy())
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert gradient.isfinite().all() and (gradient[~allowed] == 0).all()


def test_a_row_that_allows_nothing_stays_finite() -> None:
    ours = Categorical(5)
    masked = ours.mask(torch.randn(2, 5), torch.zeros(2, 5, dtype=torch.bool))
    assert all(x.isfinite().all() for x in ours.evaluate(masked, ours.sample(masked).stored))


def test_categorical_samples_have_the_logits_frequencies() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    generator = torch.Generator().manual_seed(0)
    action = Categorical(4).sample(logits.expand(200_000, 4), generator).action
    frequencies = action.bincount(minlength=4) / 200_000
    torch.testing.assert_close(frequencies, logits.softmax(-1), atol=0.005, rtol=0)


def test_a_categorical_sample_inverts_the_distribution_function() -> None:
    """By numpy, from the same uniform numbers; few choices and many, and choices that are impossible."""
    for n_choices in (3, 21):
        logits = torch.randn(500, 2, n_choices)
        logits[..., 1] = torch.finfo(torch.float32).min
        action = Categorical(n_choices).sample(logits, torch.Generator().manual_seed(0)).action
        uniform = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)).double().numpy()
        cumulated = logits.double().softmax(-1).numpy().cumsum(-1)
        expected = [
            np.searchsorted(row, u, side="right") for row, u in zip(cumulated.reshape(-1, n_choices), uniform.flat)
        ]
        assert action.flatten().tolist() == expected


def test_the_largest_uniform_number_takes_a_choice_that_is_possible() -> None:
    last_impossible = torch.randn(1000, 4)
    last_impossible[:, 3] = torch.finfo(torch.float32).min
    with patch.object(Tensor, "uniform_", lambda x, generator: x.fill_(1 - 2**-24)):
        assert (Categorical(4).sample(last_impossible).action < 3).all()
    assert Categorical(4).sample(torch.full((2, 4), float("nan"))).action.max() < 4  # the rollout's check names the NaN


@pytest.mark.parametrize("n_choices", [3, 21])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (2.0, -0.3)])
def test_gradients_of_log_probability_and_entropy_are_torchs(weights: tuple[float, float], n_choices: int) -> None:
    """Of one of them alone, and of both; in double precision."""
    logits, action = torch.randn(6, 2, n_choices, dtype=torch.float64), torch.randint(n_choices, (6, 2))
    scores = torch.randn(6, 2, dtype=torch.float64)
    gradients = []
    oracle = td.Categorical(logits=(theirs := logits.clone().requires_grad_()))
    ours = logits.clone().requires_grad_()
    for variable, (log_prob, entropy) in (
        (ours, log_prob_and_entropy(ours, action)),
        (theirs, (oracle.log_prob(action), oracle.entropy())),
    ):
        terms = [weight * part * scores for weight, part in zip(weights, (log_prob, entropy)) if weight]
        gradients += torch.autograd.grad(sum(term.sum() for term in terms), variable)  # type: ignore[arg-type]
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("n", [(3, 2, 4), (3, 3, 3)])
def test_multi_discrete_is_a_product_of_categoricals(n: tuple[int, ...]) -> None:
    logits = torch.randn(6, 2, 9)
    ours = MultiDiscrete(n)
    action, _, sampled_log_prob = ours.sample(logits)
    assert action.shape == (6, 2, 3) and action.dtype == torch.int64
    parts = [td.Categorical(logits=part) for part in logits.split(n, -1)]
    log_prob, entropy = ours.evaluate(logits, action)
    torch.testing.assert_close(log_prob, torch.stack([p.log_prob(action[..., k]) for k, p in enumerate(parts)]).sum(0))
    torch.testing.assert_close(entropy, torch.stack([p.entropy() for p in parts]).sum(0))
    torch.testing.assert_close(sampled_log_prob, log_prob)
    assert torch.equal(ours.mode(logits).action, torch.stack([p.probs.argmax(-1) for p in parts], -1))


def test_tanh_gaussian_equals_torchrls() -> None:
    ours = Gaussian(LOW, HIGH)
    mean, log_std = torch.randn(50, 3, 2), torch.randn(50, 3, 2) * 0.3 - 1
    parameters = torch.cat((mean, log_std), -1)
    action, stored, sampled_log_prob = ours.sample(parameters)
    assert ((action >= torch.tensor(LOW)) & (action <= torch.tensor(HIGH))).all()
    oracle = TanhNormal(
        mean.double(), log_std.double().exp(), low=torch.tensor(LOW), high=torch.tensor(HIGH), upscale=1e6
    )
    exact = torch.tensor(LOW) + (torch.tensor(HIGH) - torch.tensor(LOW)) * (stored.double().tanh() + 1) / 2
    torch.testing.assert_close(action.double(), exact, atol=1e-5, rtol=0)
    log_prob, _ = ours.evaluate(parameters, stored)
    torch.testing.assert_close(log_prob.double(), oracle.log_prob(exact), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(sampled_log_prob, log_prob)
    mode = ours.mode(parameters)
    torch.testing.assert_close(mode.action, ours._bound(mean))
    torch.testing.assert_close(mode.log_prob, ours.log_prob(parameters, mean))


def test_tanh_log_prob_is_the_change_of_variables() -> None:
    ours = Gaussian(LOW, HIGH)
    mean, stored = torch.randn(50, 2), torch.randn(50, 2) * 4
    parameters = torch.cat((mean, torch.full_like(mean, -0.5)), -1)
    normal = td.Normal(mean.double(), torch.tensor(-0.5).double().exp())
    half = (torch.tensor(HIGH) - torch.tensor(LOW)).double() / 2
    slope = half / stored.double().cosh() ** 2
    expected = (normal.log_prob(stored.double()) - slope.log()).sum(-1)
    torch.testing.assert_close(ours.log_prob(parameters, stored).double(), expected, atol=1e-4, rtol=1e-5)


def test_clipped_gaussian_keeps_the_density_before_clipping() -> None:
    ours = Gaussian(LOW, HIGH, "clip")
    parameters = torch.tensor([0.0, 3.0, 0.5, -1.0]).expand(1000, 4)
    action, stored, _ = ours.sample(parameters)
    middle, half = torch.tensor([1.0, 0.5]), torch.tensor([3.0, 0.5])
    torch.testing.assert_close(action, (middle + half * stored).clamp(torch.tensor(LOW), torch.tensor(HIGH)))
    assert (action[:, 1] == 1).any()
    oracle = td.Normal(middle + half * parameters[:, :2], half * parameters[:, 2:].exp())
    log_prob, entropy = ours.evaluate(parameters, stored)
    torch.testing.assert_close(log_prob, oracle.log_prob(middle + half * stored).sum(-1))
    torch.testing.assert_close(entropy, oracle.entropy().sum(-1))


@pytest.mark.parametrize("squash", ["tanh", "clip"])
def test_an_action_at_its_bound_is_not_rounded_beyond_it(squash: Squash) -> None:
    """Between each two tenths from -2 to 2: middle + half of some is more than high in float32."""
    bounds = [(low / 10, high / 10) for low in range(-20, 20) for high in range(low + 1, 21)]
    low, high = (torch.tensor(values) for values in zip(*bounds))
    action = Gaussian(*zip(*bounds), squash).mode(torch.full((2, 2 * len(bounds)), 50.0)).action
    assert (action <= high).all() and torch.allclose(action, high.expand(2, -1))
    encoder = ActionEncoder(ActionSpec("continuous", low=tuple(low.tolist()), high=tuple(high.tolist())))
    action = encoder.decode(torch.ones(2, len(bounds)))
    assert (action <= high).all() and torch.allclose(action, high.expand(2, -1))


def test_the_same_generator_gives_the_same_actions() -> None:
    for ours in (Categorical(4), MultiDiscrete((2, 2)), Gaussian(LOW, HIGH)):
        parameters = torch.randn(9, 4)
        first, again = (ours.sample(parameters, torch.Generator().manual_seed(5)).action for _ in range(2))
        assert torch.equal(first, again)


def test_each_kind_of_action_has_its_distribution() -> None:
    assert isinstance(action_distribution(ActionSpec("discrete", n=(4,))), Categorical)
    assert isinstance(action_distribution(ActionSpec("multi_discrete", n=(4, 2))), MultiDiscrete)
    assert isinstance(action_distribution(ActionSpec("continuous", low=LOW, high=HIGH)), Gaussian)
    with pytest.raises(ConfigError, match="tanh"):
        Gaussian(LOW, HIGH, "tan")  # type: ignore[arg-type]
