"""The losses and their gradients against torchrl's, on the same minibatch and the same networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import IndependentNormal, ProbabilisticActor
from torchrl.objectives import ClipPPOLoss, MAPPOLoss

from marlnb.algorithms.configs.ppo import IPPOConfig, MAPPOConfig
from marlnb.algorithms.gae import rollout_values
from marlnb.algorithms.ppo import MinibatchOutput, PPOLearner, ppo_loss
from marlnb.config import LearnerContext
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.specs import ActionSpec, EnvSpec

CONFIG = IPPOConfig(clip=0.2, entropy_coef=0.01)
DISCRETE = ActionSpec("discrete", n=(5,))
CONTINUOUS = ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0))


class NormalParameters(nn.Module):
    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(x).chunk(2, -1)
        return mean, log_std.exp()


class Value(nn.Module):
    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.critic(x).unsqueeze(-1)
        return value


def minibatch(learner: PPOLearner, rollout: TensorDict) -> dict[str, Tensor]:
    samples, _ = learner._samples(rollout, rollout_values(learner.policy, rollout), None)
    samples["log_prob"] = samples["log_prob"] + 0.3 * torch.randn_like(samples["log_prob"])  # so that ratios clip
    return samples


def torchrl_loss(learner: PPOLearner, sample: dict[str, Tensor]) -> Tensor:
    """torchrl's total; its l2 lacks our half, hence the critic's coefficient. Agents stay an axis."""
    policy, config = learner.policy, learner.config
    if learner.group.action.kind == "discrete":
        module = TensorDictModule(policy.actor, in_keys=["observation"], out_keys=["logits"])
        family: dict = {"in_keys": ["logits"], "distribution_class": torch.distributions.Categorical}
    else:
        module = TensorDictModule(NormalParameters(policy.actor), in_keys=["observation"], out_keys=["loc", "scale"])
        family = {"in_keys": ["loc", "scale"], "distribution_class": IndependentNormal}
    actor = ProbabilisticActor(module, out_keys=["action"], return_log_prob=True, **family)
    kind = MAPPOLoss if config.centralised else ClipPPOLoss
    reads = "joint" if config.centralised else "observation"
    critic = TensorDictModule(Value(policy.critic), in_keys=[reads], out_keys=["state_value"])
    loss = kind(
        actor,
        critic,
        clip_epsilon=config.clip,
        entropy_coeff=config.entropy_coef,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=False,
    )
    loss.set_keys(sample_log_prob="log_prob")
    log_prob = sample["log_prob"]
    if learner.group.action.kind == "continuous":
        log_prob = log_prob + policy.actor.distribution.log_slope(sample["stored"])  # type: ignore[attr-defined]
    batch = TensorDict(
        {
            "observation": sample["observation"],
            "action": sample["stored"],
            "log_prob": log_prob,
            "advantage": sample["advantage"].unsqueeze(-1),
            "value_target": sample["target"].unsqueeze(-1),
        },
        sample["advantage"].shape,
    )
    if config.centralised:
        batch = batch.apply(lambda x: x, batch_size=sample["advantage"].shape[:1])
        batch["joint"] = sample["joint"]
    out = loss(batch)
    return out["loss_objective"] + out["loss_critic"] + out["loss_entropy"]


@pytest.mark.parametrize(
    "config", [IPPOConfig(entropy_coef=0.01), MAPPOConfig(entropy_coef=0.01)], ids=lambda c: c.name
)
@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS], ids=lambda a: a.kind)
def test_loss_and_gradients_equal_torchrls(
    config: IPPOConfig, action: ActionSpec, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    torch.manual_seed(0)
    env = make_env(action)
    model = MLPConfig(hidden=(16, 16))
    learner = config.build(LearnerContext(env.group("walker"), env, model, model, 4, 20))
    sample = minibatch(learner, make_rollout(env, {"walker": learner.policy}))
    parameters = [*learner.policy.actor.parameters(), *learner.policy.critic.parameters()]
    ours, metrics = learner.loss(sample)
    theirs = torchrl_loss(learner, sample)
    assert metrics["clip_fraction"] > 0.1  # some ratios were clipped
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for got, want in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters)):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4)


def test_the_clipped_surrogate_by_hand() -> None:
    sample = {
        "log_prob": torch.zeros(4),
        "advantage": torch.tensor([1.0, 1.0, -1.0, -1.0]),
        "target": torch.tensor([1.0, 0.0, 0.0, 0.0]),
    }
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5])
    entropy = torch.full((4,), 2.0)
    loss, metrics = ppo_loss(CONFIG, MinibatchOutput(ratio.log(), entropy, torch.zeros(4)), sample)
    policy_loss = -(1.2 + 0.5 - 1.5 - 0.8) / 4
    value_loss = 0.5 * 1 / 4
    kl = ((ratio - 1) - ratio.log()).mean()
    names = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
    expected = dict(zip(names, torch.tensor([policy_loss, value_loss, 2.0, float(kl), 1.0])))
    torch.testing.assert_close(metrics, expected)
    torch.testing.assert_close(loss, torch.tensor(policy_loss + value_loss - 0.02))


def test_rows_without_weight_are_as_if_absent() -> None:
    log_prob, entropy, value = torch.randn(3, 10, 2)
    sample = {key: torch.randn(10, 2) for key in ("log_prob", "advantage", "target")}
    acted = torch.rand(10, 2) < 0.5
    got = ppo_loss(CONFIG, MinibatchOutput(log_prob, entropy, value), sample | {"weight": acted.float()})
    only = {key: x[acted] for key, x in sample.items()}
    expected = ppo_loss(CONFIG, MinibatchOutput(log_prob[acted], entropy[acted], value[acted]), only)
    for ours, theirs in zip(got, expected):
        torch.testing.assert_close(ours, theirs)


def test_value_clipping_takes_the_worse_of_two_and_huber_grows_linearly() -> None:
    sample = {"log_prob": torch.zeros(2), "advantage": torch.zeros(2), "target": torch.tensor([1.0, 30.0])}
    sample["value"] = torch.tensor([0.0, 0.0])
    value, zeros = torch.tensor([1.0, 0.0]), torch.zeros(2)
    output = MinibatchOutput(zeros, zeros, value)
    clipped = ppo_loss(replace(CONFIG, value_clip=0.2), output, sample)[1]
    assert clipped["value_loss"] == pytest.approx((0.5 * 0.8**2 + 0.5 * 900) / 2)
    huber = ppo_loss(replace(CONFIG, value_loss="huber"), output, sample)[1]
    assert huber["value_loss"] == pytest.approx((0 + 10 * (30 - 5)) / 2)
