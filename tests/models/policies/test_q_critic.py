"""Critics of actions: what they read, agent by agent, and that `judge_own` changes an agent's own action alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.capture import capture
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.deterministic_policy import DeterministicPolicy, straight_through
from marlnb.models.policies.distributions import Categorical
from marlnb.models.policies.q_critic import ActionEncoder, QCritic, joint_q_input_spec
from marlnb.models.policies.soft_policy import SoftPolicy
from marlnb.specs import ActionSpec, EnvSpec
from tests.models.conftest import make_model, make_spec

CONTINUOUS = ActionSpec("continuous", low=(-1.0, 0.0), high=(1.0, 4.0))
DISCRETE = ActionSpec("discrete", n=(5,))
MULTI = ActionSpec("multi_discrete", n=(3, 2))


def build(env: EnvSpec, *, share: bool, centralised: bool = True, model: str = "mlp") -> QCritic:
    torch.manual_seed(1)
    return QCritic(env.group("walker"), env, make_model(model, share), centralised=centralised)


def time_step(env: EnvSpec, critic: QCritic, n: int = 4) -> tuple[Tensor, dict[str, Tensor]]:
    """What a critic reads of random observations and actions."""
    state = None if env.state_shape is None else torch.randn(n, *env.state_shape)
    seen = critic.encode_observations(
        {g.name: torch.randn(n, g.n_agents, *g.observation.shape) for g in env.groups}, state
    )
    codes = {name: critic.encode_action(name, random_action(env, name, n)) for name in critic.reads}
    return seen, codes


def random_action(env: EnvSpec, name: str, n: int) -> Tensor:
    group = env.group(name)
    spec = group.action
    if spec.kind == "continuous":
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        return low + (high - low) * torch.rand(n, group.n_agents, spec.n_components)
    parts = [torch.randint(choices, (n, group.n_agents)) for choices in spec.n]
    return parts[0] if spec.kind == "discrete" else torch.stack(parts, -1)


def test_codes_by_hand() -> None:
    assert ActionEncoder(DISCRETE)(torch.tensor([3, 0])).tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert ActionEncoder(MULTI)(torch.tensor([[2, 0]])).tolist() == [[0, 0, 1, 1, 0]]
    code = ActionEncoder(CONTINUOUS)
    assert code(torch.tensor([[0.5, 1.0], [-1.0, 4.0]])).tolist() == [[0.5, -0.5], [-1.0, 1.0]]
    assert code.decode(torch.tensor([0.5, -0.5])).tolist() == [0.5, 1.0]


def test_a_centralised_critic_reads_observations_then_the_state_then_actions() -> None:
    env = make_spec(CONTINUOUS, state=(7,))
    assert joint_q_input_spec(env).parts == ((6,),) * 3 + ((2, 4),) * 2 + ((7,),) + ((2,),) * 3 + ((5,),) * 2
    critic = build(env, share=True)
    assert critic.network.in_features == 3 * 6 + 2 * 8 + 7 + 3 * 2 + 2 * 5
    assert critic.network.n_agents == 1 and critic.network.out_features == 3


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("action", [DISCRETE, MULTI, CONTINUOUS], ids=lambda a: a.kind)
@pytest.mark.parametrize("centralised", [True, False])
def test_judging_an_agents_own_action_is_to_replace_it_alone(
    share: bool, action: ActionSpec, centralised: bool
) -> None:
    env = make_spec(action, state=(7,))
    critic = build(env, share=share, centralised=centralised)
    seen, codes = time_step(env, critic)
    own = critic.encode_action("walker", random_action(env, "walker", 4))
    values = critic.q_with_own_action(seen, codes, own)
    for agent in range(3):  # the agents one by one, each in a pass of its own
        replaced = codes["walker"].clone()
        replaced[:, agent] = own[:, agent]
        expected = critic(seen, {**codes, "walker": replaced})[:, agent]
        torch.testing.assert_close(values[:, agent], expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(critic.q_with_own_action(seen, codes, codes["walker"]), critic(seen, codes))


def test_an_agents_gradient_is_that_of_its_own_value_alone() -> None:
    env = make_spec(CONTINUOUS)
    critic = build(env, share=True)
    seen, codes = time_step(env, critic)
    own = codes["walker"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(critic.q_with_own_action(seen, codes, own).sum(), own)
    joint = codes["walker"].clone().requires_grad_()
    values = critic(seen, {**codes, "walker": joint})
    for agent in range(3):
        (alone,) = torch.autograd.grad(values[:, agent].sum(), joint, retain_graph=True)
        torch.testing.assert_close(gradient[:, agent], alone[:, agent], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("centralised", [True, False])
@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_values_of_choices_are_those_of_taking_each_one(share: bool, centralised: bool, model: str) -> None:
    env = make_spec(DISCRETE, state=(7,))
    critic = build(env, share=share, centralised=centralised, model=model)
    seen, codes = time_step(env, critic)
    values = critic.q_of_choices(seen, codes)
    assert values.shape == (4, 3, 5)
    for agent in range(3):  # each choice of each agent in a pass of its own
        for choice in range(5):
            replaced = codes["walker"].clone()
            replaced[:, agent] = torch.eye(5)[choice]
            expected = critic(seen, {**codes, "walker": replaced})[:, agent]
            torch.testing.assert_close(values[:, agent, choice], expected, atol=1e-6, rtol=1e-5)


def test_a_missing_state_is_named() -> None:
    env = make_spec(DISCRETE, state=(7,))
    critic = build(env, share=True)
    with pytest.raises(ShapeError, match="needs the environment's state"):
        critic.encode_observations({g.name: torch.randn(4, g.n_agents, *g.observation.shape) for g in env.groups})


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_straight_through_of_a_mask_that_allows_nothing_is_finite(temperature: float) -> None:
    """As masks of dead agents may be: their rows count nowhere, and must not spoil the mean."""
    torch.manual_seed(0)
    scores = torch.randn(2, 3, requires_grad=True)
    allowed = torch.tensor([[False, False, False], [True, False, True]])
    drawn = straight_through(Categorical(3).mask(scores, allowed), (3,), temperature)
    assert torch.equal(drawn.detach().sum(-1), torch.ones(2)) and drawn[1, 1] == 0
    (drawn * torch.arange(3)).sum().backward()
    assert not scores.grad[0].any() and scores.grad[1].isfinite().all() and scores.grad[1, [0, 2]].all()


def test_straight_through_draws_from_the_softmax_and_learns_through_it() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 2.0, 0.5, torch.finfo(torch.float32).min], requires_grad=True)
    drawn = straight_through(logits.expand(40_000, 5), (3, 2), 1.0)
    torch.testing.assert_close(drawn.sum(-1), torch.full((40_000,), 2.0))
    share = drawn.detach().mean(0)
    torch.testing.assert_close(share[:3], logits[:3].softmax(-1).detach(), atol=0.01, rtol=0)
    assert share[3:].tolist() == [1.0, 0.0]  # what a mask forbids is never drawn
    (gradient,) = torch.autograd.grad(drawn[:, 2].mean(), logits)
    p = logits[:3].softmax(-1).detach()
    assert gradient[2] > 0 and gradient[0] < 0 and gradient[1] < 0
    assert abs(float(gradient[:3].sum())) < 1e-6 and gradient[3:].tolist() == [0.0, 0.0]
    assert float(gradient[2]) < float(p[2] * (1 - p[2])) + 0.05


@pytest.mark.parametrize("kind", [DeterministicPolicy, SoftPolicy])
@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS], ids=lambda a: a.kind)
@pytest.mark.parametrize("share", [True, False])
def test_values_are_those_of_greedy_actions_and_every_site_fires(
    kind: type, action: ActionSpec, share: bool, observations: dict[str, Tensor]
) -> None:
    torch.manual_seed(0)
    env, model = make_spec(action), MLPConfig(share_parameters=share, hidden=(16, 8))
    options = {"twins": True} if kind is DeterministicPolicy else {"temperature": 0.1}
    policies = {group.name: kind(group, env, model, model, centralised=True, **options) for group in env.groups}
    policy = policies["walker"]
    with pytest.raises(ConfigError, match="reads the actions of 'other'"):
        policy.value(observations)
    policy.bind_policies(policies)
    with capture(policy) as activations:
        value, state = policy.value(observations)
    assert {name.split("/")[1] for name in activations} == {"actor", "critic", "critic_2"}
    assert {site.name for site in policy.sites()} == set(activations)
    assert all(activation.shape[:2] == (4, 3) for activation in activations.values())
    actions = {name: p.act(observations[name], explore=False).action for name, p in policies.items()}
    assert torch.equal(policy.act(observations["walker"], explore=False).action, actions["walker"])
    codes = {name: policy.critic.encode_action(name, taken) for name, taken in actions.items()}
    both = [
        critic(policy.critic.encode_observations(observations), codes) for critic in (policy.critic, policy.critic_2)
    ]
    least = torch.minimum(*both)
    torch.testing.assert_close(value, least, atol=1e-6, rtol=1e-5)
    assert state is None


def test_exploring_adds_noise_of_the_given_deviation_within_bounds(observations: dict[str, Tensor]) -> None:
    torch.manual_seed(0)
    env, model = make_spec(CONTINUOUS), MLPConfig(hidden=(8,))
    policy = DeterministicPolicy(env.group("walker"), env, model, model, centralised=False, twins=False)
    observation = observations["walker"][:1].expand(20_000, 3, 6)
    policy.noise.fill_(0.1)
    noise = policy.act(observation).action - policy.act(observation, explore=False).action
    spread = noise.std(0)
    torch.testing.assert_close(spread[:, 0], torch.full((3,), 0.1), atol=0.003, rtol=0)
    torch.testing.assert_close(spread[:, 1], torch.full((3,), 0.2), atol=0.006, rtol=0)  # bounds twice as far apart
    policy.noise.fill_(3.0)
    wild = policy.act(observation).action
    assert wild.amin((0, 1)).tolist() == [-1.0, 0.0] and wild.amax((0, 1)).tolist() == [1.0, 4.0]
    policy.uniform.fill_(True)
    even = policy.act(observation).action
    torch.testing.assert_close(even.mean((0, 1)), torch.tensor([0.0, 2.0]), atol=0.02, rtol=0)
    torch.testing.assert_close(even.std((0, 1)), torch.tensor([2.0, 4.0]) / 12**0.5, atol=0.02, rtol=0)


def test_masks_hold_while_acting_at_random_and_greedily(observations: dict[str, Tensor]) -> None:
    torch.manual_seed(0)
    env, model = make_spec(DISCRETE), MLPConfig(hidden=(8,))
    mask = torch.zeros(4, 3, 5, dtype=torch.bool).index_fill_(-1, torch.tensor([1, 4]), True)
    group = env.group("walker")
    policies = (
        DeterministicPolicy(group, env, model, model, centralised=False, twins=False),
        SoftPolicy(group, env, model, model, centralised=False, temperature=0.1),
    )
    for policy in policies:
        for uniform in (True, False):
            policy.uniform.fill_(uniform)
            for explore in (True, False):
                taken = policy.act(observations["walker"], action_mask=mask, explore=explore).action
                assert set(taken.flatten().tolist()) <= {1, 4}
