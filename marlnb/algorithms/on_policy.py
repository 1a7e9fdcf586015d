"""What on-policy algorithms share: the loop from a rollout to gradient steps.

Read `OnPolicyLearner` from top to bottom: it values the rollout, estimates advantages, cuts the rollout into samples
and takes gradient steps on minibatches. `marlnb.algorithms.ppo` and `torchrl_loss` state the loss.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.algorithms.captured import Captured, NewGraph
from marlnb.algorithms.configs.on_policy import OnPolicyConfig
from marlnb.algorithms.gae import RolloutValues, advantages, rollout_values
from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.gradients.compiled import CompiledStep, StepCompiler, are_built_in
from marlnb.algorithms.learner import Learner, linear_schedule, load_weights, restore_generator, weights_of
from marlnb.algorithms.on_policy_samples import network_inputs, normalised, normalised_by_mask, to_sequences
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.turns import ends_of, with_turns
from marlnb.config import LearnerContext
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.policy import training_mode
from marlnb.models.policies.random_numbers import Generators

Minibatch = Mapping[str, Tensor]
LearningRates = Mapping[str, float | Tensor]  # of each part
GradientStep = Callable[[Minibatch, LearningRates], tuple[dict[str, Tensor], Tensor]]
"""Returns metrics and each part's gradient norm."""


