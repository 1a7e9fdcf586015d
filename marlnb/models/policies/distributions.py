"""Distributions over one agent's action: categorical, multi-discrete, Gaussian squashed by tanh or clipped.

Stateless, on tensors `[..., agent, parameter]`. A learner stores `Sample.stored`: for a Gaussian the value before
squashing, so that no log-probability has to invert a tanh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log, pi
from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from marlnb.errors import ConfigError, unknown
from marlnb.models.policies.categorical import log_prob_and_entropy, log_softmax
from marlnb.models.policies.choices import LOG_STD_RANGE, Squash
from marlnb.models.policies.random_numbers import Generators, fill
from marlnb.specs import ActionSpec


class Sample(NamedTuple):
    """A sampled action.

    Attributes:
        action: `[..., agent(, component)]`, in the environment's units.
        stored: the argument that `evaluate` takes for it later.
        log_prob: `[..., agent]`, in nats.
    """

    action: Tensor
    stored: Tensor
    log_prob: Tensor


class ActionDistribution(ABC):
    """A family of distributions for one ActionSpec.

    Attributes:
        n_parameters: parameters for each agent.
        stored_as: name under which a rollout holds `Sample.stored`.
    """

    n_parameters: int
    stored_as: str = "action"

    @abstractmethod
    def sample(self, parameters: Tensor, generator: Generators = None) -> Sample:
        """A random action for each agent, from parameters `[..., agent, parameter]`."""

    @abstractmethod
    def mode(self, parameters: Tensor) -> Sample:
        """The most likely action (of a squashed Gaussian: the squashed mean)."""

    @abstractmethod
    def evaluate(self, parameters: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of `stored` and the distribution's entropy, both `[..., agent]` in nats."""

    def stored(self, action: Tensor) -> Tensor:
        """The `Sample.stored` of actions `[..., agent(, component)]` in the environment's units."""
        return action

    def choose(self, parameters: Tensor, generator: Generators, *, explore: bool) -> Sample:
        """`sample` to explore, otherwise the `mode`."""
        return self.sample(parameters, generator) if explore else self.mode(parameters)

    def log_prob(self, parameters: Tensor, stored: Tensor) -> Tensor:
        """Log-probability of `stored`, `[..., agent]` in nats."""
        return self.evaluate(parameters, stored)[0]

    def mask(self, parameters: Tensor, allowed: Tensor | None) -> Tensor:
        """Parameters with forbidden choices made impossible; allowed is `[..., agent, choice]` bool, None for all."""
        return parameters


