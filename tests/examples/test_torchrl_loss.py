"""torchrl's losses as algorithms, off-policy and on-policy: they learn known answers and resume bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from marlnb.algorithms.torchrl_loss import (
    OffPolicyLossConfig,
    OnPolicyLossConfig,
    OnPolicyLossLearner,
    actor_module,
    total_loss,
    value_module,
)
from marlnb.config import ALGORITHMS, ENVIRONMENTS, AlgorithmConfig, LearnerContext
from marlnb.errors import CheckpointError, ConfigError, ShapeError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor import Actor, ActorPolicy
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.policy import ActContext, ActorOutput
from marlnb.specs import ActionSpec, GroupSpec
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.algorithms.conftest import random_rollout, two_groups
from tests.algorithms.test_known_answers import TOLERANCE, observation_of, started, wrong
from tests.models.conftest import DISCRETE

CONTINUOUS = ActionSpec("continuous", low=(0.0, -1.0), high=(10.0, 1.0))
ON_POLICY = {"lr": 1e-2, "epochs": 2, "minibatch_frames": 128, "normalise_values": False}
OFF_POLICY = {"lr": 1e-2, "updates": 8, "batch_size": 64, "buffer_frames": 4096, "learning_starts": 64, "tau": 0.1}


@dataclass(frozen=True)
class ReinforceConfig(OnPolicyLossConfig):
    """REINFORCE with a baseline: torchrl's loss on our rollouts and advantages."""

    def build_loss(self, policy: ActorCritic) -> Any:
        from torchrl.objectives import ReinforceLoss

        return ReinforceLoss(actor_module(policy), value_module(policy), loss_critic_type="l2", reduction="none")


class CentralisedConfig(ReinforceConfig):
    centralised = True


class StochasticPolicy(ActorPolicy):
    """An actor alone."""

    def __init__(self, context: LearnerContext) -> None:
        super().__init__()
        self.group, self.actor = context.group, Actor(context.group, context.actor)

    @torch.no_grad()
    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        parameters = self.actor(observation)
        sample = self.actor.distribution.choose(parameters, context.generator, explore=context.explore)
        return ActorOutput(sample.action, sample.log_prob, parameters)


class ActionValue(nn.Module):
    """Q values `[n, agent, 1]` of observations and actions."""

    def __init__(self, group: GroupSpec) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(group.observation.size + group.action.n_components, 32), nn.Tanh()),
            *(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)),
        )

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat((observation, action), -1))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SACLossConfig(OffPolicyLossConfig):
    """Soft actor-critic by torchrl."""

    name: ClassVar[str] = "examples/sac"

    alpha: float = 0.05
    learns_alpha: bool = False

    def build_policy(self, context: LearnerContext) -> StochasticPolicy:
        return StochasticPolicy(context)

    def build_loss(self, policy: StochasticPolicy) -> Any:
        from torchrl.objectives import SACLoss

        reads, group = ["observation", "action"], policy.group
        critic = TensorDictModule(ActionValue(group), in_keys=reads, out_keys=["state_action_value"])
        temperature = {"alpha_init": self.alpha, "fixed_alpha": not self.learns_alpha, "target_entropy": -1.0}
        return SACLoss(actor_module(policy), critic, **temperature, reduction="none", scalar_output_mode="exclude")


@pytest.fixture(scope="module")
def registered() -> Iterator[type[AlgorithmConfig]]:
    """The example's algorithm, and those above; forgotten afterwards, so that other tests do not see them."""
    from tests.examples.torchrl_loss import CQLConfig

    for kind in (ReinforceConfig, CentralisedConfig):
        ALGORITHMS.register(f"examples/{kind.__name__}")(kind)
    ALGORITHMS.register("examples/cql")(CQLConfig)
    yield CQLConfig
    for name in ("cql", ReinforceConfig.__name__, CentralisedConfig.__name__):
        ALGORITHMS._members.pop(f"examples/{name}")


def missing_answers(env: str, algorithm: AlgorithmConfig, iterations: int, gamma: float) -> list[str]:
    game: Any = ENVIRONMENTS.get(env)()
    loop = started(game, algorithm)
    for _ in range(iterations):
        loop.advance()
    return wrong(loop, game, algorithm, gamma)


