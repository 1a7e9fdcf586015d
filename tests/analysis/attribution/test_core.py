"""Attribution of rows in memory, against answers worked out by hand and against captum called agent by agent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.attr import DeepLift, FeatureAblation, InputXGradient, IntegratedGradients, Saliency
from torch import Tensor, nn

from marlnb.analysis.attribution.batch_attribution import attribute_batch
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.outputs import Output, resolve_output
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.data.rows import RowBatch
from marlnb.errors import AnalysisError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

N_AGENTS, N_FEATURES, N_ROWS, N_CHOICES = 3, 6, 17, 4
DISCRETE = ActionSpec("discrete", n=(N_CHOICES,))
MULTI = ActionSpec("multi_discrete", n=(3, 2))
CONTINUOUS = ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0), names=("push", "turn"))


def env_of(action: ActionSpec) -> EnvSpec:
    agents = tuple(f"agent_{k}" for k in range(N_AGENTS))
    other = GroupSpec("speaker", ("speaker_0",), ObservationSpec((2,)), ActionSpec("discrete", n=(3,)))
    return EnvSpec("test", (other, GroupSpec("agent", agents, ObservationSpec((N_FEATURES,)), action)))


def policy_of(
    env: EnvSpec, *, shared: bool = True, recurrent: bool = False, activation: str = "tanh", centralised: bool = True
) -> ActorCritic:
    torch.manual_seed(1)
    config = (GRUConfig if recurrent else MLPConfig)(share_parameters=shared, activation=activation)  # type: ignore[arg-type]
    critic = MLPConfig(share_parameters=shared, hidden=(16,))
    policy = ActorCritic(env.group("agent"), env, config, critic, centralised=centralised)
    with torch.no_grad():  # beyond the small initial head, so that effects are far above rounding
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy.eval()


def moments_of(env: EnvSpec, policy: ActorCritic) -> RowBatch:
    generator = torch.Generator().manual_seed(2)
    spec = env.group("agent")

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    action = torch.stack(
        [torch.randint(n, (N_ROWS, N_AGENTS), generator=generator) for n in spec.action.n or (2,)], dim=-1
    )
    state = None if policy.recurrent_shape is None else draw(N_ROWS, N_AGENTS, *policy.recurrent_shape)
    return RowBatch(
        observations={"speaker": draw(N_ROWS, 1, 2), "agent": draw(N_ROWS, N_AGENTS, N_FEATURES)},
        action=action.squeeze(-1)
        if spec.action.kind == "discrete"
        else draw(N_ROWS, N_AGENTS, 2)
        if spec.action.kind == "continuous"
        else action,
        acting=torch.ones(N_ROWS, N_AGENTS, dtype=torch.bool),
        recurrent=state,
    )


def run(
    policy: ActorCritic,
    env: EnvSpec,
    moments: RowBatch,
    output: Output,
    method: str = "integrated_gradients",
    sources: str = "own",
    baseline: Tensor | None = None,
    n_steps: int = 50,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if baseline is None:
        width = sum(g.n_agents * g.observation.size for g in env.groups)
        shape = (
            (N_AGENTS, N_FEATURES) if sources == "own" else (width if output.to == "value" else N_AGENTS * N_FEATURES,)
        )
        baseline = torch.full(shape, 0.25)
    target = AttributionTarget(policy, env, output, tuple(range(N_AGENTS)), sources)  # type: ignore[arg-type]
    config = AttributionConfig(group="agent", method=method, n_steps=n_steps)
    return attribute_batch(target, moments, baseline.unsqueeze(0), config)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("action", [DISCRETE, MULTI, CONTINUOUS], ids=lambda spec: spec.kind)
def test_values_add_up_to_the_output_for_every_kind_of_policy(
    shared: bool, recurrent: bool, action: ActionSpec
) -> None:
    env = env_of(action)
    policy = policy_of(env, shared=shared, recurrent=recurrent)
    moments = moments_of(env, policy)
    output = resolve_output(action, "action", 1 if action.kind == "continuous" else None)
    values, score, start = run(policy, env, moments, output)
    assert values.shape == (N_ROWS, N_AGENTS, N_FEATURES)
    parameters = policy.actor.step(moments.observations["agent"], moments.recurrent)[0].detach()
    expected = {
        "discrete": lambda: parameters.gather(-1, moments.action.unsqueeze(-1)).squeeze(-1),
        "multi_discrete": lambda: (
            parameters[..., :3].gather(-1, moments.action[..., :1]).squeeze(-1)
            + parameters[..., 3:].gather(-1, moments.action[..., 1:]).squeeze(-1)
        ),
        "continuous": lambda: parameters[..., 1],
    }[action.kind]()
    np.testing.assert_allclose(score, expected.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values.sum(-1), score - start, atol=2e-5)


class OneAgent(nn.Module):
    """The plain per-agent network that a person would write: the shared MLP's weights, one logit."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for hidden in policy.actor.network.hidden:  # type: ignore[union-attr]
            layers += [_linear(hidden.linear), type(hidden.activation)()]
        self.body = nn.Sequential(*layers, _linear(policy.actor.network.head))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def _linear(layer: nn.Module) -> nn.Linear:
    plain = nn.Linear(layer.in_features, layer.out_features)
    plain.load_state_dict({"weight": layer.weight.detach(), "bias": layer.bias.detach()})
    return plain


