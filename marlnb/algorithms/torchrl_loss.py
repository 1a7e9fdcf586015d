"""Any torchrl LossModule as an algorithm, on rollouts or on samples of a replay buffer.

A subclass says which policy it trains and which LossModule trains it; `tests/examples/torchrl_loss.py` is an example.
Everything else is marlnb's: collection, advantages, the replay buffer, Adam, turn-based games, checkpoints.

The agent axis stays an axis of the batch: networks map `[n, agent, feature]`, and the LossModule must not reduce its
terms (`reduction="none"`). Each term `[n, agent]` is then averaged over the agents that acted.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import Tensor, nn

from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.algorithms.configs.on_policy import OnPolicyConfig
from marlnb.algorithms.learner import weights_of
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.on_policy import Minibatch, OnPolicyLearner
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.rollout import next_observations
from marlnb.config import LEARNERS, LearnerContext, SearchRange, option
from marlnb.errors import CheckpointError, ConfigError, ShapeError, shown
from marlnb.models.networks.inputs import features
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.distributions import Sample as PolicySample

if TYPE_CHECKING:
    from torchrl.objectives import LossModule


@dataclass(frozen=True)
class OnPolicyLossConfig(OnPolicyConfig):
    """Trains an ActorCritic with a LossModule on whole rollouts, with marlnb's advantages.

    The LossModule reads `observation`, `action` (as the policy stores it), `action_mask` if there is one, `joint` (of a
    centralised critic), `sample_log_prob`, `advantage` and `value_target` `[n, agent, 1]`.
    """

    recurrent: ClassVar[bool] = False

    epochs: int = option(
        1,
        help="passes over each rollout; more for losses of a ratio, such as ClipPPOLoss",
        ge=1,
        le=10_000,
        search=SearchRange("log", 1, 30),
    )

    @abstractmethod
    def build_loss(self, policy: ActorCritic) -> LossModule:
        """The LossModule, with `reduction="none"`; `actor_module` and `value_module` give its networks."""


@LEARNERS.register(OnPolicyLossConfig)
class OnPolicyLossLearner(OnPolicyLearner):
    """Gradient steps on the sum of a LossModule's terms. They train its own parameters too, as the part `loss`."""

    config: OnPolicyLossConfig

    def __init__(self, config: OnPolicyLossConfig, context: LearnerContext) -> None:
        super().__init__(config, context)
        policy, self.loss_module = self.policy, build_loss(config, self.policy).to(context.device)
        self.initial_numbers = numbers_of(self.loss_module)
        of_policy = {id(parameter) for parameter in policy.parameters()}
        others = [parameter for parameter in self.loss_module.parameters() if id(parameter) not in of_policy]
        if any(parameter.requires_grad for parameter in others):
            self.set_trained({"actor": policy.actor, "critic": policy.critic, "loss": nn.ParameterList(others)})

    def compile_updates(self, after: int, start: int = 0) -> None:
        """No effect: a LossModule reads its own references to the parameters, which tracing cannot replace."""

    def loss(self, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        batch = {
            "observation": minibatch["observation"],
            "action": minibatch["stored"],
            "sample_log_prob": minibatch["log_prob"],
            "advantage": minibatch["advantage"].unsqueeze(-1),
            "value_target": minibatch["target"].unsqueeze(-1),
        }
        batch |= {key: minibatch[key] for key in ("action_mask", "joint") if key in minibatch}
        terms = self.loss_module(TensorDict(batch, minibatch["advantage"].shape[:1]))
        return total_loss(terms, minibatch["advantage"].shape, minibatch.get("weight"))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"loss": loss_state(self.loss_module, self.initial_numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        load_loss_state(self.loss_module, state["loss"], self.initial_numbers)


@dataclass(frozen=True)
class OffPolicyLossConfig(OffPolicyConfig):
    """Trains a policy with a LossModule on samples of the replay buffer. Target networks are the LossModule's own.

    The LossModule reads `observation`, `action` (in the environment's units, as those of `actor_module` here),
    `action_mask` if there is one, and in `next` the observation and mask, and `reward`, `terminated` and `done`
    `[n, agent, 1]`. With `n_steps` above 1 also `steps_to_next_obs` `[n, agent, 1]`.
    """

    recurrent: ClassVar[bool] = False

    epsilon: float = option(0.05, help="share of random actions after learning_starts, of policies that have it", ge=0)

    @abstractmethod
    def build_policy(self, context: LearnerContext) -> ActorPolicy:
        """The policy to train."""

    @abstractmethod
    def build_loss(self, policy: Any) -> LossModule:
        """The LossModule, with `reduction="none"`; `actor_module` and `q_module` give its networks."""


@LEARNERS.register(OffPolicyLossConfig)
class OffPolicyLossLearner(OffPolicyLearner):
    """Gradient steps on the sum of a LossModule's terms, then an update of its target networks."""

    config: OffPolicyLossConfig
    policy: ActorPolicy

    def __init__(self, config: OffPolicyLossConfig, context: LearnerContext) -> None:
        from torchrl.objectives import SoftUpdate

        policy = config.build_policy(context).to(context.device)
        policy.learns_from_replay = True
        self.loss_module = build_loss(config, policy)
        self.loss_module.make_value_estimator(gamma=config.gamma)
        self.initial_numbers = numbers_of(self.loss_module)
        self._updater = None
        if any(name.startswith("target_") for name, _ in self.loss_module.named_buffers()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torchrl warns about tau > 0.5, which is a choice
                self._updater = SoftUpdate(self.loss_module, tau=1.0 if config.target_every else config.tau)
        super().__init__(config, policy, context.env, trained={"loss": {"loss": self.loss_module}})

    def explore(self) -> None:
        for name, value in (("epsilon", 1.0 if self.warming_up else self.config.epsilon), ("uniform", self.warming_up)):
            if isinstance(buffer := getattr(self.policy, name, None), Tensor):
                buffer.fill_(value)

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        acting = sample[self.group.name, "acting"]
        loss, metrics = total_loss(self.loss_module(self._batch(sample)), acting.shape, acting)
        norms = self.take_step("loss", loss)
        self.update_targets()
        return metrics | {"grad_norm": norms[0]}

    def _batch(self, sample: Sample) -> TensorDict:
        group, axes = self.group.name, self.policy.actor.observation_axes
        masks = ["action_mask"] if self.group.has_action_mask else []
        now = {key: sample[group, key] for key in ("action", "observation", *masks)}
        after = {key: sample["next", group, key] for key in ("reward", "terminated", "done", *masks)}
        after["observation"] = next_observations(sample, (group,))[group]
        for step in (now, after):
            step["observation"] = features(step["observation"], axes)
        if "steps" in sample:  # torchrl's name
            now["steps_to_next_obs"] = sample["steps"].expand(after["reward"].shape[:-1]).unsqueeze(-1)
        return TensorDict({**now, "next": after}, sample[group, "acting"].shape[:1])

    def update_targets(self) -> None:
        if self._updater is not None and self.targets_are_due:
            self._updater.step()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"loss": loss_state(self.loss_module, self.initial_numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        load_loss_state(self.loss_module, state["loss"], self.initial_numbers)


def build_loss(config: OnPolicyLossConfig | OffPolicyLossConfig, policy: Any) -> LossModule:
    """The config's LossModule. Raises ConfigError if it returned something else."""
    from torchrl.objectives import LossModule

    loss = config.build_loss(policy)
    if not isinstance(loss, LossModule):
        raise ConfigError(f"{type(config).__qualname__}.build_loss must return a torchrl LossModule; got {shown(loss)}")
    return loss


def total_loss(terms: TensorDictBase, shape: torch.Size, mask: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of a LossModule's terms (entries named `loss...`), each a mean over the agents that acted; and the terms.

    Args:
        terms: what the LossModule returned.
        shape: `[n, agent]`.
        mask: `[n, agent]`, who acted; None: all.
    Raises:
        ShapeError: a term is not `[n, agent]`.
    """
    means = {}
    for name, term in terms.items():
        if not name.startswith("loss"):
            continue
        if term.shape not in (shape, (*shape, 1)):
            raise ShapeError(
                f"torchrl's {name} has shape {list(term.shape)}, expected {list(shape)} (sample, agent); build the "
                "LossModule with reduction='none'"
            )
        means[name] = masked_mean(term.reshape(shape), mask)
    return torch.stack(tuple(means.values())).sum(), {name: mean.detach() for name, mean in means.items()}


def numbers_of(loss: LossModule) -> dict[str, Tensor]:
    """A copy of a LossModule's buffers `[]`, such as gamma and clip_epsilon, by name."""
    return {
        name: tensor.detach().clone()
        for name, tensor in loss.state_dict(keep_vars=True).items()
        if tensor.dim() == 0 and not isinstance(tensor, nn.Parameter) and not name.startswith("target_")
    }


def loss_state(loss: LossModule, initial_numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A LossModule's tensors, except the numbers that are as its constructor set them.

    These follow from the options, which a schedule or a mutation may change.
    """
    weights = weights_of(loss).items()
    return {name: each for name, each in weights if name not in initial_numbers or each != initial_numbers[name]}


def load_loss_state(loss: LossModule, state: Mapping[str, Tensor], initial_numbers: Mapping[str, Tensor]) -> None:
    """Restores what `loss_state` gave. Raises CheckpointError if the state belongs to another LossModule."""
    tensors, saved = loss.state_dict(), {**initial_numbers, **state}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != {name: tensor.shape for name, tensor in saved.items()}:
        raise CheckpointError(f"the checkpoint's loss is not a {type(loss).__name__} of these networks")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])


def actor_module(policy: ActorPolicy) -> ProbabilisticTensorDictSequential:
    """A policy's actor and its distribution, as torchrl's losses call them: `observation` to `action`.

    Call it in `build_loss`. Its actions are of the same kind as those of the batch: in the environment's units in
    off-policy losses, as the policy stores them in on-policy ones.
    """
    keys = ["observation", "action_mask"] if policy.group.has_action_mask else ["observation"]
    return ProbabilisticTensorDictSequential(
        TensorDictModule(_ActorParameters(policy), in_keys=keys, out_keys=["parameters"]),
        ProbabilisticTensorDictModule(
            in_keys=["parameters"],
            out_keys=["action"],
            distribution_class=partial(
                PolicyDistribution, family=policy.actor.distribution, of_actions=policy.learns_from_replay
            ),
            return_log_prob=True,
            log_prob_key="sample_log_prob",
        ),
    )


def value_module(policy: ActorCritic) -> TensorDictModule:
    """A policy's critic, as torchrl's losses call it: `observation` (centralised: `joint`) to `state_value`."""
    reads = "joint" if policy.critic.centralised else "observation"
    return TensorDictModule(_StateValue(policy), in_keys=[reads], out_keys=["state_value"])


def q_module(policy: ActorPolicy) -> TensorDictModule:
    """A policy's network of Q values, as torchrl's losses call it: `observation` to `action_value`."""
    from torchrl.modules import QValueActor

    module = TensorDictModule(
        _ActorParameters(policy, masked=False), in_keys=["observation"], out_keys=["action_value"]
    )
    mask = "action_mask" if policy.group.has_action_mask else None
    return QValueActor(module, action_space="categorical", action_mask_key=mask)


class PolicyDistribution(torch.distributions.Distribution):
    """A policy's action distribution with torch's interface.

    Args:
        parameters: `[n, agent, parameter]`.
        family: of the distribution.
        of_actions: values are actions in the environment's units; otherwise `Sample.stored`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, parameters: Tensor, family: ActionDistribution, *, of_actions: bool) -> None:
        self.parameters, self.family, self.of_actions = parameters, family, of_actions
        super().__init__(batch_shape=parameters.shape[:-1], validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.family.log_prob(self.parameters, self.family.stored(value) if self.of_actions else value)

    def entropy(self) -> Tensor:
        return self.family.evaluate(self.parameters, self.family.mode(self.parameters).stored)[1]

    @property
    def mode(self) -> Tensor:
        return self._value(self.family.mode(self.parameters))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """A draw through which continuous actions are differentiable."""
        return self.rsample_and_log_prob(sample_shape)[0]

    def rsample_and_log_prob(self, sample_shape: Any = ()) -> tuple[Tensor, Tensor]:
        """A draw, and its log-probability without the inverse of a tanh, which is inexact near the bounds."""
        sample = self.family.sample(self.parameters.expand(*sample_shape, *self.parameters.shape))
        return self._value(sample), sample.log_prob

    def _value(self, sample: PolicySample) -> Tensor:
        return sample.action if self.of_actions else sample.stored

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return self.rsample(sample_shape)


class _ActorParameters(nn.Module):
    """Observations, flat, to the parameters of the action distribution, or to Q values."""

    def __init__(self, policy: ActorPolicy, *, masked: bool = True) -> None:
        super().__init__()
        self.actor, self.masked = policy.actor, masked

    def forward(self, observation: Tensor, action_mask: Tensor | None = None) -> Tensor:
        parameters = self.actor.with_std(self.actor.network(observation)[0])
        return self.actor.distribution.mask(parameters, action_mask) if self.masked else parameters


class _StateValue(nn.Module):
    """A critic's inputs to values `[n, agent, 1]`, normalised."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.critic = policy.critic

    def forward(self, inputs: Tensor) -> Tensor:
        value: Tensor = self.critic(inputs)
        return value.unsqueeze(-1)