@pytest.mark.parametrize("env", ["probe/action", "probe/discounting"])
@pytest.mark.parametrize("kind", [ReinforceConfig, CentralisedConfig])
def test_an_on_policy_loss_finds_the_known_values_and_actions(
    registered: object, kind: type[ReinforceConfig], env: str
) -> None:
    assert missing_answers(env, kind(gamma=0.9, gae_lambda=0.9, **ON_POLICY), 60, 0.9) == []


def test_an_off_policy_loss_finds_the_known_actions(registered: type[Any]) -> None:
    """Its values are below the true ones, by design."""
    assert not [
        text
        for text in missing_answers("probe/action", registered(gamma=0.9, **OFF_POLICY), 40, 0.9)
        if "action at" in text
    ]


def test_an_off_policy_loss_finds_the_known_actions_within_bounds() -> None:
    """Of -2..2, -1 and 1 are best: what the actor's mean has to be before the tanh is 0.55, not 1."""
    game: Any = ENVIRONMENTS.get("probe/continuous")()
    loop = started(game, SACLossConfig(gamma=0.9, **OFF_POLICY))
    for _ in range(25):
        loop.advance()
    (policy,) = loop.policies.values()
    for answer in game.answers(0.9):
        action = policy.act(observation_of(answer), explore=False).action
        assert action.flatten().tolist() == pytest.approx(answer.action, abs=TOLERANCE)


def actor_distribution(policy: ActorPolicy, parameters: torch.Tensor) -> Any:
    """As torchrl's losses get it."""
    return actor_module(policy)[-1].get_dist(TensorDict({"parameters": parameters}, parameters.shape[:1]))


def test_actions_of_off_policy_losses_are_in_the_environments_units_as_torchrls_tanh_normal() -> None:
    from torchrl.modules import TanhNormal

    env, model = two_groups(CONTINUOUS), MLPConfig(hidden=(8,))
    group = env.group("walker")
    learner = SACLossConfig().build(LearnerContext(group, env, model, model, 4, 20))
    parameters = torch.randn(6, group.n_agents, 2 * group.action.n_components, requires_grad=True)
    mean, log_std = parameters.chunk(2, -1)
    low, high = torch.tensor(group.action.low), torch.tensor(group.action.high)
    ours = actor_distribution(learner.policy, parameters)
    theirs = TanhNormal(mean, log_std.exp(), low=low, high=high)
    action = low + (high - low) * torch.rand(6, group.n_agents, group.action.n_components)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.mode, theirs.deterministic_sample)
    torch.manual_seed(0)
    drawn, log_prob = ours.rsample_and_log_prob()
    torch.manual_seed(0)
    expected, expected_log_prob = theirs.rsample_and_log_prob()
    torch.testing.assert_close(drawn, expected)
    torch.testing.assert_close(log_prob, expected_log_prob, rtol=1e-4, atol=1e-4)
    weights = torch.randn_like(drawn)
    gradients = [
        torch.autograd.grad((weights * a).sum() + p.sum(), parameters, retain_graph=True)[0]
        for a, p in ((drawn, log_prob), (expected, expected_log_prob))
    ]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)


def test_actions_of_on_policy_losses_are_those_before_the_tanh(registered: object) -> None:
    env, model = two_groups(CONTINUOUS), MLPConfig(hidden=(8,))
    policy = ReinforceConfig().build(LearnerContext(env.group("walker"), env, model, model, 4, 20)).policy
    assert isinstance(policy, ActorCritic)
    parameters = torch.randn(6, policy.group.n_agents, 2 * policy.group.action.n_components)
    mean, log_std = parameters.chunk(2, -1)
    assert torch.equal(actor_distribution(policy, parameters).mode, mean)
    stored = mean + log_std.exp()
    expected = policy.actor.distribution.log_prob(parameters, stored)
    assert torch.equal(actor_distribution(policy, parameters).log_prob(stored), expected)


