"""IQL, VDN and QMIX: Q-learning of each agent on its own, of the agents' sum, and of a monotonic mixture of them.

Source: Tan 1993; Sunehag et al. 2017 (arXiv:1706.05296); Rashid et al. 2018 (arXiv:1803.11485); double Q-learning: van
Hasselt et al. 2016 (arXiv:1509.06461); recurrent: Hausknecht and Stone 2015 (arXiv:1507.06527), Kapturowski et al.
2019 (R2D2). Plain functions do the arithmetic; the tests hold them to torchrl's DQNLoss and QMixerLoss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.algorithms.adam import PartAdam
from marlnb.algorithms.off_policy import OffPolicyConfig, OffPolicyLearner
from marlnb.algorithms.replay import Sample, seen_together
from marlnb.config import ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.models.networks.mixers import Mixer, MonotonicMixer, SumMixer
from marlnb.models.policies.actor import Actor, features
from marlnb.models.policies.q_policy import QPolicy
from marlnb.registry import ALGORITHMS
from marlnb.specs import ActionKind, EnvSpec, GroupSpec

QLoss = Literal["l2", "huber"]
LEAST_DEVIATION = 1e-6  # of rewards, below which they count as constant


@ALGORITHMS.register("iql")
@dataclass(frozen=True)
class IQLConfig(OffPolicyConfig):
    """Independent Q-learning: each agent learns the value of its own actions, from its own rewards."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)

    epsilon_start: float = option(1.0, help="share of random actions at the start", ge=0, le=1)
    epsilon_end: float = option(0.05, help="share of random actions after epsilon_frames", ge=0, le=1)
    epsilon_frames: int = option(50_000, help="over which it falls, as a straight line", unit="frames", ge=0)
    double: bool = option(True, help="the next action is chosen by the network, its value told by the target")
    standardise_rewards: bool = option(
        True,
        help="learn from rewards less their mean, over their deviation, as measured when learning begins, unless an "
        "episode had terminated by then; values are told in units of reward either way",
    )
    loss: QLoss = option("l2", help="shape of the loss", choices=("l2", "huber"))
    burn_in: int = option(0, help="first steps of a sequence that only warm up the recurrent state", unit="steps", ge=0)

    def mixer(self, group: GroupSpec, env: EnvSpec) -> Mixer | None:
        """What joins the agents' Q values; None: each learns on its own."""
        return None

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
    ) -> QLearner:
        """The Q network is of the actor's kind; a critic's is not used."""
        self.check_fit(group, env, actor, actor)
        self.check_memory(group, actor, actor, n_envs=n_envs, rollout_steps=rollout_steps)
        if actor.recurrent and self.burn_in >= self.sequence_length:
            raise ConfigError(
                f"{self.name} for group {group.name!r}: burn_in={self.burn_in} leaves nothing to learn; "
                f"at most {self.sequence_length - 1} of sequence_length={self.sequence_length}"
            )
        policy = QPolicy(group, actor, self.mixer(group, env)).to(device)
        return QLearner(self, policy, env, chunk=self.sequence_length if actor.recurrent else 1)


@ALGORITHMS.register("vdn")
@dataclass(frozen=True)
class VDNConfig(IQLConfig):
    """Value decomposition: the sum of the agents' Q values learns the team's reward."""

    simultaneous_only: ClassVar[bool] = True
    team_reward: ClassVar[bool] = True

    def mixer(self, group: GroupSpec, env: EnvSpec) -> Mixer | None:
        return SumMixer()


@ALGORITHMS.register("qmix")
@dataclass(frozen=True)
class QMIXConfig(VDNConfig):
    """QMIX: a mixture of the agents' Q values, which the state weighs and which rises with each, learns the reward."""

    mixer_units: int = option(32, help="units of the mixer's hidden layer", unit="units", ge=1)
    hyper_units: int = option(
        64, help="of a layer between the state and the mixer's weights; 0: none, as in the paper", unit="units", ge=0
    )

    def mixer(self, group: GroupSpec, env: EnvSpec) -> Mixer | None:
        return MonotonicMixer(group, env, self.mixer_units, self.hyper_units)


