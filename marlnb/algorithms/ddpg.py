"""IDDPG, MADDPG and MATD3: deterministic actors, improved along the gradient of critics of their actions.

Source: Lillicrap et al. 2016 (arXiv:1509.02971); Lowe et al. 2017 (arXiv:1706.02275); Fujimoto et al. 2018
(arXiv:1802.09477) and Ackermann et al. 2019 (arXiv:1910.01465). Discrete actions are relaxed by the straight-through
Gumbel-softmax, as in Lowe et al., section 6. The tests compare the losses with torchrl's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from marlnb.algorithms.configs.ddpg import IDDPGConfig
from marlnb.algorithms.learner import linear_schedule, restore_generator
from marlnb.algorithms.q_actor_critic import CriticBatch, QActorCriticLearner, td_target
from marlnb.algorithms.replay import Sample
from marlnb.config import LEARNERS, LearnerContext
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.random_numbers import Generators, fill


@LEARNERS.register(IDDPGConfig)
class DDPGLearner(QActorCriticLearner):
    """Learns one group's DeterministicPolicy; for MADDPG and MATD3 as well, by their options."""

    config: IDDPGConfig
    policy: DeterministicPolicy

    def __init__(self, config: IDDPGConfig, context: LearnerContext) -> None:
        networks = (context.group, context.env, context.actor, context.critic)
        policy = DeterministicPolicy(*networks, centralised=config.centralised, twins=config.twins).to(context.device)
        if config.noise_kind == "ornstein_uhlenbeck":
            policy.process = config.noise_theta, config.noise_dt
        super().__init__(config, policy, context.env, followed={"actor": policy.actor}, trained={"actor": policy.actor})
        self.generator = torch.Generator(context.device).manual_seed(int(torch.randint(2**62, ())))

    def state_dict(self) -> dict[str, Any]:
        assert isinstance(self.generator, torch.Generator)
        state = super().state_dict() | {"generator": self.generator.get_state()}
        noise_state = self.policy.noise_state
        if self.policy.process is None:
            return state
        return {**state, "noise_state": None if noise_state is None else noise_state.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if isinstance(self.generator, torch.Generator):
            restore_generator(self.generator, state["generator"])
        noise_state = state.get("noise_state")
        self.policy.noise_state = None if noise_state is None else noise_state.to(self.policy.noise.device)

    def explore(self) -> None:
        config, policy = self.config, self.policy
        final = config.noise if config.noise_final is None else config.noise_final
        policy.noise.fill_(linear_schedule(config.noise, final, self.frames, config.noise_frames))
        policy.uniform.fill_(self.warming_up)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        batch = cache(lambda: self.critic_batch(sample))
        metrics = self.step_critics(sample, batch)
        actor_is_due = (self.steps + 1) % self.config.actor_every == 0
        if actor_is_due:
            metrics |= self.step_actor(sample, batch)
        if actor_is_due or self.config.target_every:
            self.update_targets()
        return metrics

    @torch.no_grad()
    def target(self, batch: CriticBatch) -> Tensor:
        """The critics' target, `[n, agent]`:

            y = r + gamma (1 - terminated) min_i Q_i'(s', mu'(s'))

        where ' marks target networks, and the minimum is over TD3's twin critics.
        Source: Lillicrap et al. 2016, algorithm 1; twins: Fujimoto et al. 2018, equation 10 (arXiv:1802.09477).
        """
        codes = batch.next_codes | {
            self.group.name: self._next_code(batch.next_observation, batch.next_mask, self.generator)
        }
        values = [critic(batch.next_encoded, codes) for critic in self.target_critics]
        next_value = values[0] if len(values) == 1 else torch.minimum(*values)
        return td_target(batch.reward, next_value, batch.terminated, batch.discount)

    def _next_code(self, observation: Tensor, mask: Tensor | None, generator: Generators) -> Tensor:
        """mu'(s'), encoded; in TD3 smoothed: clip(mu'(s') + clip(noise, -c, c), -1, 1)."""
        actor = cast(Actor, self.targets["actor"])
        parameters = actor.distribution.mask(actor(observation), mask)
        code = self.policy.code(parameters, self.config.temperature, generator)
        if not (self.config.twins and self.policy.continuous):
            return code
        bound = self.config.target_noise_clip
        noise = fill(torch.empty_like(code), Tensor.normal_, generator)
        noise.mul_(self.config.target_noise).clamp_(-bound, bound)
        return (code + noise).clamp_(-1, 1)

    @torch.no_grad()
    def next_action(self, observation: Tensor, mask: Tensor | None, generator: Generators) -> Tensor:
        code = self._next_code(observation, mask, generator)
        if self.policy.continuous:
            return self.policy.action_of(code)
        choices = [part.argmax(-1) for part in code.split(self.group.action.n, dim=-1)]
        return choices[0] if self.group.action.kind == "discrete" else torch.stack(choices, dim=-1)

    def actor_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The deterministic policy gradient, of each agent i, and metrics:

            L = -Q(s, a_1, ..., mu_i(o_i), ..., a_n) + output_penalty * mean(output^2)

        The others' actions a_j are the remembered ones, or the current policy's (`policy_actions`).
        Source: Lowe et al. 2017, equation 6 (arXiv:1706.02275).
        """
        policy = self.policy
        output = policy.actor(batch.observation)
        parameters = policy.actor.distribution.mask(output, batch.mask)
        own_code = policy.code(parameters, self.config.temperature, self.generator)
        if self.config.policy_actions == "all":
            value = policy.critic(batch.encoded, batch.codes | {self.group.name: own_code})
        else:
            value = policy.critic.q_with_own_action(batch.encoded, batch.codes, own_code)
        loss = self.mean(self.config.output_penalty * output.square().mean(-1) - value, batch.acting)
        return loss, {"actor_loss": loss.detach()}
