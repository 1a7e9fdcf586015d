"""One agent alone, and random experience of it: the input of torchrl's single-agent losses."""

from __future__ import annotations

from typing import cast

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.objectives import LossModule, SoftUpdate, ValueEstimators

from marlnb.algorithms.configs.off_policy import QActorCriticConfig
from marlnb.algorithms.q_actor_critic import QActorCriticLearner
from marlnb.algorithms.replay import Sample
from marlnb.config import LearnerContext
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.q_critic import QCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

GAMMA = 0.9
CONTINUOUS = ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0))
DISCRETE = ActionSpec("discrete", n=(4,))


def solo_env(action: ActionSpec, features: int = 3) -> EnvSpec:
    return EnvSpec("test/solo", (GroupSpec("solo", ("solo_0",), ObservationSpec((features,)), action),))


def solo_learner(config: QActorCriticConfig, action: ActionSpec, *, apart: bool = False) -> QActorCriticLearner:
    """apart: its targets are other networks than those they follow, so that mixing them up shows."""
    torch.manual_seed(0)
    env, model = solo_env(action), MLPConfig(hidden=(16, 16))
    learner = config.build(LearnerContext(env.groups[0], env, model, model, 1, 8))
    assert isinstance(learner, QActorCriticLearner)
    learner.bind_learners({"solo": learner})
    if apart:
        with torch.no_grad():
            for weight in (*learner.targets.parameters(), *learner.policy.actor.parameters()):
                weight.add_(0.2 * torch.randn_like(weight))
    return learner


def solo_sample(action: ActionSpec, n: int = 64, features: int = 3) -> Sample:
    """As `ReplayBuffer.sample` returns it; a third of the steps terminate."""
    if action.kind == "continuous":
        taken = torch.rand(n, 1, action.n_components) * 2 - 1
    else:
        taken = torch.randint(action.n[0], (n, 1))
    terminated = (torch.arange(n) % 3 == 0).view(n, 1, 1)
    return {
        ("solo", "observation"): torch.randn(n, 1, features),
        ("solo", "action"): taken,
        ("solo", "acting"): torch.ones(n, 1, dtype=torch.bool),
        ("next", "solo", "observation"): torch.randn(n, 1, features),
        ("next", "solo", "reward"): torch.randn(n, 1, 1),
        ("next", "solo", "terminated"): terminated,
        ("next", "solo", "done"): terminated,
    }


def as_tensordict(sample: Sample) -> TensorDict:
    """The same without the agent's axis, keys as torchrl's losses read them."""
    after = {
        "observation": sample["next", "solo", "observation"].squeeze(1),
        "reward": sample["next", "solo", "reward"].squeeze(1),
        "terminated": sample["next", "solo", "terminated"].squeeze(1),
        "done": sample["next", "solo", "done"].squeeze(1),
    }
    now = {"observation": sample["solo", "observation"].squeeze(1), "action": sample["solo", "action"].squeeze(1)}
    return TensorDict({**now, "next": after}, [len(now["observation"])])


class Judge(nn.Module):
    """A critic of one agent's observation `[n, feature]` and action `[n, component]`, bounds -1..1: `[n, 1]`."""

    def __init__(self, critic: QCritic) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        seen = observation if self.critic.centralised else observation.unsqueeze(-2)
        value: Tensor = self.critic(seen, {"solo": action.unsqueeze(-2)})
        return value


def judge(critic: nn.Module) -> TensorDictModule:
    return TensorDictModule(
        Judge(cast(QCritic, critic)), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )


def follow(oracle: LossModule, **targets: TensorDict) -> None:
    """Gives torchrl's loss our discount and the weights of our targets, by the names of its networks."""
    oracle.make_value_estimator(ValueEstimators.TD0, gamma=GAMMA)
    SoftUpdate(oracle, eps=0.9)
    for name, weights in targets.items():
        getattr(oracle, f"target_{name}_network_params").update_(weights)


def weights_of(*modules: nn.Module) -> TensorDict:
    """Of several: stacked, as torchrl holds twins."""
    parameters = [TensorDict.from_module(module).data for module in modules]
    return parameters[0] if len(parameters) == 1 else torch.stack(parameters)


def our_critic_loss(learner: QActorCriticLearner, sample: Sample) -> Tensor:
    return learner.critics_loss(learner.critic_batch(sample))[0]