@pytest.mark.parametrize(("every", "copied_at"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6])])
def test_targets_are_copied_every_so_many_steps(registered: type[Any], every: int, copied_at: list[int]) -> None:
    """As the option says, and as in marlnb's own algorithms."""
    env, model, policies = two_groups(DISCRETE), MLPConfig(hidden=(8,)), {}
    group = env.group("walker")
    learner = registered(learning_starts=0, updates=1, batch_size=32, target_every=every).build(
        LearnerContext(group, env, model, model, 4, 20)
    )
    policies[group.name] = learner.policy

    def targets() -> list[torch.Tensor]:
        return [t.clone() for name, t in learner.loss_module.named_buffers() if name.startswith("target_")]

    copies = []
    for step in range(1, 8):
        before = targets()
        learner.update(random_rollout(env, policies, seed=step))
        if not all(map(torch.equal, before, targets())):
            copies.append(step)
    assert copies == copied_at


@pytest.mark.parametrize("name", ["examples/cql", "examples/ReinforceConfig"])
def test_a_resumed_training_gives_the_same_bits(registered: object, tmp_path: Path, name: str) -> None:
    options = OFF_POLICY | {"learning_starts": 0} if name == "examples/cql" else ON_POLICY
    base = Experiment.compose(
        *("env=mpe/simple_tag", "env.max_cycles=5", "algorithm=ippo", "model.hidden=[8]", "n_envs=2"),
        *("rollout_steps=4", "frames=1000", "checkpoint_every=2"),
    )
    experiment = replace(base, algorithm=ALGORITHMS.get(name)(**options))  # type: ignore[arg-type]

    def weights(trainer: Trainer) -> list[torch.Tensor]:
        return [w.detach().clone() for policy in trainer.policies.values() for w in policy.parameters()]

    with Trainer(experiment, Run.create(tmp_path / "whole", experiment)) as trainer:
        reports = [next(trainer).learning for _ in range(5)]
        expected = weights(trainer)
    with Trainer(experiment, Run.create(tmp_path / "halves", experiment)) as trainer:
        next(trainer), next(trainer)
    torch.randn(7)
    with Trainer.resume(Run.open(tmp_path / "halves")) as trainer:
        assert [next(trainer).learning for _ in range(3)] == reports[2:]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights(trainer), expected))


def numbers_in(learner: Any) -> dict[str, float]:
    tensors = learner.loss_module.state_dict().items()
    return {name: float(tensor) for name, tensor in tensors if not tensor.dim()}


def test_numbers_of_a_loss_follow_the_options_when_a_schedule_or_a_mutation_changes_them(registered: Any) -> None:
    env, model = two_groups(DISCRETE), MLPConfig(hidden=(8,))
    context = LearnerContext(env.group("walker"), env, model, model, 4, 20)
    first, second = (registered(gamma=gamma).build(context) for gamma in (0.99, 0.5))
    second.load_state_dict(first.state_dict())
    assert numbers_in(second) == {"_value_estimator.gamma": 0.5}
    expected, weights = (each.loss_module.target_value_network_params.flatten_keys() for each in (first, second))
    assert (expected == weights).all()


@pytest.mark.parametrize("is_learned", [False, True])
def test_numbers_that_a_loss_changes_are_part_of_its_state(is_learned: bool) -> None:
    """A learned temperature, and one that is a constant until the loss itself changes it."""
    env, model = two_groups(CONTINUOUS), MLPConfig(hidden=(8,))
    context = LearnerContext(env.group("walker"), env, model, model, 4, 20)
    first, second = (SACLossConfig(learns_alpha=is_learned, alpha=alpha).build(context) for alpha in (0.25, 0.5))
    second.load_state_dict(first.state_dict())
    expected = 0.25 if is_learned else 0.5
    assert numbers_in(second)["log_alpha"] == pytest.approx(math.log(expected))
    with torch.no_grad():
        first.loss_module.log_alpha.fill_(-3.0)
    second.load_state_dict(first.state_dict())
    assert numbers_in(second)["log_alpha"] == -3.0
    third = SACLossConfig(learns_alpha=is_learned).build(context)
    third.load_state_dict(second.state_dict())
    assert numbers_in(third)["log_alpha"] == -3.0
    unchanged = SACLossConfig(learns_alpha=is_learned, alpha=0.25).build(context)
    third.load_state_dict(unchanged.state_dict())
    assert numbers_in(third)["log_alpha"] == pytest.approx(math.log(0.25 if is_learned else SACLossConfig.alpha))


