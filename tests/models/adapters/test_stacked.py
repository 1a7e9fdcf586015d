"""torchrl's multi-agent networks on layers with an agent axis: equal to torchrl's, and to each agent's by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchrl.modules import MultiAgentConvNet, MultiAgentMLP

from marlnb.errors import ConfigError
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.stacked import stacked
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate, Scale
from marlnb.models.policies.distributions import Categorical
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec

GROUP = GroupSpec("walker", ("walker_0", "walker_1", "walker_2"), ObservationSpec((6,)), ActionSpec("discrete", (5,)))
KINDS = [(shared, central) for shared in (True, False) for central in (True, False)]
NAMES = ["shared, central", "shared, decentral", "unshared, central", "unshared, decentral"]
ATOL = 1e-6

pytestmark = pytest.mark.filterwarnings("ignore")  # torchrl's and vmap's own


@pytest.fixture(params=KINDS, ids=NAMES)
def net(request: pytest.FixtureRequest) -> MultiAgentMLP:
    shared, central = request.param
    torch.manual_seed(0)
    return MultiAgentMLP(
        n_agent_inputs=6, n_agent_outputs=5, n_agents=3, centralised=central, share_params=shared, num_cells=[16, 8]
    )


@pytest.fixture
def seen() -> Tensor:
    return torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(1))


def policy_of(net: MultiAgentMLP) -> ExternalPolicy:
    return ExternalPolicy(GROUP, stacked(net, (6,)), Categorical(5))


def unrolled(net: MultiAgentMLP, seen: Tensor, agent: int) -> Iterator[Tensor]:
    """What each layer of one agent's network puts out, by plain matrix products: `[batch, unit]`."""
    x = seen.flatten(1) if net.centralized else seen[:, agent]
    for layer in (0, 2, 4):
        weight, bias = net.params[str(layer), "weight"], net.params[str(layer), "bias"]
        if not net.share_params:
            weight, bias = weight[agent], bias[agent]
        x = x @ weight.T + bias
        x = x if layer == 4 else x.tanh()
        yield x


def test_outputs_and_sites_are_those_of_each_agent_by_itself(net: MultiAgentMLP, seen: Tensor) -> None:
    policy = policy_of(net)
    with capture(policy) as activations:
        logits, _ = policy.logits(seen)
    torch.testing.assert_close(logits, net(seen), atol=ATOL, rtol=0)
    assert list(activations) == ["walker/actor/hidden_1", "walker/actor/hidden_2", "walker/actor/head"]
    for agent in range(3):
        for site, expected in zip(activations.values(), unrolled(net, seen, agent)):
            torch.testing.assert_close(site[:, agent], expected.detach(), atol=ATOL, rtol=0)


def test_parameters_are_torchrls_own(net: MultiAgentMLP, seen: Tensor) -> None:
    policy = policy_of(net)
    before = policy.logits(seen)[0]
    with torch.no_grad():
        net.params["0", "weight"].mul_(2.0)  # as a training step would
    after = policy.logits(seen)[0]
    torch.testing.assert_close(after, net(seen), atol=ATOL, rtol=0)
    assert (after - before).abs().max() > 0.01


def test_who_sees_whom(net: MultiAgentMLP, seen: Tensor) -> None:
    policy = policy_of(net)
    assert policy.cross_agent == net.centralized
    seen = seen.clone().requires_grad_()
    logits, _ = policy.logits(seen)
    (gradient,) = torch.autograd.grad(logits[:, 0].sum(), seen)
    assert (gradient[:, 1:].abs().sum() > 0) == net.centralized
    if not net.centralized:
        assert (gradient[:, 1:] == 0).all()


def test_an_identity_edit_changes_nothing(net: MultiAgentMLP, seen: Tensor) -> None:
    policy = policy_of(net)
    plain = policy.logits(seen)[0]
    with edited(policy, [Scale("walker/actor/hidden_*", factor=1.0)]):
        assert torch.equal(policy.logits(seen)[0], plain)
    assert torch.equal(policy.logits(seen)[0], plain)


