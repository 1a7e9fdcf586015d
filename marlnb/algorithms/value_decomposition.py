"""IQL, VDN and QMIX: Q-learning of each agent alone, of the agents' sum, and of a monotonic mixture of them.

Source: Tan 1993; Sunehag et al. 2017 (arXiv:1706.05296); Rashid et al. 2018 (arXiv:1803.11485); deep Q-networks: Mnih
et al. 2015; double Q-learning: van Hasselt et al. 2016 (arXiv:1509.06461); recurrent: Hausknecht and Stone 2015
(arXiv:1507.06527), Kapturowski et al. 2019 (R2D2). The tests compare the losses with torchrl's DQNLoss and QMixerLoss.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from marlnb.algorithms.configs.value_decomposition import IQLConfig, QMIXConfig, VDNConfig
from marlnb.algorithms.learner import linear_schedule
from marlnb.algorithms.losses import masked_mean, regression_loss
from marlnb.algorithms.off_policy import LossFunction, OffPolicyLearner
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.rollout import next_observations
from marlnb.config import LEARNERS, LearnerContext
from marlnb.models.networks.inputs import features
from marlnb.models.networks.mixers import Mixer, MonotonicMixer, SumMixer
from marlnb.models.networks.modes import in_mode
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.q_policy import QPolicy

MIN_REWARD_STD = 1e-6  # below, rewards count as constant


@LEARNERS.register(IQLConfig)
class QLearner(OffPolicyLearner):
    """Learns one group's QPolicy by one-step Q-learning.

    Independent agents learn Q_i from their own reward. With a mixer, the team's Q learns the team's reward (the mean
    over the group's living agents):

        VDN:   Q_tot = sum over i of Q_i
        QMIX:  Q_tot = f(Q_1, ..., Q_n; s)  with dQ_tot / dQ_i >= 0

    Agents that are not alive, and next values of agents that terminated, count 0 in it. Truncated episodes are
    bootstrapped from their last observation.

    With `standardise_rewards` the networks learn (Q - shift) / scale. scale is the standard deviation of the rewards in
    the buffer when learning begins, and shift their mean forever, mean / (1 - gamma). The task stays the same: a value
    of 0, such as the future after termination, becomes -shift / scale. So values neither drift for as long as learning
    lasts, nor reach the bent part of the mixer's ELU, where targets overshoot more and more.
    See docs/tuning-experiments.md.
    Source: after EPyMARL's standardise_rewards (Papoudakis et al. 2021, arXiv:2006.07869), whose mean is a running one.
    """

    config: IQLConfig
    policy: QPolicy

    def __init__(self, config: IQLConfig, context: LearnerContext) -> None:
        mixer = self.build_mixer(config, context)
        policy = QPolicy(context.group, context.actor, mixer).to(context.device)
        sequence_length = config.sequence_length if context.actor.recurrent else 1
        followed: dict[str, nn.Module] = {"actor": policy.actor, **({} if mixer is None else {"mixer": mixer})}
        parts = {name: part for name, part in followed.items() if list(part.parameters())}  # VDN's sum has none
        reads, trained = () if mixer is None else mixer.reads, {"q": parts}
        super().__init__(
            config,
            policy,
            context.env,
            trained=trained,
            followed=followed,
            reads=reads,
            sequence_length=sequence_length,
        )

    def build_mixer(self, config: IQLConfig, context: LearnerContext) -> Mixer | None:
        """What joins the agents' Q values; None: each agent learns on its own."""
        return None

    def explore(self) -> None:
        config = self.config
        epsilon = linear_schedule(config.epsilon_start, config.epsilon_end, self.frames, config.epsilon_frames)
        self.policy.epsilon.fill_(1.0 if self.warming_up else epsilon)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        """One gradient step.

        Returns:
            loss; q_mean and target_mean (of the actions taken, in units of reward); epsilon; grad_norm_actor and
            grad_norm_mixer.
        """
        if self.steps == 0 and self.config.standardise_rewards:
            self._measure_rewards()
        metrics, norms = self.descend("q", sample)
        self.update_targets()
        return metrics | {f"grad_norm_{part}": norm for part, norm in zip(self.optimizers["q"].parameters, norms)}

    def losses(self) -> dict[str, LossFunction]:
        return {"q": self.loss}

    def _measure_rewards(self) -> None:
        """Sets the policy's scale and shift. Not if an episode terminated or gamma is 1."""
        group, gamma = self.group.name, self.config.gamma
        if gamma == 1 or self.replay.field(("next", group, "terminated")).any():
            return
        reward, acting = self.replay.field(("next", group, "reward")).squeeze(-1), self.replay.field((group, "acting"))
        if self.policy.mixer is not None:
            reward, acting = _team_reward(reward, acting), acting.any(-1)
        reward = reward[acting]
        self.policy.value_shift.fill_(reward.mean() / (1 - gamma))
        std = float(reward.std(correction=0))
        self.policy.value_scale.fill_(std if std > MIN_REWARD_STD else 1.0)

    def loss(self, sample: Sample) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over acting agents of (Q(s, a) - y)^2 or its Huber loss, and metrics without gradient.

            y = r + gamma (1 - terminated) Q'(s', argmax_a' Q'(s', a'))    Q-learning
            y = r + gamma (1 - terminated) Q'(s', argmax_a' Q(s', a'))     double Q-learning

        where Q' is the target network. Next actions are chosen in eval mode, as the policy acts. Of n steps, r is r_1 +
        gamma r_2 + ..., and gamma^n is in gamma's place.
        Source: Mnih et al. 2015; van Hasselt et al. 2016, equation 4 (arXiv:1509.06461).
        """
        group = self.group.name
        q, next_q, next_q_target = self._q_values(sample)
        if self.sequence_length > 1 and self.config.burn_in:
            first = self.config.burn_in
            sample = {key: value[:, first:] for key, value in sample.items() if "recurrent" not in key}
        chosen = q.gather(-1, sample[group, "action"].unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            next_q = self.policy.actor.distribution.mask(next_q, sample.get(("next", group, "action_mask")))
            next_value = next_q_target.gather(-1, next_q.argmax(-1, keepdim=True)).squeeze(-1)
        reward, terminated = (sample["next", group, name].squeeze(-1) for name in ("reward", "terminated"))
        acting, has_future = sample[group, "acting"], ~terminated
        if self.policy.mixer is not None:
            # Dead agents have no future either, but only the step at which they died is marked as terminated.
            has_future &= acting | sample["next", group, "alive"]
            chosen, next_value = self._mixed(sample, chosen * acting, next_value * has_future)
            reward = _team_reward(reward, acting)
            acting, has_future = acting.any(-1), has_future.any(-1)
        discount, shift, scale = self.discount(sample), self.policy.value_shift, self.policy.value_scale
        if self.policy.mixer is not None and isinstance(discount, Tensor):
            discount = discount.squeeze(-1)  # the team's values have no agents' axis
        future = torch.where(has_future, next_value, -shift / scale)
        target = (reward - (1 - discount) * shift) / scale + discount * future
        loss = masked_mean(regression_loss(chosen, target, self.config.loss, l2_coef=1.0), acting)
        values = {"q_mean": chosen.detach(), "target_mean": target}
        means = {name: masked_mean(self.policy.to_reward_units(value), acting) for name, value in values.items()}
        return loss, {"loss": loss.detach(), **means, "epsilon": self.policy.epsilon.clone()}

    def _q_values(self, sample: Sample) -> tuple[Tensor, Tensor, Tensor]:
        """Q(s), the Q(s') that chooses the next action, and the target network's Q'(s')."""
        group, axes = self.group.name, self.policy.actor.observation_axes
        now = features(sample[group, "observation"], axes)
        after = features(next_observations(sample, (group,))[group], axes)
        actor, target_actor = self.policy.actor, cast(Actor, self.targets["actor"])
        if self.sequence_length == 1:
            q = actor.network(now)[0]
            with torch.no_grad(), in_mode([actor], training=False):
                next_q_target = target_actor.network(after)[0]
                return q, actor.network(after)[0] if self.config.double else next_q_target, next_q_target
        q, next_q = self._sequence_q(actor, sample, now, after, with_next=self.config.double)
        with torch.no_grad():
            next_q_target = self._sequence_q(target_actor, sample, now, after, with_next=True)[1]
        return q, next_q if self.config.double else next_q_target, next_q_target

    def _sequence_q(
        self, actor: Actor, sample: Sample, now: Tensor, after: Tensor, *, with_next: bool
    ) -> tuple[Tensor, Tensor]:
        """Q(s) and Q(s') of the steps after burn-in, `[n, time, agent, choice]`.

        Q(s') is computed from the state after each step. It is not Q(s) of the next step of the sequence: an episode's
        last observation is no step of the sequence.
        """
        is_init = sample["is_init"].squeeze(-1)
        acted = None if self.env.simultaneous else sample[self.group.name, "acted"]  # turns without a result, too
        state, burn_in = sample[self.group.name, "recurrent"], self.config.burn_in
        if burn_in:
            # the remembered state comes from older weights: run the first steps with the present ones
            acted_then = None if acted is None else acted[:, :burn_in]
            with torch.no_grad():
                states = actor.network.sequence(now[:, :burn_in], state, is_init[:, :burn_in], acted_then)[1]
            assert states is not None
            state, now, after, is_init = states[:, -1], now[:, burn_in:], after[:, burn_in:], is_init[:, burn_in:]
            acted = None if acted is None else acted[:, burn_in:]
        q, states = actor.network.sequence(now, state, is_init, acted)
        if not with_next:
            return q, q
        with torch.no_grad(), in_mode([actor], training=False):
            return q, actor.network(after, states)[0]

    def _mixed(self, sample: Sample, chosen: Tensor, next_value: Tensor) -> tuple[Tensor, Tensor]:
        """The group's Q_tot now, and the target mixer's at the next step."""
        mixer = self.policy.mixer
        assert mixer is not None
        now = mixer.inputs({name: sample[name, "observation"] for name in mixer.reads}, sample.get("state"))
        after = mixer.inputs(next_observations(sample, mixer.reads), sample.get(("next", "state")))
        with torch.no_grad():
            next_total = self.targets["mixer"](next_value, after)
        return mixer(chosen, now), next_total


@LEARNERS.register(VDNConfig)
class VDNLearner(QLearner):
    """The team's Q is the sum of the agents'."""

    def build_mixer(self, config: IQLConfig, context: LearnerContext) -> Mixer:
        return SumMixer()


@LEARNERS.register(QMIXConfig)
class QMIXLearner(QLearner):
    """The team's Q is a mixture of the agents', monotonic in each."""

    def build_mixer(self, config: IQLConfig, context: LearnerContext) -> Mixer:
        assert isinstance(config, QMIXConfig)
        return MonotonicMixer(context.group, context.env, config.mixer_units, config.hyper_units)


def _team_reward(reward: Tensor, acting: Tensor) -> Tensor:
    """The mean over the agents that act, `[n]`; 0 if none does."""
    return (reward * acting).sum(-1) / acting.sum(-1).clamp_min(1)