class OnPolicyLearner(Learner):
    """Learns one group's ActorCritic from whole rollouts.

    Attributes:
        frames: seen so far.
        sequence_length: steps of a sample: 1 for feed-forward networks, else the stretch of backpropagation.
        turn_based: whether agents wait for one another, so that an agent's experience consists of its own turns.
        needs_old_values: whether the loss reads the critic's values from before the update.
        by_mask: whether flags are masks and never read in Python, so that an update does not wait for a GPU. On a CPU,
            rows that do not count are left out instead. In turn-based games they always are.
    """

    policy: ActorCritic
    needs_old_values = False

    def __init__(self, config: OnPolicyConfig, context: LearnerContext) -> None:
        self.config, self.group = config, context.group
        self.policy = policy = build_policy(config, context)
        self.turn_based = not context.env.simultaneous
        self.recurrent = policy.recurrent_shape is not None or policy.critic_recurrent_shape is not None
        self.sequence_length = config.sequence_length if self.recurrent else 1
        self.frames = 0
        self._device = next(policy.parameters()).device
        self.by_mask = self._device.type != "cpu" and not self.turn_based
        self._shuffler = torch.Generator(self._device).manual_seed(int(torch.randint(2**62, ())))
        self._critic_state: Tensor | None = None
        self.set_trained({"actor": policy.actor, "critic": policy.critic})
        self._captured: Captured[tuple[tuple[str, ...], Tensor, int]] | None = None
        self._new_graph: NewGraph | None = None
        self._rates: dict[str, Tensor] = {}  # on the device, where updates are captured
        self._compiler: StepCompiler | None = None

    def set_trained(self, parts: Mapping[str, nn.Module]) -> None:
        """What gradient steps train: the actor, the critic, and what else the loss has."""
        self._optimizer = PartAdam(parts, self.config.adam_eps)
        self.optimizers = {"optimizer": self._optimizer}

    def compile_updates(self, after: int, start: int = 0) -> None:
        if self.recurrent or self.turn_based or self._device.type != "cpu":
            return

        def loss(minibatch: Minibatch, _: Generators) -> tuple[Tensor, dict[str, Tensor]]:
            return self.loss(minibatch)

        self._compiler = StepCompiler(
            loss,
            lambda: self.policy,
            self._optimizer,
            self.config.max_grad_norm,
            repr(self.group.name),
            after=after,
            start=start,
            may_change=not are_built_in(self, self.config, *self.policy.modules()),
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learns from a rollout `[env, time]`.

        Returns:
            the loss's metrics, grad_norm_<part> of the actor, the critic and other parts (means over the minibatches);
            explained_variance of the returns; value_mean; epochs that were made. Only epochs, 0, if no agent of the
            group acted.
        """
        names, numbers, n_epochs = self.learn(rollout)
        return {**dict(zip(names, numbers.tolist())), "epochs": float(n_epochs)}  # one transfer from the device

    def learn(self, rollout: Rollout) -> tuple[tuple[str, ...], Tensor, int]:
        """As `update`, with the metrics still on the device: their names, `[metric]`, and the epochs that were made."""
        with fast_training(self.policy):
            return self._learn(rollout) if self._new_graph is None else self._learn_captured(rollout, self._new_graph)

    def capture_updates(self, new_graph: NewGraph) -> str:
        if not self.by_mask:
            return f"the update of {self.group.name!r} reads flags in Python: it is on a CPU, or the game is turn-based"
        self._new_graph = new_graph
        self._optimizer.make_capturable()
        self._rates = {part: torch.zeros((), device=self._device) for part in self.learning_rates()}
        return ""

    def forget_captured(self) -> None:
        if self._captured is not None:
            self._captured.forget()

    def _learn_captured(self, rollout: Rollout, new_graph: NewGraph) -> tuple[tuple[str, ...], Tensor, int]:
        """As `_learn`, by a graph. Frames and learning rates are Python numbers, so they are updated outside of it."""
        if self._captured is None:
            name = f"the update of {self.group.name!r}"
            self._captured = Captured(name, lambda: self._learn(rollout), lambda: new_graph([self._shuffler]))
        frames = self.frames + rollout.batch_size.numel()
        for part, rate in self.learning_rates(frames).items():
            self._rates[part].fill_(rate)
        result = self._captured()
        self.frames = frames
        return result

    def _learn(self, rollout: Rollout) -> tuple[tuple[str, ...], Tensor, int]:
        prepared = self.prepare(rollout)
        if prepared is None:
            return (), torch.zeros(0), 0
        samples, report = prepared
        learning_rates = self._rates or self.learning_rates()
        epochs: list[dict[str, Tensor]] = []
        with training_mode(self.policy):
            step = self._compiled_step(samples, update=self.frames // rollout.batch_size.numel() - 1) or self._step
            for _ in range(self.config.epochs):
                epochs.append(self._epoch(step, samples, learning_rates))
                if self.stops_after(epochs[-1]):
                    break
        self.policy.actor.bound_log_std()
        means = torch.stack([torch.stack(tuple(metrics.values())) for metrics in epochs]).mean(0)
        return (*epochs[0], *report), torch.cat((means, torch.stack(tuple(report.values())))), len(epochs)

    def prepare(self, rollout: Rollout) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
        """Values a rollout `[env, time]`, and counts its frames.

        Returns:
            samples `[sample, ...]` (recurrent: `[sample, time, ...]`), and what to report about them, by name; None if
            no agent of the group acted.
        """
        acted = rollout[self.group.name, "acting"] if self.turn_based else None
        values = rollout_values(
            self.policy, rollout, self._critic_state, self._critic_acted(acted), by_mask=self.by_mask
        )
        if self._rates and self._critic_state is not None and values.state_out is not None:
            self._critic_state.copy_(values.state_out)  # a graph reads it where it is
        else:
            self._critic_state = values.state_out  # the next rollout continues this one
        self.frames += rollout.batch_size.numel()
        if self.turn_based:
            # From here on, "acting" marks the turns whose results are known. The critic has seen every step before.
            ends = ends_of(rollout, self.group)
            rollout = with_turns(rollout, self.group, ends)
            values = values._replace(next_value=ends.gather(values.next_value))
        if not self.by_mask and not bool(rollout[self.group.name, "acting"].any()):
            return None
        return self._samples(rollout, values, acted)

    @torch.no_grad()
    def _samples(
        self, rollout: Rollout, values: RolloutValues, acted: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The rollout as samples `[sample, ...]` (recurrent: `[sample, time, ...]`), and what to report about it.

        Args:
            acted: `[env, time, agent]`, who acted, in turn-based games. Unlike the rollout's "acting" it includes turns
                whose end is not known yet: recurrent states change there as well.
        """
        config, name, policy = self.config, self.group.name, self.policy
        acting = rollout[name, "acting"]
        advantage = advantages(
            rollout, name, values, gamma=config.gamma, gae_lambda=config.gae_lambda, turn_based=self.turn_based
        )
        returns = advantage + values.value
        output = policy.value_norm.normalise(values.value)  # the critic's: it clips its change, not that of the scale
        if self.by_mask:
            report, advantage = normalised_by_mask(config, policy.value_norm, values.value, returns, advantage, acting)
        else:
            report, advantage = normalised(config, policy.value_norm, values.value, returns, advantage, acting)
        samples = network_inputs(policy, rollout) | {
            "log_prob": rollout[name, "log_prob"],
            "advantage": advantage,
            "target": policy.value_norm.normalise(returns),
        }
        if self.needs_old_values:
            samples["value"] = output
        # without a mask, means are one operation instead of three; a compiled gradient always has one
        if self.by_mask or self._compiler is not None or not bool(acting.all()):
            samples["weight"] = acting.float()
        if acted is not None and self.recurrent:
            samples["acting"] = acted
        if self.recurrent:
            samples = to_sequences(policy, samples, rollout, values.state_in, self.sequence_length)
        else:
            samples = {key: value.flatten(0, 1) for key, value in samples.items()}
        if self.turn_based and "weight" in samples:
            teaches = samples["weight"].flatten(1).any(1)  # a sample in which no agent acted has no gradient
            samples = {key: value[teaches] for key, value in samples.items()}
        return samples, report

    def learning_rates(self, frames: int | None = None) -> dict[str, float]:
        """Of each part after so many frames; None: now."""
        config = self.config
        rates = {**dict.fromkeys(self._optimizer.parameters, config.lr), "critic": config.lr_critic or config.lr}
        final, n_frames = config.lr_final, config.anneal_frames
        if final is None or not n_frames:
            return rates
        frames = self.frames if frames is None else frames
        return {part: linear_schedule(lr, final, frames, n_frames) for part, lr in rates.items()}

    def _compiled_step(self, samples: dict[str, Tensor], update: int) -> CompiledStep | None:
        """The compiled step, from the update on that was set beforehand: it does not depend on the time."""
        if self._compiler is None:
            return None
        n_samples = len(samples["log_prob"])
        bounds = self.minibatch_bounds(n_samples)
        sizes, n = sorted({stop - start for start, stop in itertools.pairwise(bounds)}), len(bounds) - 1
        if len(sizes) > 1:
            divisor = max(k for k in range(1, n) if n_samples % k == 0)
            self._compiler.refuse(
                f"minibatches have {sizes[0]} and {sizes[1]} of {n_samples} samples, and compiled code is for one "
                f"size; choose a divisor, such as n_minibatches={divisor}"
            )
            return None
        return self._compiler.step(update, {key: value[: bounds[1]] for key, value in samples.items()})

    def _step(self, minibatch: Minibatch, learning_rates: LearningRates) -> tuple[dict[str, Tensor], Tensor]:
        """One gradient step; metrics, and each part's gradient norm."""
        loss, metrics = self.loss(minibatch)
        return metrics, self._optimizer.step(loss, learning_rates, self.config.max_grad_norm)

    def _epoch(
        self, step: GradientStep, samples: dict[str, Tensor], learning_rates: LearningRates
    ) -> dict[str, Tensor]:
        """One pass over the samples in a new order; returns the mean of each metric."""
        n_samples = samples["log_prob"].shape[0]
        order = self.draw_order(n_samples)
        shuffled = {key: value.index_select(0, order) for key, value in samples.items()}
        names: tuple[str, ...] = ()
        rows = []
        for start, stop in itertools.pairwise(self.minibatch_bounds(n_samples)):
            metrics, grad_norms = step({key: value[start:stop] for key, value in shuffled.items()}, learning_rates)
            names = (*metrics, *(f"grad_norm_{part}" for part in self._optimizer.parameters))
            rows.append(torch.cat((torch.stack(tuple(metrics.values())), grad_norms)))
        return dict(zip(names, torch.stack(rows).mean(0)))

    def draw_order(self, n_samples: int) -> Tensor:
        """A random order of the samples, for one epoch."""
        return torch.randperm(n_samples, generator=self._shuffler, device=self._device)

    def minibatch_bounds(self, n_samples: int) -> list[int]:
        """Where minibatches start and end. Their sizes differ by at most one, so that none is a small noisy rest."""
        n = self.config.n_minibatches or max(1, round(n_samples * self.sequence_length / self.config.minibatch_frames))
        n = min(n, n_samples)
        return [n_samples * k // n for k in range(n + 1)]

    @abstractmethod
    def loss(self, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch, and metrics without gradient.

        Args:
            minibatch: of the rollout, `[..., agent]`: log_prob, advantage and target (the normalised return); value
                (normalised), if the learner `needs_old_values`; weight (1 where the agent acted, else 0), absent if all
                acted; and what the networks read: observation, stored (the action as the distribution evaluates it),
                action_mask, joint (a centralised critic's inputs).
        """

    def stops_after(self, metrics: Mapping[str, Tensor]) -> bool:
        """Whether the update ends after an epoch with these mean metrics, before `epochs` are done."""
        return False

    def _critic_acted(self, acted: Tensor | None) -> Tensor | None:
        """At which steps the critic's state changes. A critic that runs once for all agents changes at every step."""
        return None if self.policy.critic.shared_forward else acted

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": weights_of(self.policy),
            "optimizer": self._optimizer.state_dict(),
            "shuffler": self._shuffler.get_state(),
            "critic_recurrent": None if self._critic_state is None else self._critic_state.clone(),
            "frames": self.frames,
            "compiled": None if self._compiler is None else self._compiler.compiled,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_weights(self.policy, state["policy"], f"the networks of {self.group.name!r}")
        self._optimizer.load_state_dict(state["optimizer"])
        restore_generator(self._shuffler, state["shuffler"])
        critic_state = state["critic_recurrent"]
        device = next(self.policy.parameters()).device
        self._critic_state = None if critic_state is None else critic_state.to(device)
        self.frames = int(state["frames"])
        if self._compiler is not None:
            self._compiler.compiled = state.get("compiled")  # checkpoints of earlier versions do not say


def build_policy(config: OnPolicyConfig, context: LearnerContext) -> ActorCritic:
    """The actor and the critic, with new weights, on the context's device."""
    policy = ActorCritic(
        context.group,
        context.env,
        context.actor,
        context.critic,
        centralised=config.centralised,
        squash=config.squash,
        std_of=config.std_of,
        initial_log_std=config.initial_log_std,
    )
    return policy.to(context.device)
