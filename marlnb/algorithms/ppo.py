"""IPPO and MAPPO: clipped policy gradients with a critic for each agent's own view, or for everyone's.

Source: Schulman et al. 2017 (arXiv:1707.06347); de Witt et al. 2020 (arXiv:2011.09533); Yu et al. 2022
(arXiv:2103.01955). Plain functions do the arithmetic; the tests hold them to torchrl's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.algorithms.adam import PartAdam
from marlnb.algorithms.gae import RolloutValues, advantages, critic_inputs, value_rollout
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.ppo_loss import METRICS, LossSettings, ValueLoss, ppo_losses
from marlnb.algorithms.turns import ends_of, with_turns
from marlnb.config import AlgorithmConfig, ModelConfig, option
from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.networks.layers import fast_training
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import StdOf, features
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.distributions import Squash
from marlnb.registry import ALGORITHMS
from marlnb.specs import EnvSpec, GroupSpec


@ALGORITHMS.register("ippo")
@dataclass(frozen=True)
class IPPOConfig(AlgorithmConfig):
    """Independent PPO: each agent's critic sees what the agent sees."""

    centralised: ClassVar[bool] = False

    lr: float = option(3e-4, help="Adam's learning rate", gt=0)
    lr_critic: float | None = option(None, help="the critic's learning rate; none: the actor's", gt=0)
    lr_final: float | None = option(None, help="learning rate reached after anneal_frames, as a straight line", ge=0)
    anneal_frames: int = option(0, help="frames over which the learning rate moves to lr_final", unit="frames", ge=0)
    adam_eps: float = option(1e-5, help="Adam's epsilon", gt=0)
    gamma: float = option(0.99, help="discount of a step", ge=0, le=1)
    gae_lambda: float = option(0.95, help="weight of longer advantage estimates", ge=0, le=1)
    clip: float = option(0.2, help="bound on the probability ratio's change", gt=0)
    epochs: int = option(10, help="passes over each rollout", ge=1)
    minibatch_frames: int = option(400, help="length of a minibatch; a frame holds every agent", unit="frames", ge=1)
    n_minibatches: int = option(0, help="minibatches of an epoch; 0: as minibatch_frames gives", ge=0)
    sequence_length: int = option(16, help="steps backpropagated through by recurrent networks", unit="steps", ge=1)
    entropy_coef: float = option(0.0, help="weight of the entropy bonus", ge=0)
    value_coef: float = option(1.0, help="weight of the value loss", ge=0)
    value_loss: ValueLoss = option("l2", help="shape of the value loss", choices=("l2", "huber"))
    value_clip: float | None = option(None, help="bound on the normalised value's change; none: unbounded", gt=0)
    max_grad_norm: float = option(0.5, help="bound on the gradient norm of actor and of critic; 0: none", ge=0)
    target_kl: float | None = option(None, help="no further epoch once the mean KL exceeds this", unit="nats", gt=0)
    normalise_advantages: bool = option(True, help="to mean 0 and deviation 1 over the agents that acted")
    normalise_values: bool = option(True, help="the critic learns returns scaled by their running mean and deviation")
    squash: Squash = option("tanh", help="how continuous actions are bounded", choices=("tanh", "clip"))
    std_of: StdOf = option(
        "parameter", help="a continuous action's deviation: a parameter, or an output", choices=("parameter", "network")
    )
    initial_log_std: float = option(0.0, help="of continuous actions, bounds scaled to -1..1", unit="nats")

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
    ) -> PPOLearner:
        self.check_fit(group, env, actor, critic)
        self._check(group, actor.recurrent or critic.recurrent, n_envs * rollout_steps, rollout_steps)
        policy = ActorCritic(
            group,
            env,
            actor,
            critic,
            centralised=self.centralised,
            squash=self.squash,
            std_of=self.std_of,
            initial_log_std=self.initial_log_std,
        )
        chunk = self.sequence_length if actor.recurrent or critic.recurrent else 1
        return PPOLearner(self, policy.to(device), chunk=chunk, takes_turns=not env.simultaneous)

    def _check(self, group: GroupSpec, recurrent: bool, frames: int, rollout_steps: int) -> None:
        where = f"{self.name} for group {group.name!r}"
        if recurrent and rollout_steps % self.sequence_length:
            fits = [n for n in range(1, rollout_steps + 1) if rollout_steps % n == 0]
            asked = f"sequence_length={self.sequence_length} must divide rollout_steps={rollout_steps}"
            raise ConfigError(f"{where}: {asked}; valid: {', '.join(map(str, fits))}")
        samples = frames // (self.sequence_length if recurrent else 1)
        if self.n_minibatches > samples:
            raise ConfigError(f"{where}: {self.n_minibatches} minibatches of {samples} samples; at most {samples}")
        if self.anneal_frames and self.lr_final is None:
            raise ConfigError(f"{where}: anneal_frames={self.anneal_frames} needs lr_final; got none")