@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks:UserWarning")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_each_method_equals_captum_called_agent_by_agent(activation: str) -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env, activation=activation)
    moments = moments_of(env, policy)
    plain = OneAgent(policy)
    observation, baseline = moments.observations["agent"], torch.full((1, N_FEATURES), 0.25)
    for method, oracle in {
        "integrated_gradients": lambda x, k: IntegratedGradients(plain).attribute(x, baseline, target=k, n_steps=20),
        "saliency": lambda x, k: Saliency(plain).attribute(x.clone().requires_grad_(), target=k),
        "input_x_gradient": lambda x, k: InputXGradient(plain).attribute(x.clone().requires_grad_(), target=k),
        "deeplift": lambda x, k: DeepLift(plain).attribute(x.clone().requires_grad_(), baseline.expand_as(x), target=k),
        "feature_ablation": lambda x, k: FeatureAblation(plain).attribute(x, baseline, target=k),
    }.items():
        values, _, _ = run(policy, env, moments, resolve_output(DISCRETE, "logit", 2), method, n_steps=20)  # type: ignore[arg-type]
        for agent in range(N_AGENTS):
            expected = oracle(observation[:, agent], 2).detach().numpy()
            np.testing.assert_allclose(
                values[:, agent], expected, rtol=1e-4, atol=2e-6, err_msg=f"{method}, agent {agent}"
            )


def test_attribution_recovers_a_planted_neuron_with_its_exact_weight() -> None:
    env = env_of(DISCRETE)
    config = MLPConfig(share_parameters=False, activation="relu", hidden=(8,))
    policy = ActorCritic(env.group("agent"), env, config, config)
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.zero_()
        policy.actor.network.hidden[0].linear.weight[2, 7, 5] = 2.0  # agent 2, unit 7 = relu(2 x5)
        policy.actor.network.head.weight[2, 1, 7] = 3.0
    moments = moments_of(env, policy)
    output = resolve_output(DISCRETE, "logit", 1)
    values, _, _ = run(policy, env, moments, output, baseline=torch.zeros(N_AGENTS, N_FEATURES))
    expected = np.zeros_like(values)
    expected[:, 2, 5] = 6 * moments.observations["agent"][:, 2, 5].clamp(min=0).numpy()
    assert expected.any()
    np.testing.assert_allclose(values, expected, atol=2e-6)


def test_a_linear_policy_is_explained_as_by_hand() -> None:
    env = env_of(DISCRETE)
    policy = ActorCritic(env.group("agent"), env, MLPConfig(hidden=(), share_parameters=False), MLPConfig(hidden=(4,)))
    weight = torch.randn(N_AGENTS, N_CHOICES, N_FEATURES, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        policy.actor.network.head.weight.copy_(weight)
    moments = moments_of(env, policy)
    x, taken = moments.observations["agent"], moments.action
    chosen = torch.stack([weight[k, taken[:, k]] for k in range(N_AGENTS)], dim=1)  # [row, agent, feature]
    by_hand = {
        "integrated_gradients": chosen * (x - 0.25),
        "deeplift": chosen * (x - 0.25),
        "feature_ablation": chosen * (x - 0.25),
        "input_x_gradient": chosen * x,
        "saliency": chosen.abs(),
    }
    for method, expected in by_hand.items():
        values, _, _ = run(policy, env, moments, resolve_output(DISCRETE, "action", None), method)  # type: ignore[arg-type]
        np.testing.assert_allclose(values, expected.numpy(), atol=3e-6, err_msg=method)


@pytest.mark.parametrize("method", ["integrated_gradients", "deeplift", "feature_ablation", "saliency"])
def test_actors_do_not_depend_on_other_agents_observations(method: str) -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env)
    moments = moments_of(env, policy)
    output = resolve_output(DISCRETE, "action", None)
    values, _, _ = run(policy, env, moments, output, method, sources="all")
    by_source = values.reshape(N_ROWS, N_AGENTS, N_AGENTS, N_FEATURES)
    own, _, _ = run(policy, env, moments, output, method)
    for agent in range(N_AGENTS):
        for source in range(N_AGENTS):
            if agent == source:
                np.testing.assert_allclose(by_source[:, agent, source], own[:, agent], atol=2e-6)
            else:
                assert not by_source[:, agent, source].any()


