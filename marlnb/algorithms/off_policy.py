"""What off-policy algorithms share: the loop of storing a rollout, sampling and gradient steps.

A subclass builds its networks, states its losses, and implements one gradient step on a sample (`learn`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.gradients.compiled import CompiledStep, StepCompiler, are_built_in
from marlnb.algorithms.learner import Learner, load_weights, weights_of
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.replay import ReplayBuffer, Sample
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.turns import OpenTurns
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy, training_mode
from marlnb.models.policies.random_numbers import Generators
from marlnb.specs import EnvSpec

LossFunction = Callable[[Sample], tuple[Tensor, dict[str, Tensor]]]
"""Of a sample: a scalar, and metrics `[]` without gradient."""


class OffPolicyLearner(Learner):
    """Adds each rollout to a replay buffer, then takes `config.updates` gradient steps on samples of it.

    Args:
        policy: on its device already, like every module here.
        sequence_length: steps of a sample: 1 for feed-forward networks (samples `[n]`), else `[n, time]`.
        trained: the parts of each optimizer, by name; `take_step` steps them.
        followed: networks by name that have target networks, `targets[name]`.
        reads: groups whose observations and actions are sampled, besides the learner's own.

    Attributes:
        optimizers: by name.
        frames: seen so far.
        steps: gradient steps so far.
        open_turns: in turn-based games, experience that is not in the replay buffer yet.
        targets: slowly moving copies of the followed networks, without gradient and always in eval mode;
            `update_targets` moves them.
        shares_replay: the replay buffer is that of several learners, and not part of this one's state.
        generator: of the random numbers in the losses; None: torch's global one.
        mean: of a loss's values over the agents that acted: `masked_mean`, or `masked_means` of several training runs.
    """

    shares_replay = False
    generator: Generators = None
    mean: Callable[[Tensor, Tensor | None], Tensor] = staticmethod(masked_mean)

    def __init__(
        self,
        config: OffPolicyConfig,
        policy: Policy,
        env: EnvSpec,
        *,
        trained: Mapping[str, Mapping[str, nn.Module]],
        followed: Mapping[str, nn.Module] | None = None,
        reads: Sequence[str] = (),
        sequence_length: int = 1,
    ) -> None:
        self.config, self.policy, self.group, self.env = config, policy, policy.group, env
        self.sequence_length = sequence_length
        self.frames = self.steps = 0
        self.optimizers = {name: PartAdam(parts, config.adam_eps) for name, parts in trained.items()}
        networks = nn.ModuleDict(followed)
        self.targets = deepcopy(networks).requires_grad_(False).eval()
        self.target_weights: list[Tensor] = list(self.targets.parameters())
        self.followed_weights: list[Tensor] = list(networks.parameters())
        self._buffers = list(zip(self.targets.buffers(), networks.buffers()))
        self.replay = ReplayBuffer(
            config.buffer_frames,
            group=self.group,
            reads=tuple(dict.fromkeys((self.group.name, *reads))),
            sequence_length=sequence_length,
            n_steps=config.n_steps,
            gamma=config.gamma,
            seed=int(torch.randint(2**62, ())),
            device=next(policy.parameters()).device,
        )
        self.open_turns = OpenTurns(self.group)
        self._update = 0  # number of the present one
        self._compilers: dict[str, StepCompiler] = {}  # by optimizer
        self._compiled: dict[str, CompiledStep | None] = {}  # in the present update, by optimizer
        self.explore()

    def compile_updates(self, after: int, start: int = 0) -> None:
        if self.sequence_length > 1 or next(self.policy.parameters()).device.type != "cpu":
            return
        for part in self.losses():
            name = f"{self.group.name!r} ({part})" if len(self.losses()) > 1 else repr(self.group.name)
            self._compilers[part] = StepCompiler(
                partial(self._loss_with, part),
                lambda: nn.ModuleList(self.modules_read()),  # later: the groups that critics read are not known yet
                self.optimizers[part],
                self.config.max_grad_norm,
                name,
                after=after,
                start=start,
                may_change=not are_built_in(self, self.config, *self.policy.modules()),
            )

    @property
    def warming_up(self) -> bool:
        """Whether actions are still random and nothing is learned."""
        return self.frames < self.config.learning_starts

    def explore(self) -> None:
        """Sets how much the policy explores, from `self.frames` and `self.warming_up`."""

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Adds the rollout `[env, time]` to the replay buffer and learns from the buffer.

        Returns:
            the means of what `learn` returned (of a metric that some calls lack: over the calls that have it),
            `updates` made, and `replay_frames` in the buffer.
        """
        self.store(rollout)
        return self.learn_from_replay()

    def store(self, rollout: Rollout) -> None:
        """Adds a rollout to the replay buffer; in turn-based games the steps that no open turn waits for."""
        if self.env.simultaneous:
            self.replay.add(rollout)
        else:  # an agent's transition leads to its own next turn, not to the next step
            n_envs, n_steps = rollout.batch_size
            for part in self.open_turns.close(rollout, self.replay.capacity // n_envs - n_steps):
                self.replay.add(part)
        self.frames += rollout.batch_size.numel()
        self._update = self.frames // rollout.batch_size.numel() - 1

    @property
    def updates_due(self) -> int:
        """Gradient steps after the rollout that was stored last; none before an agent of the group has acted."""
        if self.warming_up or not self.replay.n_samples:
            return 0
        acted = self.steps > 0 or bool(self.replay.field((self.group.name, "acting")).any())
        return self.config.updates if acted else 0

    def learn_from_replay(self) -> dict[str, float]:
        """The gradient steps that are due; returns metrics as `update`."""
        updates = self.updates_due
        metrics = self.take_steps(updates, lambda: self.replay.sample(self.config.batch_size // self.sequence_length))
        self.explore()
        means = torch.stack(tuple(metrics.values())).tolist() if metrics else []  # one transfer from the device
        return {**dict(zip(metrics, means)), "updates": float(updates), "replay_frames": float(len(self.replay))}

    def take_steps(self, n: int, sample: Callable[[], Sample]) -> dict[str, Tensor]:
        """n gradient steps, each on a new sample; returns the means of what `learn` returned."""
        metrics: dict[str, list[Tensor]] = {}
        self._compiled.clear()
        with fast_training(nn.ModuleList([self.policy, self.targets])), training_mode(self.policy):
            for _ in range(n):
                for name, value in self.learn(sample()).items():
                    metrics.setdefault(name, []).append(value)
                self.steps += 1
        return {name: torch.stack(values).mean(0) for name, values in metrics.items()}

    def discount(self, sample: Sample) -> float | Tensor:
        """Of the next value: gamma, or `[n, 1]` to the power of each sample's steps."""
        return self.config.gamma ** sample["steps"] if "steps" in sample else self.config.gamma

    def losses(self) -> Mapping[str, LossFunction]:
        """The loss of each optimizer that `descend` steps, by name."""
        return {}

    def modules_read(self) -> list[nn.Module]:
        """All modules that the losses read."""
        return [self.policy, self.targets]

    def descend(
        self,
        name: str,
        sample: Sample,
        loss: Callable[[], tuple[Tensor, dict[str, Tensor]]] | None = None,
        lr: float | None = None,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """One gradient step of an optimizer.

        Args:
            name: of the optimizer, and of its loss.
            sample: what the loss is of.
            loss: its value, if that takes less than to compute it from the sample.
            lr: learning rate; None: the config's.
        Returns:
            the metrics of the loss, and gradient norms `[part]`.
        """
        compiled = self._compiled_step(name, sample) if self._compilers else None
        if compiled is not None:
            return compiled(sample, self._rates(self.optimizers[name], lr), self.generator)
        value, metrics = self.losses()[name](sample) if loss is None else loss()
        return metrics, self.take_step(name, value, lr)

    def take_step(self, name: str, loss: Tensor, lr: float | None = None) -> Tensor:
        """One step of an optimizer with the learning rate `lr` (None: the config's); gradient norms, `[part]`."""
        optimizer = self.optimizers[name]
        return optimizer.step(loss, self._rates(optimizer, lr), self.config.max_grad_norm)

    def _rates(self, optimizer: PartAdam, lr: float | None) -> dict[str, float]:
        return dict.fromkeys(optimizer.parameters, self.config.lr if lr is None else lr)

    def _compiled_step(self, name: str, sample: Sample) -> CompiledStep | None:
        """That of an optimizer, if it is due: the same one throughout an update."""
        if name not in self._compiled:
            for compiler in self._compilers.values():
                compiler.start(self._update, sample)
            self._compiled[name] = self._compilers[name].step(self._update, sample)
        return self._compiled[name]

    def _loss_with(self, name: str, sample: Sample, generator: Generators) -> tuple[Tensor, dict[str, Tensor]]:
        """A loss whose random numbers come from another generator than the learner's."""
        own, self.generator = self.generator, generator
        try:
            return self.losses()[name](sample)
        finally:
            self.generator = own

    @abstractmethod
    def learn(self, sample: Sample) -> dict[str, Tensor]:
        """One gradient step on a sample, then `update_targets`; returns metrics `[]` without gradient."""

    @property
    def targets_are_due(self) -> bool:
        """Whether the present gradient step moves the target networks."""
        every = self.config.target_every
        return not every or (self.steps + 1) % every == 0

    @torch.no_grad()
    def update_targets(self) -> None:
        """Moves the target networks:

            w_target <- (1 - tau) w_target + tau w

        With `target_every` n, all weights are copied at each n-th step instead.
        Source: Lillicrap et al. 2016, section 3 (arXiv:1509.02971); copies: Mnih et al. 2015.
        """
        if not self.targets_are_due:
            return
        share = 1.0 if self.config.target_every else self.config.tau
        if isinstance(share, Tensor):  # of several training runs, `[training, 1]`
            torch._foreach_lerp_(self.target_weights, self.followed_weights, [share] * len(self.followed_weights))
        else:
            torch._foreach_lerp_(self.target_weights, self.followed_weights, share)
        for target, buffer in self._buffers:
            target.copy_(buffer)

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": weights_of(self.policy),
            "targets": weights_of(self.targets),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "replay": self.replay.state_dict() if self.config.save_replay and not self.shares_replay else None,
            "open_turns": self.open_turns.state_dict() if self.config.save_replay else {},
            "frames": self.frames,
            "steps": self.steps,
            "compiled": {name: compiler.compiled for name, compiler in self._compilers.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for module, name in ((self.policy, "policy"), (self.targets, "targets")):
            load_weights(module, state[name], f"the networks of {self.group.name!r}")
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        if state["replay"] is not None:
            self.replay.load_state_dict(state["replay"])
        self.open_turns.load_state_dict(state.get("open_turns", {}), next(self.policy.parameters()).device)
        self.frames, self.steps = int(state["frames"]), int(state["steps"])
        for name, compiler in self._compilers.items():
            compiler.compiled = state.get("compiled", {}).get(name)  # checkpoints of earlier versions do not say
        self.explore()