@ALGORITHMS.register("mappo")
@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """Multi-agent PPO: the critic reads every group's observations, and the environment's state where it has one."""

    centralised: ClassVar[bool] = True


class PPOLearner(Learner):
    """Learns one group's ActorCritic from whole rollouts.

    Args:
        chunk: steps of a sample: 1 for feed-forward networks, else the stretch that is backpropagated through.
        takes_turns: whether agents wait for one another, so that experience is that of each agent's own turns.
    """

    policy: ActorCritic

    def __init__(self, config: IPPOConfig, policy: ActorCritic, *, chunk: int, takes_turns: bool = False) -> None:
        self.config, self.policy, self.group, self.chunk = config, policy, policy.group, chunk
        self.takes_turns = takes_turns
        self.recurrent = policy.recurrent_shape is not None or policy.critic_recurrent_shape is not None
        self.frames = 0
        self._shuffler = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        self._critic_recurrent: Tensor | None = None
        self._optimizer = PartAdam({"actor": policy.actor, "critic": policy.critic}, config.adam_eps)
        self._settings = LossSettings(
            config.clip, config.entropy_coef, config.value_coef, config.value_clip, config.value_loss
        )

    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Learns from a rollout `[env, time]`.

        Returns:
            policy_loss, value_loss (of normalised values), entropy, kl (nats), clip_fraction, grad_norm_actor,
            grad_norm_critic: means over the minibatches; explained_variance of the returns; value_mean; epochs made
            (0, and nothing else, where no agent of the group acted).
        """
        with fast_training(self.policy):
            return self._learn(rollout)

    def _learn(self, rollout: TensorDictBase) -> dict[str, float]:
        acting = rollout[self.group.name, "acting"] if self.takes_turns else None
        values = value_rollout(self.policy, rollout, self._critic_recurrent, self._critic_holds(acting))
        self._critic_recurrent = values.leaving
        self.frames += rollout.batch_size.numel()
        if self.takes_turns:
            ends = ends_of(rollout, self.group)
            rollout = with_turns(rollout, self.group, ends)
            values = values._replace(next_value=ends.gather(values.next_value))
        if not bool(rollout[self.group.name, "acting"].any()):
            return {"epochs": 0.0}
        samples, report = self._samples(rollout, values, acting)
        lr, totals = self._lr(), []
        for _ in range(self.config.epochs):
            totals.append(self._epoch(samples, lr))
            if self.config.target_kl is not None and float(totals[-1][METRICS.index("kl")]) > self.config.target_kl:
                break
        names = (*METRICS, "grad_norm_actor", "grad_norm_critic", *report)
        means = torch.cat((torch.stack(totals).mean(0), torch.stack(tuple(report.values()))))
        return {**dict(zip(names, means.tolist())), "epochs": float(len(totals))}

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": {name: tensor.clone() for name, tensor in self.policy.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "shuffler": self._shuffler.get_state(),
            "critic_recurrent": self._critic_recurrent,
            "frames": self.frames,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self.policy.load_state_dict(state["policy"])
        except RuntimeError as error:
            raise CheckpointError(f"weights of other networks than {self.group.name!r} has: {error}") from error
        self._optimizer.load_state_dict(state["optimizer"])
        self._shuffler.set_state(state["shuffler"].cpu())
        carried = state["critic_recurrent"]
        self._critic_recurrent = None if carried is None else carried.to(next(self.policy.parameters()).device)
        self.frames = int(state["frames"])

    def _lr(self) -> dict[str, float]:
        config = self.config
        rates = {"actor": config.lr, "critic": config.lr_critic or config.lr}
        if config.lr_final is None or not config.anneal_frames:
            return rates
        left = max(0.0, 1 - self.frames / config.anneal_frames)
        return {part: config.lr_final + left * (lr - config.lr_final) for part, lr in rates.items()}

    @torch.no_grad()
    def _samples(
        self, rollout: TensorDictBase, values: RolloutValues, moved: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The rollout as samples `[sample, ...]` (recurrent: `[sample, time, ...]`), and what to report of it.
        moved: `[env, time, agent]`, where agents take turns, who acted, whether that turn's end is known or not."""
        name, policy, acting = self.group.name, self.policy, rollout[self.group.name, "acting"]
        discounts = {"gamma": self.config.gamma, "gae_lambda": self.config.gae_lambda}
        advantage = advantages(rollout, name, values, takes_turns=self.takes_turns, **discounts)
        returns = advantage + values.value
        acted_returns, acted_advantage = returns[acting], advantage[acting]
        unexplained, variance = acted_advantage.var(correction=0), acted_returns.var(correction=0)
        report = {
            "explained_variance": 1 - unexplained / variance.clamp_min(1e-8),
            "value_mean": values.value[acting].mean(),
        }
        if self.config.normalise_values:
            policy.value_norm.update(acted_returns)
        if self.config.normalise_advantages and acted_advantage.numel() > 1:
            advantage = (advantage - acted_advantage.mean()) / (acted_advantage.std() + 1e-8)
        samples = self._inputs(rollout) | {
            "log_prob": rollout[name, "log_prob"],
            "advantage": advantage,
            "target": policy.value_norm.normalise(returns),
        }
        if self.config.value_clip is not None:
            samples["value"] = policy.value_norm.normalise(values.value)
        if not bool(acting.all()):
            samples["weight"] = acting.float()
        if moved is not None and self.recurrent:
            samples["acting"] = moved
        samples = self._cut(samples, rollout, values.entering)
        if self.takes_turns and "weight" in samples:
            counts = samples["weight"].flatten(1).any(1)  # a sample in which nobody acted teaches nothing
            samples = {key: value[counts] for key, value in samples.items()}
        return samples, report

    def _inputs(self, rollout: TensorDictBase) -> dict[str, Tensor]:
        """What the networks read, `[env, time, ...]`."""
        name, policy = self.group.name, self.policy
        inputs = {
            "observation": features(rollout[name, "observation"], policy.actor.observation_axes),
            "stored": rollout[name, policy.actor.distribution.stored_as],
        }
        if self.group.has_action_mask:
            inputs["action_mask"] = rollout[name, "action_mask"]
        if policy.critic.centralised:
            inputs["joint"] = critic_inputs(policy, rollout)
        return inputs

    def _cut(
        self, samples: dict[str, Tensor], rollout: TensorDictBase, critic_entering: Tensor | None
    ) -> dict[str, Tensor]:
        """`[env, time, ...]` to `[sample, ...]`; with recurrent networks `[sample, time, ...]` and entering states."""
        if not self.recurrent:
            return {key: value.flatten(0, 1) for key, value in samples.items()}
        samples["is_init"] = rollout["is_init"].squeeze(-1)
        cut = {key: value.unflatten(1, (-1, self.chunk)).flatten(0, 1) for key, value in samples.items()}
        if self.policy.recurrent_shape is not None:
            cut["actor_recurrent"] = rollout[self.group.name, "recurrent"][:, :: self.chunk].flatten(0, 1)
        if critic_entering is not None:
            cut["critic_recurrent"] = critic_entering[:, :: self.chunk].flatten(0, 1)
        return cut

    def _epoch(self, samples: dict[str, Tensor], lr: Mapping[str, float]) -> Tensor:
        """One pass over the samples in a new order; returns the mean of each metric."""
        n_samples = samples["log_prob"].shape[0]
        order = torch.randperm(n_samples, generator=self._shuffler).to(samples["log_prob"].device)
        shuffled = {key: value.index_select(0, order) for key, value in samples.items()}
        metrics = []
        for start, stop in self._minibatches(n_samples):
            minibatch = {key: value[start:stop] for key, value in shuffled.items()}
            loss, measured = self.loss(minibatch)
            norms = self._optimizer.step(loss, lr, self.config.max_grad_norm)
            metrics.append(torch.cat((measured, norms)))
        return torch.stack(metrics).mean(0)

    def _minibatches(self, n_samples: int) -> Iterator[tuple[int, int]]:
        """Bounds of minibatches whose sizes differ by one at most, so that none is a small noisy rest."""
        n = self.config.n_minibatches or max(1, round(n_samples * self.chunk / self.config.minibatch_frames))
        n = min(n, n_samples)
        bounds = [n_samples * k // n for k in range(n + 1)]
        yield from itertools.pairwise(bounds)

    def loss(self, sample: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The loss of one minibatch, and METRICS without gradient."""
        policy = self.policy
        parameters = policy.actor.with_std(self._run(policy.actor.network, sample, sample["observation"], "actor"))
        parameters = policy.actor.distribution.mask(parameters, sample.get("action_mask"))
        log_prob, entropy = policy.actor.distribution.evaluate(parameters, sample["stored"])
        inputs = policy.critic.spread(sample["joint"] if policy.critic.centralised else sample["observation"])
        value = policy.critic.by_agent(self._run(policy.critic.network, sample, inputs, "critic"))
        return ppo_losses(log_prob, entropy, value, sample, self._settings)

    def _run(self, network: Network, sample: Mapping[str, Tensor], x: Tensor, part: str) -> Tensor:
        if not self.recurrent:
            return network(x)[0]
        acting = sample.get("acting")
        holds = self._critic_holds(acting) if part == "critic" else acting
        return network.sequence(x, sample.get(f"{part}_recurrent"), sample["is_init"], holds)[0]

    def _critic_holds(self, acting: Tensor | None) -> Tensor | None:
        """Where the critic's state stays as it is: a critic that is one for all agents goes on at every step."""
        return None if self.policy.critic.shared_forward else acting
