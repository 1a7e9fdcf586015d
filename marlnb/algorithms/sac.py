"""ISAC and MASAC: stochastic actors with an entropy bonus, improved along twin critics of their actions.

Continuous actions: Haarnoja et al. 2018 (arXiv:1812.05905), with a learned temperature. Discrete actions: Christodoulou
2019 (arXiv:1910.07207), with exact expectations over an agent's own choices. In MASAC the critics read all agents'
observations and actions. Discrete actions are judged by the values of each own choice, given the others' actions (as in
COMA, Foerster et al. 2018, arXiv:1705.08926). The actor learns given the others' remembered actions (as MADDPG, Lowe
et al. 2017, equation 6, arXiv:1706.02275) or given those of the current policy (as MAAC, Iqbal and Sha 2019,
arXiv:1810.02912). The tests compare the losses with torchrl's.
"""

from __future__ import annotations

from functools import cache
from math import log

import torch
from torch import Tensor

from marlnb.algorithms.configs.sac import ISACConfig
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.q_actor_critic import CriticBatch, QActorCriticLearner, td_target
from marlnb.algorithms.replay import Sample
from marlnb.config import LEARNERS, LearnerContext
from marlnb.models.policies.random_numbers import Generators
from marlnb.models.policies.soft_policy import SoftPolicy
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

    def explore(self) -> None:
        self.policy.uniform.fill_(self.warming_up)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        config, batch = self.config, cache(lambda: self.critic_batch(sample))
        metrics = self.step_critics(sample, batch) | self.step_actor(sample, batch)
        if config.learn_temperature:
            learning_rate = {"temperature": config.lr_temperature or config.lr}
            self.optimizers["temperature"].step(self.temperature_loss(metrics["entropy"]), learning_rate, 0.0)
        self.update_targets()
        return metrics | {"temperature": self.policy.temperature().detach()}

    @torch.no_grad()
    def target(self, batch: CriticBatch) -> Tensor:
        """The critics' target, `[n, agent]`:

            y = r + gamma (1 - terminated) V(s'),  V(s') = E_a'[min_i Q_i'(s', a') - alpha log pi(a'|s')]

        Source: Haarnoja et al. 2018, equations 2 and 3 (arXiv:1812.05905).
        """
        value, _ = self._soft_value(batch, is_next=True)
        return td_target(batch.reward, value, batch.terminated, batch.discount)

    def actor_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, and metrics, with the policy's mean entropy:

            L = E_a[alpha log pi(a|s) - min_i Q_i(s, a)]

        Source: Haarnoja et al. 2018, equation 7 (arXiv:1812.05905).
        """
        value, entropy = self._soft_value(batch, is_next=False)
        loss = -masked_mean(value, batch.acting)
        return loss, {"actor_loss": loss.detach(), "entropy": masked_mean(entropy, batch.acting).detach()}

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Lowers the temperature while the entropy, `[]` nats, is above the target, and raises it below:

            L = log(alpha) (H - H_target)

        Source: Haarnoja et al. 2018, equation 18 (arXiv:1812.05905), with log(alpha) in the place of alpha, as in their
        code.
        """
        return self.policy.temperature.log * (entropy - self.target_entropy)

    def _soft_value(self, batch: CriticBatch, *, is_next: bool) -> tuple[Tensor, Tensor]:
        """The policy's value including its entropy, and the entropy in nats, both `[n, agent]`.

        Args:
            is_next: the value of the next step by the target critics, where the other agents of the group act by the
                policy too; otherwise that of this step, where they act as in the sample or by the policy
                (`policy_actions`).
        """
        all_by_policy = is_next or self.config.policy_actions == "all"
        if is_next:
            observation, mask, critics = batch.next_observation, batch.next_mask, self.target_critics
            encoded, codes = batch.next_encoded, batch.next_codes
        else:
            observation, mask, critics = batch.observation, batch.mask, self.policy.critics
            encoded, codes = batch.encoded, batch.codes
        policy, group = self.policy, self.group.name
        distribution = policy.actor.distribution
        parameters = distribution.mask(policy.actor(observation), mask)
        alpha = policy.temperature().detach()
        if policy.continuous:
            drawn = distribution.sample(parameters, self.generator)
            code = drawn.stored.tanh()
            if all_by_policy:
                values = [critic(encoded, codes | {group: code}) for critic in critics]
            else:
                values = [critic.q_with_own_action(encoded, codes, code) for critic in critics]
            return torch.minimum(*values) - alpha * drawn.log_prob, -drawn.log_prob
        log_probs = parameters.log_softmax(-1)
        probs = log_probs.exp()
        with torch.no_grad():  # the critics' values are weights here: the gradient goes through the probabilities
            if all_by_policy:
                action = distribution.sample(parameters, self.generator).action
                codes = codes | {group: policy.critic.encode_action(group, action)}
            values_of_choices = torch.minimum(*(critic.q_of_choices(encoded, codes) for critic in critics))
        entropy = -(probs * log_probs).sum(-1)
        return (probs * values_of_choices).sum(-1) + alpha * entropy, entropy

    @torch.no_grad()
    def next_action(self, observation: Tensor, mask: Tensor | None, generator: Generators) -> Tensor:
        distribution = self.policy.actor.distribution
        drawn = distribution.sample(distribution.mask(self.policy.actor(observation), mask), generator)
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
