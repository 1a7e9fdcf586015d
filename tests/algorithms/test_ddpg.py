"""DDPG's family: losses against torchrl's, known optima, masks, mixtures, and training that resumes exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.objectives import DDPGLoss, TD3Loss

from marlnb.algorithms.configs.ddpg import IDDPGConfig, MADDPGConfig, MATD3Config
from marlnb.algorithms.configs.off_policy import QActorCriticConfig
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.configs.sac import ISACConfig
from marlnb.algorithms.ddpg import DDPGLearner
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.q_actor_critic import QActorCriticLearner, td_target
from marlnb.algorithms.replay import Sample
from marlnb.config import LearnerContext
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.specs import ActionSpec, EnvSpec
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.algorithms.solo import (
    CONTINUOUS,
    DISCRETE,
    GAMMA,
    as_tensordict,
    follow,
    judge,
    our_critic_loss,
    solo_learner,
    solo_sample,
    weights_of,
)

EXACT = {"gamma": GAMMA, "output_penalty": 0.0}


class Named(nn.Module):
    """The action that a deterministic actor names, bounds -1..1."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: Tensor) -> Tensor:
        action: Tensor = self.actor(observation.unsqueeze(-2)).squeeze(-2).tanh()
        return action


def named(actor: nn.Module) -> TensorDictModule:
    return TensorDictModule(Named(actor), in_keys=["observation"], out_keys=["action"])


def our_losses(learner: DDPGLearner, sample: Sample) -> tuple[Tensor, Tensor]:
    critics = our_critic_loss(learner, sample)
    return critics, learner.actor_loss(learner.critic_batch(sample))[0]