class QLearner(OffPolicyLearner):
    """Learns one group's QPolicy by one-step Q-learning.

    An ending bootstraps from the episode's last observation unless the agent terminated. With a mixer the reward is
    the mean over the group's living agents; agents that do not live, and next values of those that terminated, count 0.

    With `standardise_rewards` the networks learn (Q - shift) / scale, where scale is the deviation of the rewards held
    when learning begins and shift their mean for ever, mean / (1 - gamma). The task stays the same: what is worth 0, as
    the future of those who terminated, is -shift / scale. Values thus neither drift for as long as learning lasts nor
    lie where the mixer's ELU is bent, which makes targets overshoot ever more (docs/verification.md).
    Source: after EPyMARL's standardise_rewards (Papoudakis et al. 2021, arXiv:2006.07869), whose mean is a running one.
    """

    config: IQLConfig
    policy: QPolicy

    def __init__(self, config: IQLConfig, policy: QPolicy, env: EnvSpec, *, chunk: int) -> None:
        followed: dict[str, nn.Module] = {"actor": policy.actor}
        reads = [policy.group.name]
        if policy.mixer is not None:
            followed["mixer"] = policy.mixer
            reads += [name for name in policy.mixer.reads if name not in reads]
        parts = {name: part for name, part in followed.items() if list(part.parameters())}
        self._optimizer = PartAdam(parts, config.adam_eps)
        self._lr = dict.fromkeys(parts, config.lr)
        self._parts = tuple(parts)
        super().__init__(
            config,
            policy,
            env,
            chunk=chunk,
            reads=tuple(reads),
            optimizers={"q": self._optimizer},
            followed=followed,
        )

    def explore(self) -> None:
        config = self.config
        left = max(0.0, 1 - self.frames / config.epsilon_frames) if config.epsilon_frames else 0.0
        epsilon = config.epsilon_end + left * (config.epsilon_start - config.epsilon_end)
        self.policy.epsilon.fill_(1.0 if self.warming_up else epsilon)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        """One gradient step.

        Returns:
            loss; q_mean and target_mean, in units of reward: of the actions taken and what they learn from; epsilon;
            grad_norm_actor and grad_norm_mixer.
        """
        if self.steps == 0 and self.config.standardise_rewards:
            self._measure_rewards()
        loss, metrics = self.loss(sample)
        norms = self._optimizer.step(loss, self._lr, self.config.max_grad_norm)
        self.update_targets()
        return metrics | {f"grad_norm_{part}": norm for part, norm in zip(self._parts, norms)}

    def loss(self, sample: Sample) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of one sample, and metrics without gradient."""
        own = self.group.name
        q, next_q, next_slow = self._q_values(sample)
        sample = self._after_burn_in(sample)
        chosen = q.gather(-1, sample[own, "action"].unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            next_q = self.policy.actor.distribution.mask(next_q, sample.get(("next", own, "action_mask")))
            following = next_slow.gather(-1, next_q.argmax(-1, keepdim=True)).squeeze(-1)
        reward, terminated = (sample["next", own, name].squeeze(-1) for name in ("reward", "terminated"))
        acting, living_next = sample[own, "acting"], ~terminated
        if self.policy.mixer is not None:
            living_next &= acting | sample["next", own, "alive"]
            chosen, following = self._mixed(sample, chosen * acting, following * living_next)
            reward = _of_team(reward, acting)
            acting, living_next = acting.any(-1), living_next.any(-1)
        gamma, shift, scale = self.config.gamma, self.policy.value_shift, self.policy.value_scale
        future = torch.where(living_next, following, -shift / scale)
        target = (reward - (1 - gamma) * shift) / scale + gamma * future
        loss = _mean(_error(chosen, target, self.config.loss), acting)
        told = {"q_mean": chosen.detach(), "target_mean": target}
        means = {name: _mean(self.policy.in_rewards(values), acting) for name, values in told.items()}
        return loss, {"loss": loss.detach(), **means, "epsilon": self.policy.epsilon.clone()}

    def _measure_rewards(self) -> None:
        """Sets the policy's scale and shift; leaves them where an episode terminated, gamma is 1 or nothing is held."""
        own, gamma = self.group.name, self.config.gamma
        if gamma == 1 or not len(self.replay) or self.replay.held(("next", own, "terminated")).any():
            return
        reward, acting = self.replay.held(("next", own, "reward")).squeeze(-1), self.replay.held((own, "acting"))
        if self.policy.mixer is not None:
            reward, acting = _of_team(reward, acting), acting.any(-1)
        reward = reward[acting]
        self.policy.value_shift.fill_(reward.mean() / (1 - gamma))
        deviation = float(reward.std(correction=0))
        self.policy.value_scale.fill_(deviation if deviation > LEAST_DEVIATION else 1.0)

    def _q_values(self, sample: Sample) -> tuple[Tensor, Tensor, Tensor]:
        """Q of the moments, of those that follow (which choose the next action) and the target's of those."""
        own, axes = self.group.name, self.policy.actor.observation_axes
        now = features(sample[own, "observation"], axes)
        following = features(sample["next", own, "observation"], axes)
        actor, slow = self.policy.actor, cast(Actor, self.targets["actor"])
        if self.chunk == 1:
            q = actor.network(now)[0]
            with torch.no_grad():
                next_slow = slow.network(following)[0]
                return q, actor.network(following)[0] if self.config.double else next_slow, next_slow
        q, next_q = self._follow(actor, sample, now, following, next_too=self.config.double)
        with torch.no_grad():
            next_slow = self._follow(slow, sample, now, following, next_too=True)[1]
        return q, next_q if self.config.double else next_slow, next_slow

    def _follow(
        self, actor: Actor, sample: Sample, now: Tensor, following: Tensor, *, next_too: bool
    ) -> tuple[Tensor, Tensor]:
        """Q `[n, time, agent, choice]` of the moments after burn-in, and of what each one saw next with the state that
        left it: an episode's last observation is not a moment of the sequence."""
        begins = sample["is_init"].squeeze(-1)
        acting = None if self.env.simultaneous else sample[self.group.name, "acting"]
        state, burn = sample[self.group.name, "recurrent"], self.config.burn_in
        if burn:
            held = None if acting is None else acting[:, :burn]
            with torch.no_grad():
                states = actor.network.sequence(now[:, :burn], state, begins[:, :burn], held)[1]
            assert states is not None
            state, now, following, begins = states[:, -1], now[:, burn:], following[:, burn:], begins[:, burn:]
            acting = None if acting is None else acting[:, burn:]
        q, states = actor.network.sequence(now, state, begins, acting)
        if not next_too:
            return q, q
        with torch.no_grad():
            return q, actor.network(following, states)[0]

    def _after_burn_in(self, sample: Sample) -> Sample:
        burn = self.config.burn_in if self.chunk > 1 else 0
        if not burn:
            return sample
        return {key: value[:, burn:] for key, value in sample.items() if "recurrent" not in key}

    def _mixed(self, sample: Sample, chosen: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """The group's Q of the moments, and the target's of those that follow."""
        mixer = self.policy.mixer
        assert mixer is not None
        now = mixer.inputs({name: sample[name, "observation"] for name in mixer.reads}, sample.get("state"))
        seen = seen_together(sample, mixer.reads)
        slow = self.targets["mixer"]
        with torch.no_grad():
            next_total = slow(following, mixer.inputs(seen, sample.get(("next", "state"))))
        return mixer(chosen, now), next_total


def _of_team(reward: Tensor, acting: Tensor) -> Tensor:
    """The mean over those who act `[n]`, 0 where nobody does."""
    return (reward * acting).sum(-1) / acting.sum(-1).clamp_min(1)


def _error(q: Tensor, target: Tensor, kind: QLoss) -> Tensor:
    if kind == "huber":
        return F.huber_loss(q, target, reduction="none")
    return (q - target).square()


def _mean(x: Tensor, weight: Tensor) -> Tensor:
    return (x * weight).sum() / weight.sum().clamp_min(1)