class Categorical(ActionDistribution):
    """One choice of n, from logits `[..., agent, choice]`."""

    def __init__(self, n: int) -> None:
        self.n_parameters = n

    def sample(self, parameters: Tensor, generator: Generators = None) -> Sample:
        """Inversion: the first k with p_0 + ... + p_k > u, u ~ U[0, 1) (Devroye 1986, section III.2).

        One random number for each action; Gumbel-max needs one for each choice. A choice with p_k = 0 is never taken.
        """
        log_probs = log_softmax(parameters)
        cumulated = log_probs.exp().cumsum(-1).contiguous()
        uniform = fill(cumulated.new_empty(*cumulated.shape[:-1], 1), Tensor.uniform_, generator)
        action = torch.searchsorted(cumulated, uniform.mul_(cumulated[..., -1:]), right=True)
        return self._sample_of(log_probs, action.clamp_max_(self.n_parameters - 1).squeeze(-1))  # beyond it where NaN

    def mode(self, parameters: Tensor) -> Sample:
        return self._sample_of(log_softmax(parameters), parameters.argmax(-1))

    @staticmethod
    def _sample_of(log_probs: Tensor, action: Tensor) -> Sample:
        return Sample(action, action, log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1))

    def evaluate(self, parameters: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        return log_prob_and_entropy(parameters, stored)

    def mask(self, parameters: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return parameters
        return parameters.masked_fill(~allowed, torch.finfo(parameters.dtype).min)  # finite: 0 * log 0 stays 0


class MultiDiscrete(ActionDistribution):
    """Independent choices, component k of n[k], from concatenated logits; actions `[..., agent, component]`."""

    def __init__(self, n: tuple[int, ...]) -> None:
        self.n_parameters, self.n = sum(n), n
        self._parts = [Categorical(choices) for choices in n]

    def sample(self, parameters: Tensor, generator: Generators = None) -> Sample:
        parts = zip(self._parts, parameters.split(self.n, -1))
        return self._joint([part.sample(logits, generator) for part, logits in parts])

    def mode(self, parameters: Tensor) -> Sample:
        return self._joint([part.mode(logits) for part, logits in zip(self._parts, parameters.split(self.n, -1))])

    @staticmethod
    def _joint(samples: list[Sample]) -> Sample:
        action = torch.stack([sample.action for sample in samples], -1)
        return Sample(action, action, torch.stack([sample.log_prob for sample in samples]).sum(0))

    def evaluate(self, parameters: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        if len(set(self.n)) == 1:  # all components at once
            log_prob, entropy = log_prob_and_entropy(parameters.unflatten(-1, (len(self.n), -1)), stored)
            return log_prob.sum(-1), entropy.sum(-1)
        parts = zip(self._parts, parameters.split(self.n, -1), stored.unbind(-1))
        log_probs, entropies = zip(*(part.evaluate(logits, choice) for part, logits, choice in parts))
        return sum(log_probs[1:], log_probs[0]), sum(entropies[1:], entropies[0])

    def mask(self, parameters: Tensor, allowed: Tensor | None) -> Tensor:
        return self._parts[0].mask(parameters, allowed)


class Gaussian(ActionDistribution):
    """Independent normals in `[-1, 1]` units, squashed or clipped there, then scaled to the action's bounds.

    Parameters are (mean, log_std) concatenated, `[..., agent, 2 * component]`; log_std is clamped to LOG_STD_RANGE.
    With u ~ N(mean, std), half-width w and midpoint c of the bounds:

        tanh    a = c + w tanh(u)             log p(a) = log N(u) - sum_i log(1 - tanh(u_i)^2) - sum_i log w_i
        clip    a = c + w clip(u, -1, 1)      log p    = log N(u) - sum_i log w_i      (of the action before clipping)

        log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))      (stable for large |u|)

    The entropy is that of the normal before squashing or clipping, in the environment's units (the squashed one has no
    closed form): sum_i (1/2 (1 + log 2 pi) + log_std_i + log w_i).
    Source: Haarnoja et al. 2018, appendix C (arXiv:1801.01290).
    """

    stored_as = "unsquashed_action"

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...], squash: Squash = "tanh") -> None:
        if squash not in get_args(Squash):
            raise ConfigError(unknown("way to bound actions", squash, get_args(Squash)))
        self.n_components, self.n_parameters, self.squash = len(low), 2 * len(low), squash
        self._low, self._high = torch.tensor(low), torch.tensor(high)
        self._half = torch.tensor([(b - a) / 2 for a, b in zip(low, high)])
        self._middle = torch.tensor([(b + a) / 2 for a, b in zip(low, high)])
        self._log_scale = sum(log((b - a) / 2) for a, b in zip(low, high))

    def sample(self, parameters: Tensor, generator: Generators = None) -> Sample:
        mean, log_std = self._split(parameters)
        noise = fill(torch.empty_like(mean, memory_format=torch.contiguous_format), Tensor.normal_, generator)
        stored = torch.addcmul(mean, log_std.exp(), noise)
        return Sample(self._bound(stored), stored, self._density(noise, log_std, stored)[0])

    def mode(self, parameters: Tensor) -> Sample:
        mean, log_std = self._split(parameters)
        return Sample(self._bound(mean), mean, self._density(torch.zeros_like(mean), log_std, mean)[0])

    def evaluate(self, parameters: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self._split(parameters)
        log_prob, total = self._density((stored - mean) * torch.exp(-log_std), log_std, stored)
        return log_prob, total + (0.5 * self.n_components * (1 + log(2 * pi)) + self._log_scale)

    def _density(self, noise: Tensor, log_std: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of `stored` = mean + std * noise, and the sum of log_std, both `[..., agent]`."""
        total = log_std.sum(-1)
        normaliser = total + (0.5 * self.n_components * log(2 * pi) + self._log_scale)
        if self.squash == "tanh":
            normaliser = normaliser + self.log_slope(stored)
        return torch.sub(noise.square().sum(-1).mul(-0.5), normaliser), total

    def stored(self, action: Tensor) -> Tensor:
        """The value before squashing or clipping.

        Actions at a bound are moved to the nearest value that float32 tells apart from it.
        """
        self._move_bounds(action.device)
        unit = (action - self._middle) / self._half
        return unit.clamp(-1 + 1e-6, 1 - 1e-6).atanh() if self.squash == "tanh" else unit

    @staticmethod
    def log_slope(stored: Tensor) -> Tensor:
        """log |d tanh(u) / du| summed over components, `[..., agent]`; it does not depend on any parameter."""
        return 2 * (log(2) - stored - F.softplus(-2 * stored)).sum(-1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.split(self.n_components, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def _bound(self, stored: Tensor) -> Tensor:
        self._move_bounds(stored.device)
        unit = stored.tanh() if self.squash == "tanh" else stored.clamp(-1, 1)
        return torch.addcmul(self._middle, unit, self._half).clamp(self._low, self._high)  # against rounding

    def _move_bounds(self, device: torch.device) -> None:
        if self._half.device != device:
            for name in ("_low", "_high", "_half", "_middle"):
                setattr(self, name, getattr(self, name).to(device))


class Deterministic(ActionDistribution):
    """One action, the tanh of the parameters `[..., agent, component]` scaled to the bounds.

    It has no density, so its log-probability and entropy are zero.
    """

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...]) -> None:
        self.n_parameters = len(low)
        self._gaussian = Gaussian(low, high)

    def sample(self, parameters: Tensor, generator: Generators = None) -> Sample:
        return self.mode(parameters)

    def mode(self, parameters: Tensor) -> Sample:
        action = self._gaussian._bound(parameters)
        return Sample(action, action, parameters.new_zeros(parameters.shape[:-1]))

    def evaluate(self, parameters: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        zeros = parameters.new_zeros(parameters.shape[:-1])
        return zeros, zeros


def action_distribution(spec: ActionSpec, squash: Squash = "tanh") -> ActionDistribution:
    """The distribution for an agent's actions."""
    if spec.kind == "continuous":
        return Gaussian(spec.low, spec.high, squash)
    return Categorical(spec.n[0]) if spec.kind == "discrete" else MultiDiscrete(spec.n)