def test_ddpgs_losses_and_gradients_equal_torchrls() -> None:
    learner = solo_learner(IDDPGConfig(**EXACT), CONTINUOUS, apart=True)
    assert isinstance(learner, DDPGLearner)
    policy, targets, sample = learner.policy, learner.targets, solo_sample(CONTINUOUS)
    oracle = DDPGLoss(named(policy.actor), judge(policy.critic), loss_function="l2", delay_actor=True)
    follow(oracle, actor=weights_of(named(targets["actor"])), value=weights_of(judge(targets["critic"])))
    theirs = oracle(as_tensordict(sample))
    critic, actor = our_losses(learner, sample)
    torch.testing.assert_close(critic, theirs["loss_value"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(actor, theirs["loss_actor"], atol=1e-5, rtol=1e-5)
    copies = dict(oracle.actor_network_params.flatten_keys(".").items())
    names, weights = zip(*policy.actor.named_parameters())
    expected = torch.autograd.grad(theirs["loss_actor"], [copies[f"module.actor.{name}"] for name in names])
    for actual, gradient in zip(torch.autograd.grad(actor, weights), expected):
        torch.testing.assert_close(actual, gradient, atol=1e-6, rtol=1e-4)


def test_td3s_losses_equal_torchrls() -> None:
    learner = solo_learner(MATD3Config(target_noise=0.0, **EXACT), CONTINUOUS, apart=True)
    assert isinstance(learner, DDPGLearner)
    # torchrl has no joint critics: with one agent MATD3's reads what its own would
    policy, targets, sample = learner.policy, learner.targets, solo_sample(CONTINUOUS)
    oracle = TD3Loss(
        named(policy.actor),
        [judge(critic) for critic in policy.critics],
        bounds=(-1.0, 1.0),
        policy_noise=0.0,
        loss_function="l2",
    )
    twins = weights_of(*(judge(targets[name]) for name in ("critic", "critic_2")))
    follow(oracle, actor=weights_of(named(targets["actor"])), qvalue=twins)
    theirs = oracle(as_tensordict(sample))
    critic, actor = our_losses(learner, sample)
    torch.testing.assert_close(critic, theirs["loss_qvalue"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(actor, theirs["loss_actor"], atol=1e-5, rtol=1e-5)


def bandit_rewards(action: Tensor) -> Tensor:
    """Best at (0.5, -0.25), where it is 0."""
    return -(action - torch.tensor([0.5, -0.25])).square().sum(-1)


@pytest.mark.parametrize("config", [IDDPGConfig(lr=3e-4), MATD3Config(lr=6e-4)], ids=lambda c: c.name)
def test_the_actor_finds_the_best_action_of_a_quadratic_reward(config: IDDPGConfig) -> None:
    learner = solo_learner(replace(config, lr_critic=5e-3, output_penalty=0.01), CONTINUOUS)
    for _ in range(900):
        sample = solo_sample(CONTINUOUS, n=128)
        sample["next", "solo", "reward"] = bandit_rewards(sample["solo", "action"]).unsqueeze(-1)
        sample["next", "solo", "terminated"] = torch.ones(128, 1, 1, dtype=torch.bool)
        learner.learn(sample)
        learner.steps += 1
    observation = torch.randn(256, 1, 3)
    action = learner.policy.act(observation, explore=False).action
    error = action - torch.tensor([0.5, -0.25])
    assert error.square().mean().sqrt().item() < 0.1
    value, _ = learner.policy.value({"solo": observation})
    assert value.detach().abs().mean().item() < 0.1


def two_contexts(n: int) -> tuple[Tensor, Tensor]:
    """Observations `[n, 1, 3]` whose first feature is -1 or 1, and the choice that pays: 1 or 2.

    No feature is near 0, where the best choice jumps and a smooth network is wrong whatever it is trained on.
    """
    observation = torch.randn(n, 1, 3)
    observation[..., 0] = observation[..., 0].sign()
    return observation, (observation[..., 0] > 0).long() + 1


@pytest.mark.parametrize("config", [IDDPGConfig, MADDPGConfig, MATD3Config], ids=lambda c: c.__name__)
def test_a_discrete_actor_finds_the_choice_that_pays(config: type[IDDPGConfig]) -> None:
    learner = solo_learner(config(lr=3e-3, lr_critic=5e-3), DISCRETE)
    for _ in range(300):
        sample = solo_sample(DISCRETE, n=128)
        sample["solo", "observation"], right = two_contexts(128)
        sample["next", "solo", "reward"] = (sample["solo", "action"] == right).float().unsqueeze(-1)
        sample["next", "solo", "terminated"] = torch.ones(128, 1, 1, dtype=torch.bool)
        learner.learn(sample)
        learner.steps += 1
    observation, right = two_contexts(500)
    action = learner.policy.act(observation, explore=False)
    assert torch.equal(action.action, right)
    probability = learner.policy.actor(observation).softmax(-1).gather(-1, right.unsqueeze(-1))
    assert float(probability.detach().mean()) > 0.9  # of the draws with which it explores


def test_a_constant_reward_is_worth_r_over_one_minus_gamma_unless_the_episode_terminates() -> None:
    learner = solo_learner(MADDPGConfig(lr=3e-3, tau=0.1, gamma=0.8), CONTINUOUS)
    for _ in range(600):
        sample = solo_sample(CONTINUOUS, n=64)
        ending = (torch.arange(64) % 2 == 0).view(64, 1, 1)
        for when in ((), ("next",)):
            sample[(*when, "solo", "observation")] = ending.float().expand(64, 1, 3)
        sample["next", "solo", "reward"] = torch.full((64, 1, 1), 2.0)
        sample["next", "solo", "terminated"] = ending
        learner.learn(sample)
        learner.steps += 1
    values = learner.policy.value({"solo": torch.tensor([0.0, 1.0]).view(2, 1, 1).expand(2, 1, 3)})[0]
    torch.testing.assert_close(values, torch.tensor([[10.0], [2.0]]), atol=0.3, rtol=0)  # 2 / (1 - 0.8), and 2


def test_targets_by_hand() -> None:
    actual = td_target(torch.tensor([1.0, 1.0]), torch.tensor([3.0, 3.0]), torch.tensor([False, True]), 0.5)
    assert actual.tolist() == [2.5, 1.0]
    values, acting = torch.tensor([[1.0, 100.0], [3.0, 5.0]]), torch.tensor([[True, False], [True, True]])
    assert float(masked_mean(values, acting)) == 3.0
    assert float(masked_mean(values, torch.zeros_like(acting))) == 0.0


def test_the_target_obeys_the_mask_of_the_next_step() -> None:
    """Of logits (0, 100, 200) the Gumbel noise changes nothing; choice 2 is allowed now, but not at the next step."""
    learner, sample = solo_learner(IDDPGConfig(gamma=GAMMA), DISCRETE), solo_sample(DISCRETE)
    with torch.no_grad():
        learner.targets["actor"].network.head.weight.zero_()
        learner.targets["actor"].network.head.bias.copy_(torch.tensor([0.0, 100.0, 200.0, 0.0]))
    sample["solo", "action_mask"] = torch.ones(64, 1, 4, dtype=torch.bool)
    sample["next", "solo", "action_mask"] = torch.tensor([True, True, False, True]).expand(64, 1, 4)
    sample["next", "solo", "terminated"].zero_()
    batch = learner.critic_batch(sample)
    choice = torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(64, 1, 4)
    expected = batch.reward + GAMMA * learner.target_critics[0](batch.next_encoded, {"solo": choice}).detach()
    torch.testing.assert_close(learner.target(batch), expected)


def test_the_delayed_actor_moves_at_every_second_step() -> None:
    learner = solo_learner(MATD3Config(actor_every=2), CONTINUOUS)
    moved, weight = [], learner.policy.actor.network.head.weight
    for learner.steps in range(4):
        before = weight.detach().clone()
        learner.learn(solo_sample(CONTINUOUS))
        moved.append(not torch.equal(weight, before))
    assert moved == [False, True, False, True]


def two_groups(action: ActionSpec, make_env: Callable[..., EnvSpec], config: IDDPGConfig, other: object) -> tuple:
    torch.manual_seed(0)
    env, model = make_env(action), MLPConfig(hidden=(16,))
    lengths = {"n_envs": 4, "rollout_steps": 20}
    learners = {
        "walker": config.build(LearnerContext(env.group("walker"), env, model, model, **lengths)),
        "other": other.build(LearnerContext(env.group("other"), env, model, model, **lengths)),  # type: ignore[attr-defined]
    }
    for learner in learners.values():
        learner.bind_learners(learners)
    return env, learners


@pytest.mark.parametrize("other", [IPPOConfig(), MATD3Config(learning_starts=0, updates=3)], ids=lambda c: c.name)
@pytest.mark.parametrize("action", [CONTINUOUS, DISCRETE], ids=lambda a: a.kind)
def test_a_centralised_critic_is_asked_of_what_the_other_group_does_next(
    other: object, action: ActionSpec, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    config = MADDPGConfig(learning_starts=0, updates=3, batch_size=32)
    env, learners = two_groups(action, make_env, config, other)
    rollout = make_rollout(env, {name: learner.policy for name, learner in learners.items()})
    before = learners["walker"].policy.actor.network.head.weight.clone()
    reports = {name: learner.update(rollout) for name, learner in learners.items()}
    assert reports["walker"]["updates"] == 3 and (learners["walker"].policy.actor.network.head.weight != before).any()
    sample = learners["walker"].replay.sample(32)
    codes = learners["walker"].critic_batch(sample).next_codes["other"]
    assert codes.shape == (32, 1, 2) and (codes.sum(-1) == 1).all()
    if other.name == "ippo":  # type: ignore[attr-defined]
        observation = sample["next", "other", "observation"] * ~sample["next", "other", "terminated"]
        greedy = learners["other"].policy.actor(observation).argmax(-1)
        assert torch.equal(codes.argmax(-1), greedy)


@pytest.mark.parametrize("whose", ["own", "all"])
@pytest.mark.parametrize("action", [CONTINUOUS, DISCRETE], ids=lambda a: a.kind)
def test_the_actors_gradient_is_that_of_its_agents_one_by_one(
    whose: str, action: ActionSpec, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    config = MADDPGConfig(policy_actions=whose, learning_starts=0, updates=3, output_penalty=0.0)  # type: ignore[arg-type]
    env, learners = two_groups(action, make_env, config, IPPOConfig())
    rollout = make_rollout(env, {name: learner.policy for name, learner in learners.items()})
    learner = learners["walker"]
    learner.update(rollout)
    sample = learner.replay.sample(64)
    critic_batch, observation = learner.critic_batch(sample), sample["walker", "observation"]
    policy, weights = learner.policy, list(learner.policy.actor.parameters())

    learner.generator = torch.Generator().manual_seed(5)
    actual = learner.actor_loss(critic_batch)[0]
    same = torch.Generator().manual_seed(5)  # the same Gumbel noise
    named = policy.code(policy.actor(observation), config.temperature, same)
    taken = critic_batch.codes["walker"]
    values = []
    for agent in range(named.shape[1]):
        codes = [named[:, k] if k == agent or whose == "all" else taken[:, k] for k in range(named.shape[1])]
        joint = torch.cat((critic_batch.encoded, *codes, critic_batch.codes["other"].flatten(1)), dim=-1)
        values.append(policy.critic.network(joint.unsqueeze(1))[0][:, 0, agent])
    expected = -torch.stack(values).mean()
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    theirs = torch.autograd.grad(expected, weights)
    for ours, gradient in zip(torch.autograd.grad(actual, weights), theirs):
        torch.testing.assert_close(ours, gradient, atol=1e-6, rtol=1e-4)


def test_values_after_several_steps_are_discounted_by_each_of_them(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    config = MADDPGConfig(learning_starts=0, updates=1, gamma=0.5, n_steps=3)
    env, learners = two_groups(CONTINUOUS, make_env, config, IPPOConfig())
    learner = learners["walker"]
    learner.update(make_rollout(env, {name: learner.policy for name, learner in learners.items()}))
    sample = learner.replay.sample(64)
    sample["next", "walker", "terminated"].fill_(False)
    assert set(sample["steps"].flatten().tolist()) == {1, 2, 3}

    def target() -> torch.Tensor:
        return learner.target(learner.critic_batch(sample))

    several = target() - sample["next", "walker", "reward"][..., 0]
    factor = sample["steps"].float().sub(1).exp2()  # that 0.5 to the power of the steps lacks to 0.5
    sample["steps"].fill_(1)
    torch.testing.assert_close(several * factor, target() - sample["next", "walker", "reward"][..., 0])


def test_who_is_dead_teaches_nothing(make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]) -> None:
    env, learners = two_groups(CONTINUOUS, make_env, IDDPGConfig(learning_starts=0, updates=1), IPPOConfig())
    rollout = make_rollout(env, {name: learner.policy for name, learner in learners.items()}, dead=True)
    learner = learners["walker"]
    learner.update(rollout)
    sample = learner.replay.sample(64)
    dead = ~sample["walker", "acting"]
    assert dead.any()
    losses = []
    for reward in (0.0, 1e6):
        sample["next", "walker", "reward"][dead] = reward
        critic_batch = learner.critic_batch(sample)
        target = learner.target(critic_batch)
        value = learner.policy.critic(critic_batch.encoded, critic_batch.codes)
        losses.append(float(masked_mean((value.detach() - target).square(), critic_batch.acting)))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("config", [IDDPGConfig, MADDPGConfig, ISACConfig], ids=lambda c: c.name)
def test_messages_in_a_target_are_of_agents_that_live(
    config: type[QActorCriticConfig], make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    """What an agent of either group sees as it dies changes no next action and no value of another agent."""
    torch.manual_seed(0)
    env, mlp, gnn = make_env(CONTINUOUS), MLPConfig(hidden=(8,)), GNNConfig(hidden=(8,), rounds=(8,))
    options = config(learning_starts=0, updates=1)
    learners = {
        group.name: options.build(LearnerContext(group, env, gnn, mlp, n_envs=4, rollout_steps=20))
        for group in env.groups
    }
    for each in learners.values():
        each.bind_learners(learners)
        each.update(make_rollout(env, {name: other.policy for name, other in learners.items()}, dead=True))
    learner = learners["walker"]
    assert isinstance(learner, QActorCriticLearner)
    learner.generator = None  # torch's global one
    sample, targets = learner.replay.sample(64), []
    for last_sight in (0.0, 3.0):
        for name in learner.policy.critic.reads:
            sample["next", name, "observation"][sample["next", name, "terminated"].squeeze(-1)] = last_sight
        torch.manual_seed(1)
        targets.append(learner.target(learner.critic_batch(sample)))
    torch.testing.assert_close(*targets)


def test_the_noise_moves_along_a_straight_line_once_actions_are_no_longer_random() -> None:
    config = IDDPGConfig(noise=0.4, noise_final=0.1, noise_frames=300, learning_starts=100)
    learner = solo_learner(config, CONTINUOUS)
    actual = []
    for frames in (0, 100, 150, 300, 600):
        learner.frames = frames
        learner.explore()
        actual.append((bool(learner.policy.uniform), round(float(learner.policy.noise), 4)))
    assert actual == [(True, 0.4), (False, 0.3), (False, 0.25), (False, 0.1), (False, 0.1)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (IDDPGConfig(noise_final=0.1), r"noise_final=0.1 needs noise_frames"),
        (IDDPGConfig(noise_frames=10), r"noise_frames=10 needs noise_final"),
    ],
)
def test_half_of_a_change_of_the_noise_is_an_error(config: IDDPGConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        solo_learner(config, CONTINUOUS)


def test_what_does_not_fit_is_named(make_env: Callable[..., EnvSpec]) -> None:
    env, model = make_env(CONTINUOUS), MLPConfig()
    lengths = {"n_envs": 4, "rollout_steps": 20}
    with pytest.raises(ConfigError, match=r"maddpg for group 'walker'.* learns feed-forward networks; got gru"):
        MADDPGConfig().build(LearnerContext(env.group("walker"), env, GRUConfig(), model, **lengths))
    learners = {
        "walker": MADDPGConfig().build(LearnerContext(env.group("walker"), env, model, model, **lengths)),
        "other": IPPOConfig(sequence_length=4).build(
            LearnerContext(env.group("other"), env, GRUConfig(), model, **lengths)
        ),
    }
    with pytest.raises(ConfigError, match=r"its critic needs the next actions of other, .* recurrent"):
        learners["walker"].bind_learners(learners)


def _train(experiment: Experiment, path: Path, iterations: int) -> dict[str, Tensor]:
    with Trainer(experiment, Run.create(path, experiment)) as trainer:
        for _ in range(iterations):
            next(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
        return _weights(trainer)


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    named = {f"{name}.{key}": v for name, p in trainer.policies.items() for key, v in p.state_dict().items()}
    return {key: value.clone() for key, value in named.items()}


@pytest.mark.parametrize("name", ["iddpg", "maddpg", "matd3", "isac", "masac"])
@pytest.mark.parametrize("continuous", ["true", "false"])
def test_a_resumed_training_gives_the_same_bits(name: str, continuous: str, tmp_path: Path) -> None:
    experiment = Experiment.compose(
        *("env=mpe/simple_speaker_listener", f"env.continuous_actions={continuous}", f"algorithm={name}"),
        *("algorithm.updates=3", "algorithm.learning_starts=100", "algorithm.buffer_frames=300", "model.hidden=[16]"),
        *("algorithm.batch_size=32", "n_envs=4", "rollout_steps=16", "frames=6400", "checkpoint_every=4"),
    )
    expected = _train(experiment, tmp_path / "whole", 9)
    _train(experiment, tmp_path / "halves", 6)  # 4 are saved, 2 are lost
    torch.manual_seed(123)
    with Trainer.resume(Run.open(tmp_path / "halves")) as trainer:
        assert trainer.iteration == 4
        for _ in range(5):
            next(trainer)
        actual = _weights(trainer)
    for key, value in expected.items():
        assert torch.equal(actual[key], value), key


def test_ornstein_uhlenbeck_noise_has_its_variance_and_correlation() -> None:
    """u <- a u + b e is an AR(1) process, a = 1 - theta dt and b = sigma sqrt(dt): variance b^2 / (1 - a^2)."""
    theta, dt, sigma = 2.0, 0.1, 0.3
    options = {"noise_kind": "ornstein_uhlenbeck", "noise": sigma, "noise_theta": theta, "noise_dt": dt}
    learner = solo_learner(IDDPGConfig(learning_starts=0, **options), CONTINUOUS)
    policy, group = learner.policy, learner.group
    observation = torch.zeros(500, group.n_agents, *group.observation.shape)
    generator = torch.Generator().manual_seed(0)
    u = []
    for _ in range(200):
        policy.act(observation, explore=True, generator=generator)
        u.append(policy.noise_state.clone())
    a, b = 1 - theta * dt, sigma * dt**0.5
    before, after = u[-2].flatten(), u[-1].flatten()
    assert float(after.var()) == pytest.approx(b**2 / (1 - a**2), rel=0.15)
    assert float((before * after).mean() / before.square().mean()) == pytest.approx(a, abs=0.05)
    state = learner.state_dict()
    policy.begin_episodes(torch.arange(500) < 100)
    assert not policy.noise_state[:100].any() and torch.equal(policy.noise_state[100:], u[-1][100:])
    learner.load_state_dict(state)
    assert torch.equal(policy.noise_state, u[-1])
