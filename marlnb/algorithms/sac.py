"""ISAC and MASAC: actors that stay as random as they can afford, improved along twin critics of their actions.

Continuous actions: Haarnoja et al. 2018 (arXiv:1812.05905), the temperature learnt. Discrete ones: Christodoulou 2019
(arXiv:1910.07207), every expectation over an agent's own choices exact. In MASAC the critic of an agent also reads all
others' observations and actions: for discrete actions it has a value for each own choice, given the others' (as COMA,
Foerster et al. 2018, arXiv:1705.08926); the actor learns beside the others' remembered actions (as MADDPG, Lowe et al.
2017, equation 6, arXiv:1706.02275). The tests hold the losses to torchrl's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.algorithms.q_actor_critic import (
    CriticBatch,
    QActorCriticConfig,
    QActorCriticLearner,
    held,
    mean_over,
    td_target,
)
from marlnb.algorithms.replay import Sample
from marlnb.config import ModelConfig, option
from marlnb.models.policies.q_critic import QCritic
from marlnb.models.policies.soft_policy import SoftPolicy
from marlnb.registry import ALGORITHMS
from marlnb.specs import ActionKind, ActionSpec, EnvSpec, GroupSpec

DISCRETE_ENTROPY_SHARE = 0.3


@ALGORITHMS.register("isac")
@dataclass(frozen=True)
class ISACConfig(QActorCriticConfig):
    """Independent soft actor-critic: each agent's critics see what the agent sees and does."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")

    temperature: float = option(0.1, help="weight of a nat of entropy at first", unit="reward", gt=0)
    lr_temperature: float | None = option(None, help="the temperature's learning rate; none: the actor's", gt=0)
    learn_temperature: bool = option(True, help="moves the temperature so that the entropy is the target's")
    target_entropy: float | None = option(
        None, help="continuous: bounds scaled to -1..1; none: -1 a component, or 0.3 of a uniform choice", unit="nats"
    )

    def build(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        n_envs: int,
        rollout_steps: int,
        device: str,
    ) -> SACLearner:
        self.check_fit(group, env, actor, critic)
        self.check_memory(group, actor, critic, n_envs=n_envs, rollout_steps=rollout_steps)
        policy = SoftPolicy(group, env, actor, critic, centralised=self.centralised, temperature=self.temperature)
        return SACLearner(self, policy.to(device), env)


@ALGORITHMS.register("masac")
@dataclass(frozen=True)
class MASACConfig(ISACConfig):
    """Multi-agent SAC: the critics read every group's observations and actions, and the state where there is one."""

    centralised: ClassVar[bool] = True
    simultaneous_only: ClassVar[bool] = True


class SACLearner(QActorCriticLearner):
    """Learns one group's SoftPolicy."""

    config: ISACConfig
    policy: SoftPolicy

    def __init__(self, config: ISACConfig, policy: SoftPolicy, env: EnvSpec) -> None:
        parts = {"actor": policy.actor, "temperature": policy.temperature}
        super().__init__(config, policy, env, followed={}, trained=parts)
        self.target_entropy = target_entropy(policy.group.action, config.target_entropy)

    def explore(self) -> None:
        self.policy.uniform.fill_(self.warming_up)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        judged, own = self.judged(sample), self.group.name
        metrics = self.step_critics(judged, self.target(judged, sample["next", own, "observation"]))
        metrics |= self._step_actor(judged, sample[own, "observation"])
        self.update_targets()
        return metrics

    @torch.no_grad()
    def target(self, judged: CriticBatch, next_observation: Tensor) -> Tensor:
        """What the critics should say of the actions taken, `[n, agent]`."""
        value, _ = self._soft_value(
            judged.next_seen, judged.next_codes, next_observation, judged.next_mask, self.target_critics, together=True
        )
        return td_target(judged.reward, value, judged.terminated, self.config.gamma)

    def actor_loss(self, judged: CriticBatch, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the soft value of each agent's policy beside the others' remembered actions, and its mean entropy."""
        value, entropy = self._soft_value(
            judged.seen, judged.codes, observation, judged.mask, self.policy.critics, together=False
        )
        return -mean_over(value, judged.acting), mean_over(entropy, judged.acting).detach()

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Rises with the temperature's logarithm while the entropy, `[]` nats, is above the target."""
        return self.policy.temperature.log * (entropy - self.target_entropy)

    @torch.no_grad()
    def next_action(self, observation: Tensor, mask: Tensor | None) -> Tensor:
        distribution = self.policy.actor.distribution
        return distribution.sample(distribution.mask(self.policy.actor(observation), mask)).action

    def _step_actor(self, judged: CriticBatch, observation: Tensor) -> dict[str, Tensor]:
        config = self.config
        with held(self.critic_weights):
            loss, entropy = self.actor_loss(judged, observation)
            norm = self.optimizers["actor"].step(loss, {"actor": config.lr}, config.max_grad_norm)
        if config.learn_temperature:
            rate = {"temperature": config.lr_temperature or config.lr}
            self.optimizers["temperature"].step(self.temperature_loss(entropy), rate, 0.0)
        return {
            "actor_loss": loss.detach(),
            "grad_norm_actor": norm[0],
            "entropy": entropy,
            "temperature": self.policy.temperature().detach(),
        }

    def _soft_value(
        self,
        seen: Tensor,
        codes: dict[str, Tensor],
        observation: Tensor,
        mask: Tensor | None,
        critics: Sequence[QCritic],
        *,
        together: bool,
    ) -> tuple[Tensor, Tensor]:
        """The policy's value, its entropy's included, and that entropy in nats, both `[n, agent]`.

        Args:
            together: the other agents of the group act by the policy as well, rather than as in `codes`.
        """
        policy, own = self.policy, self.group.name
        distribution = policy.actor.distribution
        parameters = distribution.mask(policy.actor(observation), mask)
        weight = policy.temperature().detach()
        if policy.continuous:
            drawn = distribution.sample(parameters)
            code = drawn.stored.tanh()
            judge = (lambda c: c(seen, codes | {own: code})) if together else (lambda c: c.judge_own(seen, codes, code))
            return torch.minimum(*(judge(critic) for critic in critics)) - weight * drawn.log_prob, -drawn.log_prob
        log_probs = parameters.log_softmax(-1)
        probs = log_probs.exp()
        with torch.no_grad():
            if together:
                codes = codes | {own: policy.critic.code(own, distribution.sample(parameters).action)}
            judged = torch.minimum(*(critic(seen, codes) for critic in critics))
        entropy = -(probs * log_probs).sum(-1)
        return (probs * judged).sum(-1) + weight * entropy, entropy


def target_entropy(spec: ActionSpec, chosen: float | None) -> float:
    """In nats, of actions in the environment's units.

    Source: -1 for each component in -1..1, Haarnoja et al. 2018, appendix D (arXiv:1812.05905).
    """
    if spec.kind == "continuous":
        scale = sum(log((high - low) / 2) for low, high in zip(spec.low, spec.high))
        return scale + (-float(spec.n_components) if chosen is None else chosen)
    return DISCRETE_ENTROPY_SHARE * log(spec.n[0]) if chosen is None else chosen
