"""ISAC and MASAC: stochastic actors with an entropy bonus, improved along twin critics of their actions.

Continuous actions: Haarnoja et al. 2018 (arXiv:1812.05905), with a learned temperature. Discrete actions: Christodoulou
2019 (arXiv:1910.07207), with exact expectations over an agent's own choices. In MASAC the critics read all agents'
observations and actions, and value each own choice given the others' actions (as in COMA, Foerster et al. 2018,
arXiv:1705.08926). The actor learns given the others' remembered actions (as MADDPG, Lowe et al. 2017, equation 6,
arXiv:1706.02275) or given those of the current policy (as MAAC, Iqbal and Sha 2019, arXiv:1810.02912). The tests
compare the losses with torchrl's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import log
from typing import Any

import torch
from torch import Tensor

from marlnb.algorithms.configs.sac import ISACConfig
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.q_actor_critic import CriticBatch, QActorCriticLearner, td_target
from marlnb.algorithms.replay import Sample
from marlnb.config import LEARNERS, LearnerContext
from marlnb.models.networks.modes import in_mode
from marlnb.models.policies.q_critic import QCritic
from marlnb.models.policies.random_numbers import Generators
from marlnb.models.policies.soft_policy import SoftPolicy, Temperature
from marlnb.specs import ActionSpec

DISCRETE_ENTROPY_SHARE = 0.3


@LEARNERS.register(ISACConfig)
class SACLearner(QActorCriticLearner):
    """Learns one group's SoftPolicy; for MASAC as well, by its options."""

    config: ISACConfig
    policy: SoftPolicy

    def __init__(self, config: ISACConfig, context: LearnerContext) -> None:
        networks = (context.group, context.env, context.actor, context.critic)
        policy = SoftPolicy(*networks, centralised=config.centralised, temperature=config.temperature)
        policy = policy.to(context.device)
        parts = {"actor": policy.actor, "temperature": policy.temperature}
        super().__init__(config, policy, context.env, followed={}, trained=parts)
        self.target_entropy = target_entropy(policy.group.action, config.target_entropy)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if not self.config.learn_temperature:  # an option, which a schedule can change
            self.policy.temperature.load_state_dict(Temperature(self.config.temperature).state_dict())

    def explore(self) -> None:
        self.policy.uniform.fill_(self.warming_up)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        config, batch = self.config, cache(lambda: self.critic_batch(sample))
        metrics = self.step_critics(sample, batch) | self.step_actor(sample, batch)
        if config.learn_temperature:
            learning_rate = {"temperature": config.lr_temperature or config.lr}
            acted = sample[self.group.name, "acting"].any()  # else the entropy counts as 0, which it is not
            loss = self.temperature_loss(metrics["entropy"]) * acted
            self.optimizers["temperature"].step(loss, learning_rate, 0.0)
        self.update_targets()
        return metrics | {"temperature": self.policy.temperature().detach()}

    @torch.no_grad()
    def target(self, batch: CriticBatch) -> Tensor:
        """The critics' target, `[n, agent]`:

            y = r + gamma (1 - terminated) V(s'),  V(s') = E_a'[min_i Q_i'(s', a') - alpha log pi(a'|s')]

        The expectation over an agent's own choice is exact; continuous actions, and those of other agents, are drawn.
        pi is the policy that acts: its network is in eval mode.
        Source: Haarnoja et al. 2018, equations 2 and 3 (arXiv:1812.05905).
        """
        group = self.group.name
        with in_mode([self.policy.actor], training=False):
            parameters = self._parameters(batch.next_observation, batch.next_mask)
        code, log_prob = self._draw(parameters)
        encoded, codes = batch.next_encoded, batch.next_codes | {group: code}
        if self.policy.continuous:
            value = torch.minimum(*(critic(encoded, codes) for critic in self.target_critics))
            value = value - self.policy.temperature() * log_prob
        else:
            value = self._expected_value(parameters, encoded, codes, self.target_critics)[0]
        return td_target(batch.reward, value, batch.terminated, batch.discount)

    def actor_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, and metrics, with the policy's mean entropy:

            L = E_a[alpha log pi(a|s) - min_i Q_i(s, a)]

        The expectation over an agent's own choice is exact; a continuous action is drawn. The other agents of the group
        act as in the sample or by the policy (`policy_actions`).

        Source: Haarnoja et al. 2018, equation 7 (arXiv:1812.05905).
        """
        parameters, policy, group = self._parameters(batch.observation, batch.mask), self.policy, self.group.name
        encoded, codes, all_by_policy = batch.encoded, batch.codes, self.config.policy_actions == "all"
        if policy.continuous:
            code, log_prob = self._draw(parameters)
            if all_by_policy:
                values = [critic(encoded, codes | {group: code}) for critic in policy.critics]
            else:
                values = [critic.q_with_own_action(encoded, codes, code) for critic in policy.critics]
            value, entropy = torch.minimum(*values) - policy.temperature().detach() * log_prob, -log_prob
        else:
            if all_by_policy:
                codes = codes | {group: self._draw(parameters)[0]}
            value, entropy = self._expected_value(parameters, encoded, codes, policy.critics)
        loss = -masked_mean(value, batch.acting)
        return loss, {"actor_loss": loss.detach(), "entropy": masked_mean(entropy, batch.acting).detach()}

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Lowers the temperature while the entropy, `[]` nats, is above the target, and raises it below:

            L = log(alpha) (H - H_target)

        Source: Haarnoja et al. 2018, equation 18 (arXiv:1812.05905), with log(alpha) in the place of alpha, as in their
        code.
        """
        return self.policy.temperature.log * (entropy - self.target_entropy)

    def _parameters(self, observation: Tensor, mask: Tensor | None) -> Tensor:
        actor = self.policy.actor
        return actor.distribution.mask(actor(observation), mask)

    def _draw(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """The group's actions by the policy, encoded, `[n, agent, code]`, and their log-probabilities `[n, agent]`."""
        drawn = self.policy.actor.distribution.sample(parameters, self.generator)
        if self.policy.continuous:
            return drawn.stored.tanh(), drawn.log_prob
        return self.policy.critic.encode_action(self.group.name, drawn.action), drawn.log_prob

    def _expected_value(
        self, parameters: Tensor, encoded: Tensor, codes: Mapping[str, Tensor], critics: Sequence[QCritic]
    ) -> tuple[Tensor, Tensor]:
        """Of discrete actions, the policy's value including its entropy, and the entropy in nats, both `[n, agent]`."""
        log_probs = parameters.log_softmax(-1)
        probs = log_probs.exp()
        with torch.no_grad():  # the critics' values are weights here: the gradient goes through the probabilities
            values_of_choices = torch.minimum(*(critic.q_of_choices(encoded, codes) for critic in critics))
            alpha = self.policy.temperature()
        entropy = -(probs * log_probs).sum(-1)
        return (probs * values_of_choices).sum(-1) + alpha * entropy, entropy

    @torch.no_grad()
    def next_action(self, observation: Tensor, mask: Tensor | None, generator: Generators) -> Tensor:
        drawn = self.policy.actor.distribution.sample(self._parameters(observation, mask), generator)
        if self.policy.continuous:
            return self.policy.critic.decode_action(self.group.name, drawn.stored.tanh())
        return drawn.action


def target_entropy(spec: ActionSpec, chosen: float | None) -> float:
    """In nats, of actions in the environment's units.

    Source: -1 for each component in -1..1, Haarnoja et al. 2018, appendix D (arXiv:1812.05905).
    """
    if spec.kind == "continuous":
        log_volume = sum(log((high - low) / 2) for low, high in zip(spec.low, spec.high))
        return log_volume + (-float(spec.n_components) if chosen is None else chosen)
    return DISCRETE_ENTROPY_SHARE * log(spec.n[0]) if chosen is None else chosen
