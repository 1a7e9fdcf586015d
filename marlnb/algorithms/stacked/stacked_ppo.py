"""IPPO and MAPPO of several training runs at once: one product, one gradient and one step of Adam for all minibatches.

The training runs share nothing, so the gradient of sum_k L_k(w_k) in w_k is that of L_k: each learns what it would by
itself. Advantages, targets and the order of samples are computed by each learner; only minibatches are joined.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.losses import masked_means
from marlnb.algorithms.ppo import Part, PPOLearner, evaluate_minibatch, ppo_loss
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.stacked.stacked_adam import StackedAdam
from marlnb.algorithms.stacked.stacked_learner import StackedLearner, check_simultaneous
from marlnb.errors import ConfigError
from marlnb.models.networks.layers import fast_training
from marlnb.models.networks.network import Network
from marlnb.models.networks.stacking import MAX_ROWS, check_stackable, stack
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.stacked_policy import StackedPolicy

EQUAL_OPTIONS = ("epochs", "minibatch_frames", "n_minibatches", "adam_eps", "value_loss", "squash", "std_of")


class StackedPPOCoefficients(NamedTuple):
    """The options of several training runs that PPO's loss reads (`PPOCoefficients`)."""

    clip: float | Tensor
    value_clip: float | Tensor | None
    value_coef: float | Tensor
    entropy_coef: float | Tensor
    value_loss: RegressionLoss


