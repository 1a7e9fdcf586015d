"""What DDPG's and SAC's families share: critics of actions, whose targets need what every agent does next.

What other groups do next is asked of their learners: one of these families says what its own targets are made of;
any other policy (of PPO, of Q-learning, scripted, frozen) acts without exploring.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from marlnb.algorithms.adam import PartAdam
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.off_policy import OffPolicyConfig, OffPolicyLearner
from marlnb.algorithms.replay import Sample, seen_together
from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.models.policies.q_critic import QCritic
from marlnb.specs import EnvSpec


@dataclass(frozen=True)
class QActorCriticConfig(OffPolicyConfig):
    """Options of the algorithms that have an actor and learn the values of actions."""

    recurrent: ClassVar[bool] = False
    centralised: ClassVar[bool] = False

    lr_critic: float | None = option(None, help="the critics' learning rate; none: the actor's", gt=0)


class CriticBatch(NamedTuple):
    """A sample as critics read it: now and next, with what every agent did and what the other groups do next.

    Attributes:
        seen, next_seen: as `QCritic.seen`. codes, next_codes: by group `[n, agent, code]`; the next ones without the
            own group's.
        reward, terminated, acting: `[n, agent]`.
        mask, next_mask: of the own group, `[n, agent, choice]`, or None.
    """

    seen: Tensor
    codes: dict[str, Tensor]
    reward: Tensor
    terminated: Tensor
    acting: Tensor
    mask: Tensor | None
    next_seen: Tensor
    next_codes: dict[str, Tensor]
    next_mask: Tensor | None


class QActorCriticLearner(OffPolicyLearner):
    """Learns a QActorCritic: the critics from targets, the actor from the critics.

    Args:
        followed: networks by name that have slow copies beside the critics.
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
        self._others: dict[str, Learner] = {}
        critics = dict(zip(("critic", "critic_2"), policy.critics))
        name = policy.group.name
        super().__init__(
            config,
            policy,
            env,
            chunk=1,
            reads=(name, *(other for other in policy.critic.reads if other != name)),
            optimizers={
                "critics": PartAdam(critics, config.adam_eps),
                **{part: PartAdam({part: module}, config.adam_eps) for part, module in trained.items()},
            },
            followed={**critics, **followed},
        )
        self.critic_weights = [weight for critic in policy.critics for weight in critic.parameters()]

    @abstractmethod
    def next_action(self, observation: Tensor, mask: Tensor | None) -> Tensor:
        """What the group does in the targets of critics, its own and others', `[n, agent(, component)]`."""

    def meet(self, learners: Mapping[str, Learner]) -> None:
        """Raises ConfigError where a critic would need to know how a recurrent policy acts next."""
        own = self.group.name
        self._others = {name: learners[name] for name in self.policy.critic.reads if name != own}
        recurrent = sorted(name for name, other in self._others.items() if other.policy.recurrent_shape is not None)
        if recurrent:
            raise ConfigError(
                f"{self.config.name} for group {own!r}: its critic needs the next actions of {', '.join(recurrent)}, "
                "which depend on a recurrent state; valid: feed-forward networks there, an independent algorithm here"
            )
        self.policy.meet({name: learner.policy for name, learner in learners.items()})

    @property
    def target_critics(self) -> list[QCritic]:
        return [cast(QCritic, self.targets[name]) for name in ("critic", "critic_2") if name in self.targets]

    @torch.no_grad()
    def judged(self, sample: Sample) -> CriticBatch:
        """A sample `[n, ...]` of the replay memory as critics read it."""
        own, critic = self.group.name, self.policy.critic
        now = {name: sample[name, "observation"] for name in critic.reads}
        seen = critic.seen(now, sample["state"] if critic.reads_state else None)
        next_state = sample["next", "state"] if critic.reads_state else None
        next_seen = critic.seen(seen_together(sample, critic.reads), next_state)
        return CriticBatch(
            seen,
            {name: critic.code(name, sample[name, "action"]) for name in critic.reads},
            sample["next", own, "reward"].squeeze(-1),
            sample["next", own, "terminated"].squeeze(-1),
            sample[own, "acting"],
            sample.get((own, "action_mask")),
            next_seen,
            {name: critic.code(name, _next_action(other, sample, name)) for name, other in self._others.items()},
            sample.get(("next", own, "action_mask")),
        )

    def step_critics(self, judged: CriticBatch, target: Tensor) -> dict[str, Tensor]:
        """One step of every critic towards `target` `[n, agent]`; their losses are means over the agents acting."""
        own = judged.codes[self.group.name]
        values = [critic(judged.seen, judged.codes) for critic in self.policy.critics]
        if self.policy.critic.each_choice:
            values = [(value * own).sum(-1) for value in values]
        losses = torch.stack([mean_over((value - target).square(), judged.acting) for value in values])
        rate = self.config.lr_critic or self.config.lr
        optimizer = self.optimizers["critics"]
        norms = optimizer.step(losses.sum(), dict.fromkeys(optimizer.parameters, rate), self.config.max_grad_norm)
        return {
            "critic_loss": losses.detach().sum(),
            "q_mean": mean_over(values[0].detach(), judged.acting),
            "grad_norm_critic": norms.mean(),
        }


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """reward + gamma * next_value, all `[..., agent]`; nothing follows a terminated step, a truncated one goes on."""
    return torch.addcmul(reward, next_value, (~terminated).to(next_value.dtype), value=gamma)


def mean_over(values: Tensor, acting: Tensor) -> Tensor:
    """Mean of `[n, agent]` over the agents that were acting; 0 where none was."""
    weights = acting.to(values.dtype)
    return (values * weights).sum() / weights.sum().clamp(min=1.0)


@contextmanager
def held(weights: Sequence[Tensor]) -> Iterator[None]:
    """Inside the block the weights take no gradient."""
    try:
        for weight in weights:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _next_action(other: Learner, sample: Sample, name: str) -> Tensor:
    observation, mask = sample["next", name, "observation"], sample.get(("next", name, "action_mask"))
    if isinstance(other, QActorCriticLearner):
        return other.next_action(observation, mask)
    return other.policy.act(observation, action_mask=mask, explore=False).action