def test_ablating_one_agent_leaves_the_others_alone(net: MultiAgentMLP, seen: Tensor) -> None:
    policy = policy_of(net)
    if net.centralized and net.share_params:
        with (
            pytest.raises(Exception, match="one forward pass for all"),
            edited(policy, [Ablate("*/hidden_1", agents=(1,))]),
        ):
            pass
        return
    plain = policy.logits(seen)[0]
    with edited(policy, [Ablate("*/hidden_1", agents=("walker_1",))]):
        changed = policy.logits(seen)[0]
    assert torch.equal(changed[:, [0, 2]], plain[:, [0, 2]])
    assert (changed[:, 1] - plain[:, 1]).abs().max() > 1e-3
    weight, bias = (
        net.params["2", "weight"],
        net.params["2", "bias"],
    )
    # by hand: of a hidden_1 of nothing, hidden_2 is the tanh of its bias
    own = bias if net.share_params else bias[1]
    out = net.params["4", "weight"] if net.share_params else net.params["4", "weight"][1]
    shift = net.params["4", "bias"] if net.share_params else net.params["4", "bias"][1]
    assert weight.shape[-2:] == (8, 16)
    torch.testing.assert_close(changed[:, 1], (own.tanh() @ out.T + shift).expand(4, 5), atol=ATOL, rtol=0)


def test_captum_walks_it(net: MultiAgentMLP, seen: Tensor) -> None:
    from captum.attr import DeepLift, IntegratedGradients, LayerActivation

    policy = policy_of(net)

    class FirstAgent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, x: Tensor) -> Tensor:
            return self.policy.logits(x)[0][:, 0]

    wrapped, zero = FirstAgent(), torch.zeros_like(seen)
    change = (wrapped(seen) - wrapped(zero))[:, 2]
    for method in (IntegratedGradients(wrapped), DeepLift(wrapped)):
        values = method.attribute(seen, zero, target=2)
        torch.testing.assert_close(values.sum((1, 2)), change, atol=2e-4, rtol=0)
        assert net.centralized or (values[:, 1:] == 0).all()
    layer = policy.sites()[1].module
    shown = LayerActivation(wrapped, layer).attribute(seen)
    rows = 1 if policy.sites()[1].shared_forward else 3
    assert isinstance(shown, Tensor) and shown.shape == (4, rows, 8)


@pytest.mark.parametrize(("shared", "central"), KINDS, ids=NAMES)
def test_convolutions(shared: bool, central: bool) -> None:
    torch.manual_seed(0)
    net = MultiAgentConvNet(
        n_agents=3, centralised=central, share_params=shared, in_features=2, num_cells=[4, 6], kernel_sizes=3
    )
    images = torch.randn(2, 3, 2, 11, 11)  # strides of 2: 11, 5, 2
    expected = net(images)
    made = stacked(net, (2, 11, 11))
    torch.testing.assert_close(made(images.flatten(2))[0], expected, atol=ATOL, rtol=0)
    assert [(name, units) for name, _, units, _ in made.site_modules()] == [("hidden_2", 6 * 2 * 2)]


@pytest.mark.parametrize("shared", [True, False])
def test_normalised_layers_without_bias(shared: bool, seen: Tensor) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"norm_class": nn.LayerNorm, "norm_kwargs": {"normalized_shape": 16}}
    net = MultiAgentMLP(
        n_agent_inputs=6,
        n_agent_outputs=5,
        n_agents=3,
        centralised=False,
        share_params=shared,
        num_cells=[16],
        activation_class=nn.ReLU,
        bias_last_layer=False,
        **options,
    )
    for tensor in net.params.values(True, True):
        tensor.data.add_(0.1 * torch.randn_like(tensor))  # a norm of ones and zeros would hide a mistake
    torch.testing.assert_close(stacked(net, (6,))(seen)[0], net(seen), atol=ATOL, rtol=0)


def test_a_network_that_was_never_run_is_refused() -> None:
    lazy = MultiAgentMLP(
        n_agent_inputs=None, n_agent_outputs=5, n_agents=3, centralised=False, share_params=True, num_cells=[8]
    )
    with pytest.raises(ConfigError, match="do not exist yet"):
        stacked(lazy, (6,))


def test_a_copy_of_a_policy_is_its_own(seen: Tensor, net: MultiAgentMLP) -> None:
    policy = policy_of(net)
    twin = copy.deepcopy(policy)
    with torch.no_grad():
        net.params["0", "weight"].zero_()
    assert (twin.logits(seen)[0] - policy.logits(seen)[0]).abs().max() > 1e-3
