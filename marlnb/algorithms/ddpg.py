"""IDDPG, MADDPG and MATD3: actors that name one action, improved along the gradient of critics that judge it.

Source: Lillicrap et al. 2016 (arXiv:1509.02971); Lowe et al. 2017 (arXiv:1706.02275); Fujimoto et al. 2018
(arXiv:1802.09477) and Ackermann et al. 2019 (arXiv:1910.01465). Discrete actions are relaxed by the straight-through
Gumbel-softmax, as in Lowe et al., section 6. The tests hold the losses to torchrl's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

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
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.registry import ALGORITHMS
from marlnb.specs import EnvSpec, GroupSpec


@ALGORITHMS.register("iddpg")
@dataclass(frozen=True)
class IDDPGConfig(QActorCriticConfig):
    """Independent DDPG: each agent's critic sees what the agent sees and does."""

    noise: float = option(0.2, help="deviation of the noise on continuous actions, bounds scaled to -1..1", ge=0)
    noise_final: float | None = option(None, help="deviation reached after noise_frames, as a straight line", ge=0)
    noise_frames: int = option(0, help="frames over which the noise moves to noise_final", unit="frames", ge=0)
    temperature: float = option(1.0, help="of the relaxed discrete actions that the actor learns through", gt=0)
    output_penalty: float = option(
        1e-3, help="weight of the actor's squared outputs (logits, or actions before the tanh)", ge=0
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
    ) -> DDPGLearner:
        self.check_fit(group, env, actor, critic)
        self.check_memory(group, actor, critic, n_envs=n_envs, rollout_steps=rollout_steps)
        policy = DeterministicPolicy(
            group, env, actor, critic, centralised=self.centralised, twins=self.smoothing is not None
        )
        return DDPGLearner(self, policy.to(device), env)

    @property
    def smoothing(self) -> tuple[float, float] | None:
        """Deviation and bound of the noise on the targets' actions; None without twin critics."""
        return None

    @property
    def updates_per_actor_step(self) -> int:
        return 1

    @property
    def improves_together(self) -> bool:
        """Whether the actor's loss takes all agents' actions from the current policy, not only each one's own."""
        return False


@ALGORITHMS.register("maddpg")
@dataclass(frozen=True)
class MADDPGConfig(IDDPGConfig):
    """Multi-agent DDPG: the critic reads every group's observations and actions, and the state where there is one."""

    centralised: ClassVar[bool] = True
    simultaneous_only: ClassVar[bool] = True

    policy_actions: Literal["own", "all"] = option(
        "own",
        help="whose actions the current policy names in the actor's loss; own: the agent's, beside the others' "
        "remembered ones (Lowe et al. 2017, equation 6); all: its group's at once, which is cheaper (as in BenchMARL)",
        choices=("own", "all"),
    )

    @property
    def improves_together(self) -> bool:
        return self.policy_actions == "all"


@ALGORITHMS.register("matd3")
@dataclass(frozen=True)
class MATD3Config(MADDPGConfig):
    """Multi-agent TD3: MADDPG with twin critics, smoothed target actions and an actor that learns less often."""

    actor_every: int = option(2, help="steps of the critics for one of the actor and the targets", ge=1)
    target_noise: float = option(0.2, help="deviation of the noise on the targets' continuous actions", ge=0)
    target_noise_clip: float = option(0.5, help="bound on that noise", ge=0)

    @property
    def smoothing(self) -> tuple[float, float] | None:
        return self.target_noise, self.target_noise_clip

    @property
    def updates_per_actor_step(self) -> int:
        return self.actor_every


class DDPGLearner(QActorCriticLearner):
    """Learns one group's DeterministicPolicy."""

    config: IDDPGConfig
    policy: DeterministicPolicy

    def __init__(self, config: IDDPGConfig, policy: DeterministicPolicy, env: EnvSpec) -> None:
        super().__init__(config, policy, env, followed={"actor": policy.actor}, trained={"actor": policy.actor})

    def explore(self) -> None:
        config, policy = self.config, self.policy
        left = max(0.0, 1 - self.frames / config.noise_frames) if config.noise_frames else 0.0
        final = config.noise if config.noise_final is None else config.noise_final
        policy.noise.fill_(final + left * (config.noise - final))
        policy.uniform.fill_(self.warming_up)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        judged = self.judged(sample)
        metrics = self.step_critics(judged, self.target(judged, sample["next", self.group.name, "observation"]))
        due = (self.steps + 1) % self.config.updates_per_actor_step == 0
        if due:
            metrics |= self._step_actor(judged, sample[self.group.name, "observation"])
        if due or self.config.target_every:
            self.update_targets()
        return metrics

    @torch.no_grad()
    def target(self, judged: CriticBatch, next_observation: Tensor) -> Tensor:
        """What the critics should say of the actions taken, `[n, agent]`."""
        codes = judged.next_codes | {self.group.name: self._next_code(next_observation, judged.next_mask)}
        values = [critic(judged.next_seen, codes) for critic in self.target_critics]
        least = values[0] if len(values) == 1 else torch.minimum(*values)
        return td_target(judged.reward, least, judged.terminated, self.config.gamma)

    def actor_loss(self, judged: CriticBatch, observation: Tensor) -> Tensor:
        """Minus the first critic's value of each agent's own action, beside the others' as `policy_actions` says."""
        policy = self.policy
        output = policy.actor(observation)
        own = policy.code(policy.actor.distribution.mask(output, judged.mask), self.config.temperature)
        if self.config.improves_together:
            value = policy.critic(judged.seen, judged.codes | {self.group.name: own})
        else:
            value = policy.critic.judge_own(judged.seen, judged.codes, own)
        return mean_over(self.config.output_penalty * output.square().mean(-1) - value, judged.acting)

    @torch.no_grad()
    def next_action(self, observation: Tensor, mask: Tensor | None) -> Tensor:
        code = self._next_code(observation, mask)
        if self.policy.continuous:
            return self.policy.action_of(code)
        parts = [part.argmax(-1) for part in code.split(self.group.action.n, dim=-1)]
        return parts[0] if self.group.action.kind == "discrete" else torch.stack(parts, dim=-1)

    def _step_actor(self, judged: CriticBatch, observation: Tensor) -> dict[str, Tensor]:
        with held(self.critic_weights):
            loss = self.actor_loss(judged, observation)
            norm = self.optimizers["actor"].step(loss, {"actor": self.config.lr}, self.config.max_grad_norm)
        return {"actor_loss": loss.detach(), "grad_norm_actor": norm[0]}

    def _next_code(self, observation: Tensor, mask: Tensor | None) -> Tensor:
        actor = cast(Actor, self.targets["actor"])
        code = self.policy.code(actor.distribution.mask(actor(observation), mask), self.config.temperature)
        if self.config.smoothing is None or not self.policy.continuous:
            return code
        deviation, bound = self.config.smoothing
        noise = torch.randn_like(code).mul_(deviation).clamp_(-bound, bound)
        return (code + noise).clamp_(-1, 1)
