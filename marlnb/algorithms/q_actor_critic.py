"""What the DDPG and SAC families share: critics of actions, whose targets need what every agent does next.

The next actions of other groups come from their learners. A learner of these families knows what its targets do
(`next_action`); any other policy (of PPO, of Q-learning, scripted, frozen) acts without exploring.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from marlnb.algorithms.configs.off_policy import QActorCriticConfig
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.off_policy import LossFunction, OffPolicyLearner
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.rollout import next_observations
from marlnb.errors import ConfigError
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.models.policies.q_critic import QCritic
from marlnb.models.policies.random_numbers import Generators
from marlnb.specs import EnvSpec


class CriticBatch(NamedTuple):
    """A sample as critics read it.

    Attributes:
        observation: of the learner's own group, `[n, agent, ...]`.
        encoded: observations now, as `QCritic.encode_observations` joins them.
        codes: by group, the actions taken, encoded, `[n, agent, code]`.
        reward: `[n, agent]`.
        terminated: `[n, agent]`.
        acting: `[n, agent]`.
        mask: allowed choices of the learner's own group, `[n, agent, choice]`, or None.
        next_observation: at the next step, like `observation`.
        next_encoded: observations at the next step, like `encoded`.
        next_codes: by group, the next actions, like `codes`; without the learner's own group.
        next_mask: allowed choices at the next step, like `mask`.
        discount: of the next step: a number, or of each sample `[n, 1]`.
    """

    observation: Tensor
    encoded: Tensor
    codes: dict[str, Tensor]
    reward: Tensor
    terminated: Tensor
    acting: Tensor
    mask: Tensor | None
    next_observation: Tensor
    next_encoded: Tensor
    next_codes: dict[str, Tensor]
    next_mask: Tensor | None
    discount: float | Tensor


class QActorCriticLearner(OffPolicyLearner):
    """Learns a QActorCritic: the critics from targets, the actor from the critics.

    Args:
        followed: networks by name that have target networks, in addition to the critics.
        trained: networks by name that have an optimizer each, in addition to the critics.

    Attributes:
        other_learners: by group, of the other groups whose actions the critics read.
    """

    config: QActorCriticConfig
    policy: QActorCritic

    def __init__(
        self,
        config: QActorCriticConfig,
        policy: QActorCritic,
        env: EnvSpec,
        followed: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Module],
    ) -> None:
        self.other_learners: dict[str, Learner] = {}
        critics: dict[str, nn.Module] = dict(zip(("critic", "critic_2"), policy.critics))
        optimizers = {"critics": critics, **{part: {part: module} for part, module in trained.items()}}
        followed = {**critics, **followed}
        super().__init__(config, policy, env, trained=optimizers, followed=followed, reads=policy.critic.reads)

    def bind_learners(self, learners: Mapping[str, Learner]) -> None:
        """Raises ConfigError if a critic reads the actions of a group with a recurrent policy."""
        group = self.group.name
        self.other_learners = {name: learners[name] for name in self.policy.critic.reads if name != group}
        recurrent = sorted(
            name for name, other in self.other_learners.items() if other.policy.recurrent_shape is not None
        )
        if recurrent:
            raise ConfigError(
                f"{self.config.name} for group {group!r}: its critic needs the next actions of {', '.join(recurrent)}, "
                "which depend on a recurrent state; valid: feed-forward networks there, an independent algorithm here"
            )
        self.policy.bind_policies({name: learner.policy for name, learner in learners.items()})

    @torch.no_grad()
    def critic_batch(self, sample: Sample, *, with_next_codes: bool = True) -> CriticBatch:
        """A sample `[n, ...]` of the replay buffer as critics read it; an actor's loss does without the next codes."""
        group, critic = self.group.name, self.policy.critic
        others = self.other_learners if with_next_codes else {}
        now = {name: sample[name, "observation"] for name in critic.reads}
        after = next_observations(sample, critic.reads)
        masks = {name: sample.get(("next", name, "action_mask")) for name in critic.reads}
        return CriticBatch(
            observation=sample[group, "observation"],
            encoded=critic.encode_observations(now, sample["state"] if critic.reads_state else None),
            codes={name: critic.encode_action(name, sample[name, "action"]) for name in critic.reads},
            reward=sample["next", group, "reward"].squeeze(-1),
            terminated=sample["next", group, "terminated"].squeeze(-1),
            acting=sample[group, "acting"],
            mask=sample.get((group, "action_mask")),
            next_observation=after[group],
            next_encoded=critic.encode_observations(after, sample["next", "state"] if critic.reads_state else None),
            next_codes={
                name: critic.encode_action(name, self._next_action_of(other, after[name], masks[name]))
                for name, other in others.items()
            },
            next_mask=masks[group],
            discount=self.discount(sample),
        )

    def _next_action_of(self, other: Learner, observation: Tensor, mask: Tensor | None) -> Tensor:
        if isinstance(other, QActorCriticLearner):
            return other.next_action(observation, mask, self.generator)
        return other.policy.act(observation, action_mask=mask, explore=False).action

    @abstractmethod
    def next_action(self, observation: Tensor, mask: Tensor | None, generator: Generators) -> Tensor:
        """The group's actions in the targets of critics, its own and others', `[n, agent(, component)]`.

        Args:
            observation: at the next step, `[n, agent, ...]`.
            mask: allowed choices, `[n, agent, choice]`; None: all.
            generator: of the random numbers: that of the learner whose targets they are.
        """

    @property
    def target_critics(self) -> list[QCritic]:
        return [cast(QCritic, self.targets[name]) for name in ("critic", "critic_2") if name in self.targets]

    def losses(self) -> dict[str, LossFunction]:
        return {
            "critics": lambda sample: self.critics_loss(self.critic_batch(sample)),
            "actor": lambda sample: self.actor_loss(self.critic_batch(sample, with_next_codes=False)),
        }

    def modules_read(self) -> list[nn.Module]:
        others = self.other_learners.values()
        targets = [other.targets for other in others if isinstance(other, OffPolicyLearner)]
        return [*super().modules_read(), *(other.policy for other in others), *targets]

    def critics_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of every critic, and metrics:

            L = sum over critics i of mean (Q_i(s, a) - y)^2

        The mean is over the agents that acted.
        """
        target, own_codes = self.target(batch), batch.codes[self.group.name]
        values = [critic(batch.encoded, batch.codes) for critic in self.policy.critics]
        if self.policy.critic.all_actions:
            values = [(value * own_codes).sum(-1) for value in values]
        losses = torch.stack([self.mean((value - target).square(), batch.acting) for value in values])
        q_mean = self.mean(values[0].detach(), batch.acting)
        return losses.sum(0), {"critic_loss": losses.detach().sum(0), "q_mean": q_mean}

    @abstractmethod
    def target(self, batch: CriticBatch) -> Tensor:
        """What the critics learn, y `[n, agent]`, without gradient."""

    @abstractmethod
    def actor_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, and metrics."""

    def step_critics(self, sample: Sample, batch: Callable[[], CriticBatch]) -> dict[str, Tensor]:
        """One gradient step of every critic; `batch` returns the sample as critics read it."""
        lr = self.config.lr_critic
        metrics, grad_norms = self.descend("critics", sample, lambda: self.critics_loss(batch()), lr)
        return metrics | {"grad_norm_critic": grad_norms.mean(-1)}

    def step_actor(self, sample: Sample, batch: Callable[[], CriticBatch]) -> dict[str, Tensor]:
        """One gradient step of the actor alone."""
        metrics, grad_norms = self.descend("actor", sample, lambda: self.actor_loss(batch()))
        return metrics | {"grad_norm_actor": grad_norms[..., 0]}


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, discount: float | Tensor) -> Tensor:
    """The target of a sample's steps, all arguments `[..., agent]`:

        y = r + discount (1 - terminated) V(s')

    A terminated step has no future; a truncated one is bootstrapped.

    Source: Pardo et al. 2018, Time Limits in Reinforcement Learning (arXiv:1712.00378).
    """
    future = (~terminated).to(next_value.dtype)
    if isinstance(discount, Tensor):  # of each sample `[..., n, 1]`, or of several training runs `[training, 1, 1]`
        return torch.addcmul(reward, next_value, future * discount)
    return torch.addcmul(reward, next_value, future, value=discount)
