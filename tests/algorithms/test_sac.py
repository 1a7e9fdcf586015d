"""SAC's family: losses against torchrl's, the temperature's target, known optima, masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import log

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torchrl.modules import ProbabilisticActor, TanhNormal
from torchrl.objectives import DiscreteSACLoss, SACLoss

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.configs.sac import ISACConfig, MASACConfig
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.sac import SACLearner, target_entropy
from marlnb.config import LearnerContext
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.q_critic import QCritic
from marlnb.specs import ActionSpec, EnvSpec
from tests.algorithms.solo import (
    CONTINUOUS,
    DISCRETE,
    GAMMA,
    as_tensordict,
    follow,
    judge,
    our_critic_loss,
    solo_env,
    solo_learner,
    solo_sample,
    weights_of,
)


class Normal(nn.Module):
    """A Gaussian actor's mean and deviation."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(observation.unsqueeze(-2)).squeeze(-2).chunk(2, -1)
        return mean, log_std.clamp(-5, 2).exp()


class PerAgent(nn.Module):
    """A map of agents' observations as one of `[n, feature]`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, observation: Tensor) -> Tensor:
        if isinstance(self.inner, QCritic):
            values: Tensor = self.inner(observation.unsqueeze(-2), {})
            return values.squeeze(-2)
        logits: Tensor = self.inner(observation.unsqueeze(-2)).squeeze(-2)
        return logits


def build(config: ISACConfig, action: ActionSpec, *, apart: bool = False) -> SACLearner:
    learner = solo_learner(config, action, apart=apart)
    assert isinstance(learner, SACLearner)
    return learner


def test_continuous_losses_equal_torchrls() -> None:
    learner = build(ISACConfig(gamma=GAMMA, temperature=0.3), CONTINUOUS, apart=True)
    policy, targets, sample = learner.policy, learner.targets, solo_sample(CONTINUOUS)
    module = TensorDictModule(Normal(policy.actor), in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(
        module,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -1.0, "high": 1.0, "safe_tanh": False},
        return_log_prob=True,
    )
    oracle = SACLoss(
        actor,
        [judge(critic) for critic in policy.critics],
        loss_function="l2",
        alpha_init=0.3,
        target_entropy=learner.target_entropy,
    )
    follow(oracle, qvalue=weights_of(*(judge(targets[name]) for name in ("critic", "critic_2"))))
    torch.manual_seed(5)
    theirs = oracle(as_tensordict(sample))
    torch.manual_seed(5)
    critics = our_critic_loss(learner, sample)  # first, as there: both draw actions
    loss, metrics = learner.actor_loss(learner.critic_batch(sample))
    torch.testing.assert_close(loss, theirs["loss_actor"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(critics, theirs["loss_qvalue"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(learner.temperature_loss(metrics["entropy"]), theirs["loss_alpha"], atol=1e-5, rtol=1e-5)


def test_discrete_losses_equal_torchrls() -> None:
    learner = build(ISACConfig(gamma=GAMMA, temperature=0.3), DISCRETE, apart=True)
    policy, targets, sample = learner.policy, learner.targets, solo_sample(DISCRETE)
    module = TensorDictModule(PerAgent(policy.actor), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        module, in_keys=["logits"], distribution_class=torch.distributions.Categorical, return_log_prob=True
    )

    def values(critic: nn.Module) -> TensorDictModule:
        return TensorDictModule(PerAgent(critic), in_keys=["observation"], out_keys=["action_value"])

    oracle = DiscreteSACLoss(
        actor,
        values(policy.critic),
        action_space="categorical",
        num_actions=4,
        loss_function="l2",
        alpha_init=0.3,
        target_entropy=learner.target_entropy,
    )
    oracle.qvalue_network_params.update_(weights_of(*(values(critic) for critic in policy.critics)))
    twins = weights_of(*(values(targets[name]) for name in ("critic", "critic_2")))
    follow(oracle, qvalue=twins)
    theirs = oracle(as_tensordict(sample))
    loss, metrics = learner.actor_loss(learner.critic_batch(sample))
    torch.testing.assert_close(loss, theirs["loss_actor"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(our_critic_loss(learner, sample), theirs["loss_qvalue"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(learner.temperature_loss(metrics["entropy"]), theirs["loss_alpha"], atol=1e-5, rtol=1e-5)


def test_the_joint_critic_of_one_agent_alone_says_what_its_own_would() -> None:
    """With no other agent a choice's value depends on the observation alone, in MASAC as in ISAC."""
    learner = build(MASACConfig(), DISCRETE)
    sample = solo_sample(DISCRETE)
    critic_batch = learner.critic_batch(sample)
    other = critic_batch.codes["solo"].roll(1, -1)
    values = learner.policy.critic.q_of_choices(critic_batch.encoded, critic_batch.codes)
    assert values.shape == (64, 1, 4)
    torch.testing.assert_close(values, learner.policy.critic.q_of_choices(critic_batch.encoded, {"solo": other}))