@pytest.mark.parametrize("shared", [True, False])
def test_a_centralised_value_is_shared_out_over_every_groups_observations(shared: bool) -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env, shared=shared)
    policy.value_norm.update(torch.tensor([-40.0, 12.0, 3.0]))
    moments = moments_of(env, policy)
    values, score, start = run(policy, env, moments, Output("value"), sources="all")
    assert values.shape == (N_ROWS, N_AGENTS, 2 + N_AGENTS * N_FEATURES)
    expected, _ = policy.value(moments.observations)
    np.testing.assert_allclose(score, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(values.sum(-1), score - start, atol=2e-4 * np.abs(score).max())
    assert (np.abs(values).mean(axis=(0, 1)) > 0).all()


def test_a_decentralised_value_does_not_depend_on_others() -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env, centralised=False)
    values, score, start = run(policy, env, moments_of(env, policy), Output("value"), sources="all")
    np.testing.assert_allclose(values.sum(-1), score - start, atol=1e-4)
    by_source = values[..., 2:].reshape(N_ROWS, N_AGENTS, N_AGENTS, N_FEATURES)
    assert not values[..., :2].any()
    assert not by_source[:, 0, 1].any() and by_source[:, 1, 1].any()


def test_the_recorded_recurrent_state_is_held_fixed() -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env, recurrent=True)
    moments = moments_of(env, policy)
    output = resolve_output(DISCRETE, "logit", 0)
    values, _, _ = run(policy, env, moments, output, "saliency")
    row, agent, step = 4, 1, 1e-3
    x = moments.observations["agent"].double()
    network, recurrent = policy.actor.network.double(), moments.recurrent.double()  # type: ignore[union-attr]
    for feature in range(N_FEATURES):
        ends = []
        for sign in (1, -1):
            moved = x.clone()
            moved[row, agent, feature] += sign * step
            ends.append(network(moved, recurrent)[0][row, agent, 0].item())
        assert values[row, agent, feature] == pytest.approx(abs(ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-6)


def test_log_probabilities_in_nats() -> None:
    for action in (DISCRETE, CONTINUOUS):
        env = env_of(action)
        policy = policy_of(env)
        moments = moments_of(env, policy)
        if action is CONTINUOUS:
            moments = RowBatch(moments.observations, moments.action.tanh() * 0.9, moments.acting)
        values, score, start = run(policy, env, moments, resolve_output(action, "log_prob", None))
        parameters = policy.actor.step(moments.observations["agent"])[0].detach()
        if action is DISCRETE:
            expected = parameters.log_softmax(-1).gather(-1, moments.action.unsqueeze(-1)).squeeze(-1)
        else:
            mean, log_std = parameters.chunk(2, dim=-1)
            normal = torch.distributions.Normal(mean, log_std.exp())
            squash = torch.distributions.TanhTransform(cache_size=1)
            density = torch.distributions.TransformedDistribution(normal, [squash])
            expected = density.log_prob(moments.action).sum(-1)
        np.testing.assert_allclose(score, expected.numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(values.sum(-1), score - start, atol=1e-3)


def test_an_agent_that_is_not_acting_has_no_attribution() -> None:
    env = env_of(DISCRETE)
    policy = policy_of(env)
    moments = moments_of(env, policy)
    moments.acting[3:6, 1] = False
    values, score, _ = run(policy, env, moments, resolve_output(DISCRETE, "action", None))
    assert np.isnan(values[3:6, 1]).all() and np.isnan(score[3:6, 1]).all()
    assert np.isfinite(values[3:6, 0]).all()


@pytest.mark.parametrize(
    ("action", "to", "target", "message"),
    [
        (DISCRETE, "logit", None, "needs a target"),
        (DISCRETE, "logit", 4, "no choice 4"),
        (DISCRETE, "action", 2, "to='logit'"),
        (DISCRETE, "logits", None, "did you mean 'logit'"),
        (DISCRETE, "value", 1, "no target"),
        (CONTINUOUS, "action", None, "'push', 'turn'"),
        (CONTINUOUS, "action", "pusch", "did you mean 'push'"),
        (MULTI, "logit", 1, "(component, choice)"),
        (MULTI, "logit", (1, 2), "choices 0 to 1"),
    ],
)
def test_targets_that_do_not_exist_are_rejected(action: ActionSpec, to: str, target: object, message: str) -> None:
    with pytest.raises(AnalysisError, match=message.replace("(", r"\(").replace(")", r"\)")):
        resolve_output(action, to, target)  # type: ignore[arg-type]