class StackedPPO:
    """Learns with the learners of several training runs at once.

    The learners stay complete: their weights and Adam's moments become views of the stacked ones. Minibatches of more
    than MAX_ROWS rows are computed by each learner alone, with the bits of a training run by itself: on a CPU, one
    product of large matrices takes as long as several. So are all updates while the group acts in some training runs
    only.

    Args:
        learners: of one group of agents, each of another training run.

    Raises:
        ConfigError: they cannot learn together.
    """

    def __init__(self, learners: Sequence[PPOLearner]) -> None:
        check_ppo(learners)
        self.learners = list(learners)
        policies = [learner.policy for learner in self.learners]
        actors, critics = [policy.actor for policy in policies], [policy.critic for policy in policies]
        optimizers = [learner.optimizers["optimizer"] for learner in self.learners]
        self._adam = StackedAdam(optimizers, {"actor": actors, "critic": critics})
        self._actor = stack(actors[0], self._adam.parts["actor"].weights)
        self._critic = stack(critics[0], self._adam.parts["critic"].weights)
        self._device = next(actors[0].parameters()).device
        self._coefficients = self._coefficients_of([learner.config for learner in self.learners])

    def policy(self, generators: Sequence[torch.Generator], rows: slice) -> Policy:
        first = self.learners[0]
        actor = stack(first.policy.actor, self._adam.parts["actor"].weights_of(rows))
        return StackedPolicy(first.group, actor, generators[rows])

    def bind(self, others: Mapping[str, StackedLearner]) -> None:
        """Nothing: it reads other groups' observations only."""

    def update(self, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        """As `OnPolicyLearner.update` of each learner, with its rollout."""
        n_samples, n_agents = rollouts[0].batch_size.numel(), self.learners[0].group.n_agents
        bounds = list(itertools.pairwise(self.learners[0].minibatch_bounds(n_samples)))
        if self._device.type == "cpu" and (n_samples * n_agents > MAX_ROWS * len(bounds) or not self._act(rollouts)):
            return [learner.update(rollout) for learner, rollout in zip(self.learners, rollouts, strict=True)]
        with ExitStack() as active:
            for learner in self.learners:
                active.enter_context(fast_training(learner.policy))
            prepared = [learner.prepare(rollout) for learner, rollout in zip(self.learners, rollouts, strict=True)]
        acted = [part for part in prepared if part is not None]  # all: a GPU leaves rows out by weights alone
        samples = _stacked([training_samples for training_samples, _ in acted])
        with fast_training(self._actor), fast_training(self._critic):
            names, metrics = self._learn(samples, bounds)
        for learner in self.learners:
            learner.policy.actor.bound_log_std()
        reports = torch.stack([torch.stack(tuple(report.values())) for _, report in acted])
        numbers = torch.cat((metrics, reports), dim=1).tolist()  # one transfer from the device
        n_epochs = float(self.learners[0].config.epochs)
        return [{**dict(zip((*names, *acted[0][1]), row, strict=True)), "epochs": n_epochs} for row in numbers]

    def _act(self, rollouts: Sequence[Rollout]) -> bool:
        """Whether an agent of the group acted in every training run: otherwise that one has nothing to learn from."""
        group = self.learners[0].group.name
        return all(bool(rollout[group, "acting"].any()) for rollout in rollouts)

    def _learn(
        self, samples: Mapping[str, Tensor], bounds: Sequence[tuple[int, int]]
    ) -> tuple[tuple[str, ...], Tensor]:
        """Gradient steps on minibatches of samples `[training, sample, ...]`.

        Returns:
            the metrics' names, and their means over all minibatches, `[training, metric]`.
        """
        n_trainings, n_samples = samples["log_prob"].shape[:2]
        starts = torch.arange(n_trainings, device=self._device)[:, None] * n_samples
        rates, max_norms = self._rates()
        names: tuple[str, ...] = ()
        epochs = []
        for _ in range(self.learners[0].config.epochs):
            order = torch.stack([learner.draw_order(n_samples) for learner in self.learners]) + starts
            shuffled = {
                key: value.flatten(0, 1).index_select(0, order.flatten()).view_as(value)
                for key, value in samples.items()
            }
            rows = []
            for start, stop in bounds:
                loss, metrics = self._loss({key: value[:, start:stop] for key, value in shuffled.items()})
                norms = self._adam.step(loss, rates, max_norms)
                names = (*metrics, *(f"grad_norm_{part}" for part in self._adam.parts))
                rows.append(torch.cat((torch.stack(tuple(metrics.values()), dim=1), norms), dim=1))
            epochs.append(torch.stack(rows).mean(0))
        return names, torch.stack(epochs).mean(0)

    def _loss(self, minibatch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The losses and the metrics, each `[training]`."""

        def run(_: Part, network: Network, x: Tensor) -> Tensor:
            return network(x)[0]

        output = evaluate_minibatch(self._actor, self._critic, minibatch, run)
        return ppo_loss(self._coefficients, output, minibatch, masked_means)

    def _coefficients_of(self, configs: Sequence[IPPOConfig]) -> StackedPPOCoefficients:
        def option(name: str, *shape: int) -> Any:
            values = [getattr(config, name) for config in configs]
            if len(set(values)) == 1:
                return values[0]  # the same number for all, with the bits of a single training run
            return torch.tensor(values, device=self._device).view(-1, *shape)

        return StackedPPOCoefficients(
            clip=option("clip", 1, 1),
            value_clip=option("value_clip", 1, 1),
            value_coef=option("value_coef"),
            entropy_coef=option("entropy_coef"),
            value_loss=configs[0].value_loss,
        )

    def _rates(self) -> tuple[dict[str, Tensor], Tensor]:
        """Learning rates of each part, and bounds on gradients' norms, each `[training, 1]`."""
        rates_by_learner = [learner.learning_rates() for learner in self.learners]
        rates = {
            part: torch.tensor([[rates[part]] for rates in rates_by_learner], dtype=torch.float64, device=self._device)
            for part in rates_by_learner[0]
        }
        bounds = [[learner.config.max_grad_norm or torch.inf] for learner in self.learners]
        return rates, torch.tensor(bounds, device=self._device)


def check_ppo(learners: Sequence[PPOLearner]) -> None:
    """Raises ConfigError: learners of one group in several training runs cannot learn together."""
    where = f"group {learners[0].group.name!r}"
    check_simultaneous(learners[0].group.name, simultaneous=not learners[0].turn_based)
    first = learners[0].config
    for learner in learners:
        config = learner.config
        for name in EQUAL_OPTIONS:
            if getattr(config, name) != getattr(first, name):
                values = f"{getattr(first, name)} and {getattr(config, name)}"
                raise ConfigError(f"training runs in one batch need equal algorithm.{name}; {where} has {values}")
        if (config.value_clip is None) != (first.value_clip is None) or config.centralised != first.centralised:
            raise ConfigError(f"{where}: training runs in one batch need equal critics, and value_clip for all or none")
        if config.target_kl is not None:
            raise ConfigError(
                f"algorithm.target_kl={config.target_kl} ends each update at another time, which several seeds in one "
                "process cannot do; use fewer epochs"
            )
    for part in ("actor", "critic"):
        networks = [getattr(learner.policy, part).network for learner in learners]
        check_stackable(networks, f"the {part} of {where}")


def _stacked(samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Samples of several training runs as `[training, sample, ...]`; without a mask, all weights are 1."""
    if any("weight" in training_samples for training_samples in samples):
        samples = [
            {"weight": torch.ones_like(training_samples["log_prob"]), **training_samples}
            for training_samples in samples
        ]
    return {key: torch.stack([training_samples[key] for training_samples in samples]) for key in samples[0]}