Choosers = Callable[..., tuple[SACLearner, Sample]]


@pytest.fixture
def learner_of_three(make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]) -> Choosers:
    """MASAC of the group of three, after three updates, and a sample; the group of two learns with PPO."""

    def build(action: ActionSpec, **options: object) -> tuple[SACLearner, Sample]:
        config = MASACConfig(learning_starts=0, updates=3, temperature=0.3, **options)  # type: ignore[arg-type]
        env, model, lengths = make_env(action), MLPConfig(hidden=(16,)), {"n_envs": 4, "rollout_steps": 20}
        torch.manual_seed(0)
        learners = {
            "walker": config.build(LearnerContext(env.group("walker"), env, model, model, **lengths)),
            "other": IPPOConfig().build(LearnerContext(env.group("other"), env, model, model, **lengths)),
        }
        learner = learners["walker"]
        assert isinstance(learner, SACLearner)
        learner.bind_learners(learners)
        learner.update(make_rollout(env, {name: each.policy for name, each in learners.items()}))
        return learner, learner.replay.sample(64)

    return build


def least_value(critics: Sequence[QCritic], seen: Tensor, codes: dict[str, Tensor], agent: int, own: Tensor) -> Tensor:
    """Of one agent's own action, `[n, code]`, by a pass of its own."""
    walkers = codes["walker"].clone()
    walkers[:, agent] = own
    return torch.minimum(*(critic(seen, codes | {"walker": walkers})[:, agent] for critic in critics))


