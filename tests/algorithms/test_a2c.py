"""A2C and MAA2C: the loss by hand and against torchrl's, the gradient of PPO's first step, and one pass a rollout."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import A2CLoss

from marlnb.algorithms.a2c import A2CLearner, a2c_loss
from marlnb.algorithms.configs.a2c import A2CConfig, MAA2CConfig
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.ppo import MinibatchOutput, ppo_loss
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from tests.algorithms.test_ppo import DISCRETE, SMALL, build, experience, probe_env, signs


def minibatch(learner: A2CLearner, *, weight: bool) -> dict[str, Tensor]:
    """24 samples of two agents."""
    torch.manual_seed(3)
    shape = (24, 2)
    batch = {"observation": torch.randn(*shape, 1), "stored": torch.randint(5, shape), "joint": torch.randn(24, 3)}
    batch |= {"advantage": torch.randn(shape), "target": torch.randn(shape)}
    output = learner.policy.actor.distribution.evaluate(learner.policy.actor(batch["observation"]), batch["stored"])
    batch["log_prob"] = output[0].detach()
    return batch | ({"weight": (torch.rand(shape) > 0.3).float()} if weight else {})


def gradients(learner: A2CLearner, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(learner.policy.parameters())))


def test_the_loss_of_three_actions_is_that_of_a_calculation_by_hand() -> None:
    """-(-1 * 2 - 3 * -1) / 2 = -0.5; values 0.5 * (4 + 0) / 2 = 1; entropy (1 + 0.5) / 2; the third did not act."""
    output = MinibatchOutput(torch.tensor([-1.0, -3.0, -9.0]), torch.tensor([1.0, 0.5, 9.0]), torch.tensor([2.0, 1, 9]))
    batch = {"advantage": torch.tensor([2.0, -1, 7]), "target": torch.tensor([0.0, 1, 7])}
    config = A2CConfig(entropy_coef=0.1, value_coef=0.5)
    loss, metrics = a2c_loss(config, output, batch | {"weight": torch.tensor([1.0, 1, 0])})
    assert loss.item() == pytest.approx(-0.5 + 0.5 * 1 - 0.1 * 0.75)
    assert [metrics[name].item() for name in ("policy_loss", "value_loss", "entropy")] == pytest.approx([-0.5, 1, 0.75])


@pytest.mark.parametrize("config", [A2CConfig(entropy_coef=0.02), MAA2CConfig(entropy_coef=0.02)], ids=lambda c: c.name)
def test_loss_and_gradients_are_torchrls(config: A2CConfig) -> None:
    learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=24, steps=1)
    batch, policy = minibatch(learner, weight=False), learner.policy
    module = TensorDictModule(policy.actor, in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        module, in_keys=["logits"], distribution_class=torch.distributions.Categorical, return_log_prob=True
    )

    class Value(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = policy.critic

        def forward(self, x: Tensor) -> Tensor:
            value: Tensor = self.critic(x).unsqueeze(-1)
            return value

    reads = "joint" if config.centralised else "observation"
    critic = TensorDictModule(Value(), in_keys=[reads], out_keys=["state_value"])
    oracle = A2CLoss(actor, critic, entropy_coeff=0.02, critic_coeff=0.5, loss_critic_type="l2")
    data = TensorDict(
        {
            "observation": batch["observation"],
            "action": batch["stored"],
            "action_log_prob": batch["log_prob"],
            "advantage": batch["advantage"].unsqueeze(-1),
            "value_target": batch["target"].unsqueeze(-1),
        },
        (24, 2),
    )
    if config.centralised:
        data = data.clone().auto_batch_size_(1)
        data["joint"] = batch["joint"]
    losses = oracle(data)
    expected = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
    loss, _ = learner.loss(batch)
    torch.testing.assert_close(loss, expected)
    theirs = torch.autograd.grad(expected, [*oracle.parameters()])
    ours = torch.autograd.grad(loss, [*policy.actor.parameters(), *policy.critic.parameters()])
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("weight", [False, True])
def test_the_gradient_is_that_of_ppos_first_step(weight: bool) -> None:
    """Huang et al. 2022 (arXiv:2205.09123): at a ratio of 1, grad r A = grad log pi A."""
    learner = build(A2CConfig(entropy_coef=0.01), probe_env(DISCRETE), SMALL["mlp"], n_envs=24, steps=1)
    batch = minibatch(learner, weight=weight)
    ppo, _ = ppo_loss(IPPOConfig(entropy_coef=0.01), learner.evaluate_minibatch(batch), batch)
    a2c, _ = a2c_loss(learner.config, learner.evaluate_minibatch(batch), batch)
    for mine, other in zip(gradients(learner, a2c), gradients(learner, ppo), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(("kind", "explained"), [(A2CConfig, False), (MAA2CConfig, True)])
@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_only_the_centralised_critic_explains_what_another_group_sees(
    kind: type[A2CConfig], explained: bool, model: str
) -> None:
    config = kind(lr=0.01, sequence_length=4, minibatch_frames=32)
    learner = build(config, probe_env(DISCRETE), SMALL[model], n_envs=32, steps=8)

    def reward(t: int, seen: dict[str, Tensor], action: Tensor) -> Tensor:
        return seen["b"].squeeze(-1).expand(32, 2)

    for _ in range(16):
        metrics = learner.update(experience(learner, signs, reward, steps=8))
    assert metrics["epochs"] == 1 and (metrics["explained_variance"] > 0.9) is explained


def test_it_makes_one_pass_and_says_so() -> None:
    composed = Experiment.compose("env=mpe/simple_spread", "algorithm=maa2c").algorithm
    assert isinstance(composed, MAA2CConfig) and composed.centralised and composed.minibatch_frames == 1600
    with pytest.raises(ConfigError, match=r"no option 'algorithm\.epochs' of algorithm 'a2c'"):
        Experiment.compose("env=mpe/simple_spread", "algorithm=a2c", "algorithm.epochs=3")
