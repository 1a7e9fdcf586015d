"""Distances between action distributions: both at once equal each by itself, and what numpy computes."""

from __future__ import annotations

import numpy as np
import torch

from marlnb.analysis.stats.divergence import kl_divergence, total_variation, variation_and_kl
from marlnb.models.policies.distributions import Categorical, Gaussian, MultiDiscrete


def test_both_at_once() -> None:
    torch.manual_seed(0)
    for distribution in (Categorical(5), MultiDiscrete((2, 3)), Gaussian((-1.0, -1.0), (1.0, 1.0))):
        before, after = 3 * torch.randn(2, 7, distribution.n_parameters)
        variation, divergence = variation_and_kl(distribution, before, after)
        expected = total_variation(distribution, before, after)
        assert (variation is None) == (expected is None) == isinstance(distribution, Gaussian)
        if variation is not None and expected is not None:
            torch.testing.assert_close(variation, expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(divergence, kl_divergence(distribution, before, after), atol=1e-6, rtol=1e-5)


def test_known_probabilities() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    variation, divergence = variation_and_kl(Categorical(3), torch.tensor(p).log(), torch.tensor(q).log())
    assert variation is not None and divergence is not None
    np.testing.assert_allclose(float(variation), 0.25)
    np.testing.assert_allclose(float(divergence), (p * np.log(p / q)).sum())
