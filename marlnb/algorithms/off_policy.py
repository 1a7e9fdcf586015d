"""What learners that remember share: their options, and the loop of storing a rollout, sampling and stepping.

A subclass builds its networks and states what one gradient step does with a sample in `learn`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from marlnb.algorithms.adam import PartAdam
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.replay import Replay, Sample
from marlnb.config import AlgorithmConfig, ModelConfig, option
from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec


@dataclass(frozen=True)
class OffPolicyConfig(AlgorithmConfig):
    """The options of every algorithm that learns from a replay memory."""

    on_policy: ClassVar[bool] = False

    lr: float = option(5e-4, help="Adam's learning rate", gt=0)
    adam_eps: float = option(1e-5, help="Adam's epsilon", gt=0)
    gamma: float = option(0.99, help="discount of a step", ge=0, le=1)
    max_grad_norm: float = option(10.0, help="bound on the gradient norm of each network; 0: none", ge=0)
    buffer_frames: int = option(1_000_000, help="held by the replay memory; the oldest go first", unit="frames", ge=1)
    batch_size: int = option(256, help="length of a minibatch; a frame holds every agent", unit="frames", ge=1)
    updates: int = option(100, help="gradient steps after each rollout", ge=1)
    learning_starts: int = option(5_000, help="actions are random and nothing is learnt before", unit="frames", ge=0)
    tau: float = option(0.005, help="share of the weights that target networks take over each step", gt=0, le=1)
    target_every: int = option(
        0, help="gradient steps between two copies of all weights into the targets; 0: they follow by tau", ge=0
    )
    sequence_length: int = option(16, help="steps of a sample for recurrent networks", unit="steps", ge=1)
    save_replay: bool = option(
        True, help="checkpoints hold the memory; without it a resumed training fills a new one, and is not exact"
    )

    @property
    def warmup_frames(self) -> int:
        return self.learning_starts

    def check_memory(
        self, group: GroupSpec, actor: ModelConfig, critic: ModelConfig, *, n_envs: int, rollout_steps: int
    ) -> None:
        """Raises ConfigError where the memory or the minibatch is too small."""
        where = f"{self.name} for group {group.name!r}"
        chunk = self.sequence_length if actor.recurrent or critic.recurrent else 1
        least = n_envs * max(rollout_steps, chunk)
        if self.buffer_frames < least:
            raise ConfigError(
                f"{where}: buffer_frames={self.buffer_frames} holds no rollout; at least {least} "
                f"(n_envs={n_envs} times {max(rollout_steps, chunk)} steps)"
            )
        if self.batch_size > self.buffer_frames:
            raise ConfigError(
                f"{where}: a minibatch of batch_size={self.batch_size} frames is more than the memory holds, "
                f"buffer_frames={self.buffer_frames}"
            )
        if self.batch_size < chunk:
            raise ConfigError(f"{where}: batch_size={self.batch_size} holds no sequence of {chunk} steps")


class OffPolicyLearner(Learner):
    """Adds each rollout to the replay memory, then samples and steps `config.updates` times.

    Args:
        policy: on its device already, as every module given.
        chunk: steps of a sample: 1 for feed-forward networks (samples `[n]`), else `[n, time]`.
        reads: groups whose observations and actions are sampled, the own one first.
        optimizers: by name, for checkpoints; `learn` steps them.
        followed: networks by name that have slow copies, `targets[name]`.

    Attributes:
        frames: seen so far. steps: gradient steps made so far.
        targets: the slow copies, without gradient; `update_targets` moves them.
    """

    def __init__(
        self,
        config: OffPolicyConfig,
        policy: Policy,
        env: EnvSpec,
        *,
        chunk: int,
        reads: tuple[str, ...],
        optimizers: Mapping[str, PartAdam],
        followed: Mapping[str, nn.Module],
    ) -> None:
        self.config, self.policy, self.group, self.env, self.chunk = config, policy, policy.group, env, chunk
        self.frames = self.steps = 0
        self.optimizers, self.followed = dict(optimizers), dict(followed)
        self.targets = nn.ModuleDict(deepcopy(self.followed))
        self.targets.requires_grad_(False)
        self._slow: list[Tensor] = list(self.targets.parameters())
        self._own: list[Tensor] = [weight for network in followed.values() for weight in network.parameters()]
        buffers = [buffer for network in followed.values() for buffer in network.buffers()]
        self._buffers = list(zip(self.targets.buffers(), buffers))
        seed = int(torch.randint(2**62, ()))
        device = next(policy.parameters()).device
        self.replay = Replay(
            config.buffer_frames, group=self.group, reads=reads, sequence_length=chunk, seed=seed, device=device
        )
        self.explore()

    @abstractmethod
    def learn(self, sample: Sample) -> dict[str, Tensor]:
        """One gradient step on a sample, then `update_targets`; returns metrics `[]` without gradient."""

    def explore(self) -> None:
        """Sets how much the policy explores, from `self.frames` and `self.warming_up`."""

    @property
    def warming_up(self) -> bool:
        """Whether actions are still random and nothing is learnt."""
        return self.frames < self.config.learning_starts

    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Learns from the memory, the rollout `[env, time]` added to it.

        Returns:
            the means of what `learn` returns over its calls (a metric that some calls lack: over those that have it),
            `updates` made, and `replay_frames` held.
        """
        self.replay.add(self.experience(rollout))
        self.frames += rollout.batch_size.numel()
        found: dict[str, list[Tensor]] = {}
        ready = not self.warming_up and self.replay.n_samples > 0
        updates = self.config.updates if ready else 0
        with fast_training(nn.ModuleList([self.policy, self.targets])):
            for _ in range(updates):
                metrics = self.learn(self.replay.sample(self.config.batch_size // self.chunk))
                self.steps += 1
                for name, value in metrics.items():
                    found.setdefault(name, []).append(value)
        self.explore()
        means = torch.stack([torch.stack(values).mean() for values in found.values()]).tolist() if found else []
        counts = {"updates": float(updates), "replay_frames": float(len(self.replay))}
        return {**dict(zip(found, means)), **counts}

    def experience(self, rollout: TensorDictBase) -> TensorDictBase:
        """The rollout as it is remembered: where agents wait for their turns, each one's turns joined."""
        if self.env.simultaneous:
            return rollout
        from marlnb.algorithms.turns import own_turns

        return own_turns(rollout, self.group)

    @torch.no_grad()
    def update_targets(self) -> None:
        """Moves the targets towards their networks by `tau`, or copies all weights each `target_every` steps."""
        every = self.config.target_every
        if every and (self.steps + 1) % every:
            return
        torch._foreach_lerp_(self._slow, self._own, 1.0 if every else self.config.tau)
        for slow, own in self._buffers:
            slow.copy_(own)

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": {name: tensor.clone() for name, tensor in self.policy.state_dict().items()},
            "targets": {name: tensor.clone() for name, tensor in self.targets.state_dict().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "replay": self.replay.state_dict() if self.config.save_replay else None,
            "frames": self.frames,
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self.policy.load_state_dict(state["policy"])
            self.targets.load_state_dict(state["targets"])
        except RuntimeError as error:
            raise CheckpointError(f"weights of other networks than {self.group.name!r} has: {error}") from error
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        if state["replay"] is not None:
            self.replay.load_state_dict(state["replay"])
        self.frames, self.steps = int(state["frames"]), int(state["steps"])
        self.explore()