def test_dead_agents_change_nothing() -> None:
    env, model, policies = two_groups(DISCRETE), MLPConfig(hidden=(8,)), []
    for noise in (0.0, 50.0):
        torch.manual_seed(0)
        learner = ReinforceConfig().build(LearnerContext(env.group("walker"), env, model, model, 4, 20))
        rollout = random_rollout(env, {"walker": learner.policy}, dead=True)
        idle = ~rollout["walker", "acting"]
        rollout["walker", "observation"][idle] += noise
        learner.update(rollout)
        policies.append(learner.state_dict()["policy"])
    assert all(torch.equal(policies[0][name], policies[1][name]) for name in policies[0])


@dataclass(frozen=True)
class ScaledConfig(ReinforceConfig):
    """REINFORCE, and the term (scale - 1)^2 with a parameter `scale` of the loss."""

    name: ClassVar[str] = "examples/scaled"

    def build_loss(self, policy: ActorCritic) -> Any:
        loss = super().build_loss(policy)
        loss.register_parameter("scale", torch.nn.Parameter(torch.zeros(())))
        of_policy = loss.forward

        def forward(tensordict: Any) -> Any:
            terms = of_policy(tensordict)
            return terms.set("loss_scale", (loss.scale - 1) ** 2 + torch.zeros_like(terms["loss_value"]))

        loss.forward = forward
        return loss


def test_parameters_of_an_on_policy_loss_that_are_not_the_policys_are_trained(registered: object) -> None:
    """Adam's first step is the learning rate, in the direction of the gradient: d (scale - 1)^2 / d scale = -2."""
    env, model = two_groups(DISCRETE), MLPConfig(hidden=(8,))
    context = LearnerContext(env.group("walker"), env, model, model, 4, 20)
    learner = ScaledConfig(lr=0.25, lr_critic=0.125, n_minibatches=1).build(context)
    assert isinstance(learner, OnPolicyLossLearner)
    rollout = random_rollout(env, {"walker": learner.policy})
    metrics = learner.update(rollout)
    assert learner.loss_module.scale.item() == pytest.approx(0.25, rel=1e-4)
    assert (metrics["loss_scale"], metrics["grad_norm_loss"]) == (1.0, 2.0)
    resumed = ScaledConfig(lr=0.25, lr_critic=0.125, n_minibatches=1).build(context)
    resumed.load_state_dict(learner.state_dict())
    assert resumed.update(rollout) == learner.update(rollout)
    assert torch.equal(resumed.loss_module.scale, learner.loss_module.scale)  # type: ignore[attr-defined]
    assert "grad_norm_loss" not in ReinforceConfig().build(context).update(rollout)  # has none of its own


def test_a_torchrl_loss_is_not_compiled_and_nothing_is_printed(
    registered: object, capsys: pytest.CaptureFixture[str]
) -> None:
    env, model = two_groups(DISCRETE), MLPConfig(hidden=(8,))
    learner = ReinforceConfig(n_minibatches=1).build(LearnerContext(env.group("walker"), env, model, model, 4, 20))
    learner.compile_updates(after=0)
    learner.update(random_rollout(env, {"walker": learner.policy}))
    assert tuple(capsys.readouterr()) == ("", "")


def test_a_build_loss_that_returns_no_loss_module_is_an_error(
    registered: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, model = two_groups(DISCRETE), MLPConfig(hidden=(8,))
    context = LearnerContext(env.group("walker"), env, model, model, 4, 20)
    for kind in (ReinforceConfig, registered):
        monkeypatch.setattr(kind, "build_loss", lambda config, policy: None)
        with pytest.raises(ConfigError, match=rf"{kind.__name__}\.build_loss must return a .*LossModule; got None"):
            kind().build(context)


def test_a_loss_that_reduces_its_terms_and_a_state_of_another_loss_are_errors() -> None:
    env, small, large = two_groups(DISCRETE), MLPConfig(hidden=(8,)), MLPConfig(hidden=(9,))
    group = env.group("walker")
    first, second = (ReinforceConfig().build(LearnerContext(group, env, m, m, 4, 20)) for m in (small, large))
    with pytest.raises(CheckpointError):
        second.load_state_dict(first.state_dict())
    with pytest.raises(ShapeError, match=r"loss_actor has shape \[\], expected \[5, 3\].*reduction='none'"):
        total_loss(TensorDict({"loss_actor": torch.zeros(())}, []), torch.Size((5, 3)), None)
