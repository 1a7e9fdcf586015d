"""Policy gradients: an algorithm states its loss as a function of log-probabilities, entropies and values.

A new algorithm of this kind is one config with one method; `tests/examples/ippo_kl.py` is an example.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from marlnb.algorithms.configs.on_policy import PolicyGradientConfig as PolicyGradientConfig
from marlnb.algorithms.on_policy import Minibatch, OnPolicyLearner
from marlnb.config import LearnerContext
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor_critic import ActorCritic


class Evaluation(NamedTuple):
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
    """Evaluates the actor and the critic on minibatches; the config states the loss."""

    config: PolicyGradientConfig

    def __init__(self, config: PolicyGradientConfig, policy: ActorCritic, context: LearnerContext) -> None:
        super().__init__(config, policy, context)
        self.needs_old_values = config.needs_old_values

    def loss(self, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.config.loss(self.evaluate(minibatch), minibatch)

    def evaluate(self, minibatch: Minibatch) -> Evaluation:
        """Runs the actor and the critic on a minibatch."""
        actor, critic = self.policy.actor, self.policy.critic
        acted = minibatch.get("acting")
        output = self._run(actor.network, minibatch["observation"], "actor_state", minibatch, acted)
        parameters = actor.distribution.mask(actor.with_std(output), minibatch.get("action_mask"))
        log_prob, entropy = actor.distribution.evaluate(parameters, minibatch["stored"])
        inputs = critic.expand_inputs(minibatch["joint"] if critic.centralised else minibatch["observation"])
        output = self._run(critic.network, inputs, "critic_state", minibatch, self._critic_acted(acted))
        return Evaluation(log_prob, entropy, critic.agent_values(output))

    def _run(self, network: Network, x: Tensor, state: str, minibatch: Minibatch, acted: Tensor | None) -> Tensor:
        if not self.recurrent:
            return network(x)[0]
        return network.sequence(x, minibatch.get(state), minibatch["is_init"], acted)[0]