@pytest.mark.parametrize("whose", ["own", "all"])
@pytest.mark.parametrize("action", [CONTINUOUS, DISCRETE], ids=lambda a: a.kind)
def test_the_actors_loss_is_that_of_its_agents_one_by_one(
    whose: str, action: ActionSpec, learner_of_three: Choosers
) -> None:
    learner, sample = learner_of_three(action, policy_actions=whose)
    critic_batch, policy = learner.critic_batch(sample), learner.policy
    weights = list(policy.actor.parameters())
    torch.manual_seed(5)
    actual = learner.actor_loss(critic_batch)[0]

    torch.manual_seed(5)  # the same random actions
    parameters, alpha = policy.actor(sample["walker", "observation"]), policy.temperature().detach()
    drawn = policy.actor.distribution.sample(parameters) if whose == "all" or policy.continuous else None
    codes = critic_batch.codes
    if drawn is not None:
        acted = drawn.stored.tanh() if policy.continuous else one_hot(drawn.action, action.n[0]).float()
        codes = codes | {"walker": acted} if whose == "all" else codes
    losses = []
    for agent in range(3):
        value_of = partial(least_value, policy.critics, critic_batch.encoded, codes, agent)
        if policy.continuous:
            assert drawn is not None
            losses.append(alpha * drawn.log_prob[:, agent] - value_of(acted[:, agent]))
        else:
            choices = torch.distributions.Categorical(logits=parameters[:, agent])
            each = torch.stack([value_of(own) for own in torch.eye(action.n[0])], -1).detach()
            losses.append(-(choices.probs * each).sum(-1) - alpha * choices.entropy())
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)
    theirs = torch.autograd.grad(expected, weights)
    for ours, gradient in zip(torch.autograd.grad(actual, weights), theirs):
        torch.testing.assert_close(ours, gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("action", [CONTINUOUS, DISCRETE], ids=lambda a: a.kind)
def test_the_target_is_that_of_its_agents_one_by_one(action: ActionSpec, learner_of_three: Choosers) -> None:
    learner, sample = learner_of_three(action)
    critic_batch, policy = learner.critic_batch(sample), learner.policy
    torch.manual_seed(5)
    actual = learner.target(critic_batch)

    torch.manual_seed(5)  # the same random actions
    parameters, alpha = policy.actor(critic_batch.next_observation), policy.temperature()
    drawn = policy.actor.distribution.sample(parameters)
    acted = drawn.stored.tanh() if policy.continuous else one_hot(drawn.action, action.n[0]).float()
    codes = critic_batch.next_codes | {"walker": acted}
    for agent in range(3):
        value_of = partial(least_value, learner.target_critics, critic_batch.next_encoded, codes, agent)
        if policy.continuous:
            value = value_of(acted[:, agent]) - alpha * drawn.log_prob[:, agent]
        else:
            choices = torch.distributions.Categorical(logits=parameters[:, agent])
            each = torch.stack([value_of(own) for own in torch.eye(action.n[0])], -1)
            value = (choices.probs * each).sum(-1) + alpha * choices.entropy()
        future = ~critic_batch.terminated[:, agent] * learner.config.gamma
        torch.testing.assert_close(actual[:, agent], critic_batch.reward[:, agent] + future * value)


def test_target_entropies_by_hand() -> None:
    assert target_entropy(CONTINUOUS, None) == -2.0
    wide = ActionSpec("continuous", low=(0.0, -3.0), high=(4.0, 3.0))
    assert target_entropy(wide, None) == pytest.approx(-2 + log(2) + log(3))
    assert target_entropy(wide, 0.5) == pytest.approx(0.5 + log(2) + log(3))
    assert target_entropy(DISCRETE, None) == pytest.approx(0.3 * log(4))
    assert target_entropy(DISCRETE, 0.9) == 0.9


def bandit(learner: SACLearner, rewards: Tensor, steps: int) -> dict[str, Tensor]:
    """Learns which of four choices pays; episodes of one step."""
    metrics: dict[str, Tensor] = {}
    for _ in range(steps):
        sample = solo_sample(DISCRETE, n=64)
        sample["next", "solo", "reward"] = rewards[sample["solo", "action"]].unsqueeze(-1)
        sample["next", "solo", "terminated"] = torch.ones(64, 1, 1, dtype=torch.bool)
        metrics = learner.learn(sample)
        learner.steps += 1
    return metrics


def test_at_a_fixed_temperature_choices_are_softmax_of_their_rewards() -> None:
    """The optimum of reward plus temperature times entropy: Haarnoja et al. 2018, equation 4 (arXiv:1812.05905)."""
    rewards = torch.tensor([1.0, 0.5, 0.0, -1.0])
    learner = build(ISACConfig(lr=3e-3, temperature=0.5, learn_temperature=False), DISCRETE)
    bandit(learner, rewards, 200)
    assert learner.policy.temperature().item() == 0.5
    logits = learner.policy.actor(torch.randn(200, 1, 3))
    expected = (rewards / 0.5).softmax(-1)
    torch.testing.assert_close(logits.softmax(-1).mean((0, 1)), expected, atol=0.03, rtol=0)


def test_the_temperature_brings_the_entropy_to_its_target() -> None:
    learner = build(ISACConfig(lr=3e-3, temperature=2.0, lr_temperature=0.02, target_entropy=0.8), DISCRETE)
    metrics = bandit(learner, torch.tensor([1.0, 0.5, 0.0, -1.0]), 400)
    assert float(metrics["entropy"]) == pytest.approx(0.8, abs=0.05)
    logits = learner.policy.actor(torch.randn(200, 1, 3))
    entropy = torch.distributions.Categorical(logits=logits.detach()).entropy().mean()
    assert float(entropy) == pytest.approx(0.8, abs=0.08)


def test_the_temperature_stays_where_no_agent_acts() -> None:
    learner, sample = build(ISACConfig(), DISCRETE), solo_sample(DISCRETE)
    sample["solo", "acting"] = torch.zeros_like(sample["solo", "acting"])
    before = learner.policy.temperature.log.detach().clone()
    learner.learn(sample)
    assert torch.equal(learner.policy.temperature.log, before)


def test_a_forbidden_choice_has_no_part_in_the_value() -> None:
    learner = build(ISACConfig(), DISCRETE)
    sample: Sample = solo_sample(DISCRETE)
    mask = torch.ones(64, 1, 4, dtype=torch.bool)
    mask[..., 3] = False
    sample["solo", "action_mask"] = sample["next", "solo", "action_mask"] = mask
    before = learner.target(learner.critic_batch(sample))
    with torch.no_grad():
        for name in ("critic", "critic_2"):
            learner.targets[name].network.head.bias[3] += 100.0
    after = learner.target(learner.critic_batch(sample))
    torch.testing.assert_close(before, after)
    loss, metrics = learner.actor_loss(learner.critic_batch(sample))
    assert torch.isfinite(loss) and float(metrics["entropy"]) < log(3) + 1e-5


def learner_of_known_values(**options: object) -> SACLearner:
    """Three choices: zero logits, Q = Q' = (1, 2, 3), and almost no weight on the entropy."""
    config = ISACConfig(gamma=GAMMA, temperature=1e-9, **options)  # type: ignore[arg-type]
    learner = build(config, ActionSpec("discrete", n=(3,)))
    with torch.no_grad():
        for module in (learner.policy.actor, *learner.policy.critics, *learner.target_critics):
            module.network.head.weight.zero_()
            module.network.head.bias.copy_(torch.tensor([1.0, 2.0, 3.0]) * isinstance(module, QCritic))
    return learner


def test_each_time_step_has_its_own_mask_by_hand() -> None:
    """Choices 0 and 2 are allowed now, 1 and 2 at the next step: V is the mean of their values."""
    learner, sample = learner_of_known_values(), solo_sample(ActionSpec("discrete", n=(3,)))
    sample["solo", "action_mask"] = torch.tensor([True, False, True]).expand(64, 1, 3)
    sample["next", "solo", "action_mask"] = torch.tensor([False, True, True]).expand(64, 1, 3)
    sample["next", "solo", "reward"].zero_()
    sample["next", "solo", "terminated"].zero_()
    batch = learner.critic_batch(sample)
    torch.testing.assert_close(learner.target(batch), torch.full((64, 1), 0.9 * (2 + 3) / 2))
    assert learner.actor_loss(batch)[0].item() == pytest.approx(-(1 + 3) / 2)


def test_the_next_action_is_an_allowed_one() -> None:
    learner, mask = learner_of_known_values(), torch.tensor([False, True, True]).expand(64, 1, 3)
    action = learner.next_action(torch.randn(64, 1, 3), mask, learner.generator)
    assert set(action.flatten().tolist()) == {1, 2}


def test_who_does_not_act_has_no_part_in_the_actors_loss_and_the_entropy() -> None:
    learner, sample = build(ISACConfig(), DISCRETE, apart=True), solo_sample(DISCRETE)
    loss, metrics = learner.actor_loss(learner.critic_batch({key: value[:32] for key, value in sample.items()}))
    sample["solo", "acting"][32:] = False
    of_all, metrics_of_all = learner.actor_loss(learner.critic_batch(sample))
    torch.testing.assert_close(of_all, loss)
    torch.testing.assert_close(metrics_of_all["entropy"], metrics["entropy"])


def test_the_temperature_has_its_own_learning_rate() -> None:
    """Adam's first step is as long as its learning rate; the entropy of new logits is above its target."""
    learner = build(ISACConfig(lr=1e-4, lr_temperature=0.1, temperature=0.5), DISCRETE)
    learner.learn(solo_sample(DISCRETE))
    assert learner.policy.temperature.log.item() == pytest.approx(log(0.5) - 0.1, abs=1e-4)


@pytest.mark.parametrize(("learned", "expected"), [(False, 0.3), (True, 0.2)])
def test_a_fixed_temperature_is_that_of_the_options_and_a_learned_one_that_of_the_state(
    learned: bool, expected: float
) -> None:
    state = build(ISACConfig(temperature=0.2), DISCRETE).state_dict()
    learner = build(ISACConfig(temperature=0.3, learn_temperature=learned), DISCRETE)
    learner.load_state_dict(state)
    assert learner.policy.temperature().item() == pytest.approx(expected)


def test_multi_discrete_actions_are_refused_by_name() -> None:
    action = ActionSpec("multi_discrete", n=(3, 2))
    env = solo_env(action)
    with pytest.raises(ConfigError, match=r"isac for group 'solo' .* multi_discrete actions; it takes discrete, cont"):
        ISACConfig().build(LearnerContext(env.groups[0], env, MLPConfig(), MLPConfig(), 1, 8))
