"""IPPO and MAPPO: proximal policy optimisation with a critic of each agent's own view, or of everyone's.

Source: Schulman et al. 2017 (arXiv:1707.06347); de Witt et al. 2020 (arXiv:2011.09533); Yu et al. 2022
(arXiv:2103.01955). The tests compare the losses and their gradients with torchrl's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.losses import HUBER_DELTA, masked_mean, regression_loss
from marlnb.algorithms.on_policy import Minibatch, OnPolicyLearner
from marlnb.config import LEARNERS, LearnerContext
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.critic import Critic

Part = Literal["actor", "critic"]


class PPOCoefficients(Protocol):
    """The options that the loss reads: an `IPPOConfig`, or those of several training runs at once as tensors.

    Attributes:
        clip, value_clip: numbers, or `[training, 1, 1]`.
        value_coef, entropy_coef: numbers, or `[training]`.
    """

    @property
    def clip(self) -> float | Tensor: ...
    @property
    def value_clip(self) -> float | Tensor | None: ...
    @property
    def value_coef(self) -> float | Tensor: ...
    @property
    def entropy_coef(self) -> float | Tensor: ...
    @property
    def value_loss(self) -> RegressionLoss: ...


class MinibatchOutput(NamedTuple):
    """What the policy in training says about a minibatch.

    Attributes:
        log_prob: of the actions that were taken, `[..., agent]`, in nats.
        entropy: of the action distribution, `[..., agent]`, in nats.
        value: the critic's normalised value, `[..., agent]`.
    """

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


class PolicyGradientLearner(OnPolicyLearner):
    """Evaluates the actor and the critic on minibatches. A subclass states its loss, in `policy_gradient_loss`.

    `tests/examples/ippo_kl.py` is an example.
    """

    def loss(self, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.policy_gradient_loss(self.evaluate_minibatch(minibatch), minibatch)

    @abstractmethod
    def policy_gradient_loss(self, output: MinibatchOutput, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch, and metrics without gradient.

        Args:
            output: of the policy in training.
            minibatch: as in `OnPolicyLearner.loss`.
        """

    def evaluate_minibatch(self, minibatch: Minibatch) -> MinibatchOutput:
        """Runs the actor and the critic on a minibatch."""
        return evaluate_minibatch(self.policy.actor, self.policy.critic, minibatch, partial(self._run, minibatch))

    def _run(self, minibatch: Minibatch, part: Part, network: Network, x: Tensor) -> Tensor:
        if not self.recurrent:
            return network(x)[0]
        acted = minibatch.get("acting")
        if part == "critic":
            acted = self._critic_acted(acted)
        return network.sequence(x, minibatch.get(f"{part}_state"), minibatch["is_init"], acted)[0]


def evaluate_minibatch(
    actor: Actor, critic: Critic, minibatch: Minibatch, run: Callable[[Part, Network, Tensor], Tensor]
) -> MinibatchOutput:
    """What an actor and a critic say about a minibatch.

    Args:
        run: the output of one of their networks for an input.
    """
    output = run("actor", actor.network, minibatch["observation"])
    parameters = actor.distribution.mask(actor.with_std(output), minibatch.get("action_mask"))
    log_prob, entropy = actor.distribution.evaluate(parameters, minibatch["stored"])
    inputs = critic.expand_inputs(minibatch["joint"] if critic.centralised else minibatch["observation"])
    return MinibatchOutput(log_prob, entropy, critic.agent_values(run("critic", critic.network, inputs)))


@LEARNERS.register(IPPOConfig)
class PPOLearner(PolicyGradientLearner):
    """Learns one group's ActorCritic by clipped policy gradients; for MAPPO as well, by its options."""

    config: IPPOConfig

    def __init__(self, config: IPPOConfig, context: LearnerContext) -> None:
        super().__init__(config, context)
        self.needs_old_values = config.value_clip is not None

    def policy_gradient_loss(self, output: MinibatchOutput, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return ppo_loss(self.config, output, minibatch)

    def stops_after(self, metrics: Mapping[str, Tensor]) -> bool:
        """Once the mean KL exceeds `target_kl`."""
        return self.config.target_kl is not None and float(metrics["kl"]) > self.config.target_kl


def ppo_loss(
    config: PPOCoefficients,
    output: MinibatchOutput,
    minibatch: Minibatch,
    mean: Callable[[Tensor, Tensor | None], Tensor] = masked_mean,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a minibatch, each term a mean over the agents that acted; and metrics without gradient:

        L = L_clip + value_coef L_value - entropy_coef H

    Args:
        mean: `masked_means` for minibatches of several training runs, `[training, sample, agent]`; the loss and the
            metrics are then `[training]`.
    Source: Schulman et al. 2017, equation 9 (arXiv:1707.06347).
    """
    weight = minibatch.get("weight")
    log_ratio = output.log_prob - minibatch["log_prob"]
    ratio = log_ratio.exp()
    policy_loss = -mean(clipped_surrogate(ratio, minibatch["advantage"], config.clip), weight)
    value_error = value_errors(
        output.value, minibatch["target"], config.value_loss, minibatch.get("value"), config.value_clip
    )
    value_loss = mean(value_error, weight)
    entropy = mean(output.entropy, weight)
    loss = policy_loss + config.value_coef * value_loss
    if isinstance(config.entropy_coef, Tensor) or config.entropy_coef:
        loss = loss - config.entropy_coef * entropy
    with torch.no_grad():
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": mean(approximate_kl(log_ratio), weight),
            "clip_fraction": mean(((ratio - 1).abs() > config.clip).to(ratio.dtype), weight),
        }
    return loss, metrics


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float | Tensor) -> Tensor:
    """PPO's objective of each action, to be maximised:

        min(r A, clip(r, 1 - clip, 1 + clip) A),  r = pi(a|s) / pi_old(a|s)

    Source: Schulman et al. 2017, equation 7 (arXiv:1707.06347).
    """
    clipped = ratio.clamp(1 - clip, 1 + clip)  # type: ignore[arg-type]  # two numbers, or two tensors
    return torch.minimum(ratio * advantage, clipped * advantage)


def value_errors(
    value: Tensor, target: Tensor, kind: RegressionLoss, old_value: Tensor | None, clip: float | Tensor | None
) -> Tensor:
    """The value loss of each state. With `clip`, the larger of two losses:

        max(l(V, target), l(V_old + clip(V - V_old, -clip, clip), target))

    The larger one, so that clipping never hides an error: it only stops rewarding changes beyond the bound.
    Source: Schulman et al.'s code; Huber loss and clipping in MAPPO: Yu et al. 2022, appendix (arXiv:2103.01955).
    """
    errors = regression_loss(value, target, kind, delta=HUBER_DELTA)
    if clip is None:
        return errors
    assert old_value is not None
    clipped = old_value + (value - old_value).clamp(-clip, clip)  # type: ignore[arg-type]
    return torch.maximum(errors, regression_loss(clipped, target, kind, delta=HUBER_DELTA))


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Of each action, an unbiased estimate of KL(pi_old || pi) in nats that is never negative: r - 1 - log r.

    Source: Schulman 2020, Approximating KL Divergence, estimator k3 (joschu.net/blog/kl-approx.html).
    """
    return log_ratio.exp() - 1 - log_ratio
