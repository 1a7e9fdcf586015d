"""Builds the network of a config. A user's own kind is checked by a dry run, so that mistakes show before training."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.errors import ConfigError
from marlnb.models.networks.agent_id import AgentId
from marlnb.models.networks.building.dry_run import (
    SAME,
    ModuleCall,
    largest_difference,
    random_inputs,
    reads_other_agents,
    recorded_calls,
    shown,
    wrong_shape,
)
from marlnb.models.networks.building.sequence_check import sequence_problem
from marlnb.models.networks.low_precision import LowPrecision, full_precision
from marlnb.models.networks.modes import in_mode
from marlnb.models.networks.network import Network
from marlnb.plugins import user_code
from marlnb.specs import InputSpec


def build_network(config: ModelConfig, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
    """As `config.build`. torch's global generator is as that leaves it, whether there is a dry run or not.

    Raises:
        ConfigError: this kind of network cannot read inputs of this shape, or is not what `Network` describes.
    """
    network = config.build(n_agents, inputs, out_features)
    if not type(config).__module__.startswith("marlnb."):
        for problem in network_problems(config, network, n_agents, inputs.features, out_features):
            raise ConfigError(f"model {config.name!r}: {problem}")
    return network


def network_problems(
    config: ModelConfig, network: Network, n_agents: int, in_features: int, out_features: int
) -> Iterator[str]:
    """What differs from the description of `Network`, the most basic first; nothing if a dry run is as it should be.

    The dry run is one of a copy, so that the network itself keeps its buffers and attributes.
    """
    name = _name(network)
    if not isinstance(network, Network):
        yield f"its network must be a subclass of marlnb's Network; got {name}"
        return
    for attribute, expected in (("n_agents", n_agents), ("in_features", in_features), ("out_features", out_features)):
        if (value := getattr(network, attribute, None)) != expected:
            yield f"{name}.{attribute} must be {expected}, what it was built for; got {value}"
    if config.recurrent != (network.recurrent_shape is not None):
        yield (
            f"{name}.recurrent_shape is {network.recurrent_shape}, but `recurrent` of {type(config).__name__} is "
            f"{config.recurrent}; a recurrent network has a shape (layer, unit), and its config returns True"
        )
    tried = _copy_of(network)
    inputs = random_inputs(tried)
    before = inputs[0].clone()
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), recorded_calls(tried) as calls:
            returned = tried(*inputs)
    except Exception as error:
        yield f"{name}.forward failed on inputs [batch, agent, feature] of shape {list(before.shape)}: {_cause(error)}"
        return
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Tensor)):
        yield f"{name}.forward must return (output, state), with the state None if it has none; got {shown(returned)}"
        return
    output, state = returned
    if problem := wrong_shape(output, inputs[0], out_features):
        yield f"{name}.forward {problem}"
    expected_state = None if network.recurrent_shape is None else [*before.shape[:2], *network.recurrent_shape]
    if (list(state.shape) if isinstance(state, Tensor) else state) != expected_state:
        yield f"{name}.forward must return the state {expected_state} as its second value; got {shown(state)}"
    if not torch.equal(inputs[0], before):
        yield (
            f"{name}.forward changes its input in place, which recordings and other networks read as well; "
            "compute a new tensor, as x = x / 2 instead of x /= 2"
        )
    yield from _site_problems(tried, calls, inputs[0])
    yield from _gradient_problems(tried, [tensor for tensor in (output, state) if tensor is not None])
    if problem := _problem_in_eval_mode(tried, inputs):
        yield problem


def _copy_of(network: Network) -> Network:
    try:
        return deepcopy(network)
    except RuntimeError:  # torch copies no tensors that are the result of a computation, such as those of weight_norm
        return network


@torch.no_grad()
def _problem_in_eval_mode(network: Network, inputs: tuple[Tensor, ...]) -> str:
    """What is wrong with several steps, or with the declared dependence on other agents; empty if nothing is."""
    name = _name(network)
    with in_mode([network], training=False), full_precision(network), torch.random.fork_rng(devices=[]):
        try:
            first, second = network(*inputs)[0], network(*inputs)[0]
        except Exception as error:
            return f"{name}.forward failed in eval mode: {_cause(error)}"
        is_reproducible = largest_difference(second, first) <= SAME  # not if it draws random numbers in eval mode
        try:
            problem = sequence_problem(network, inputs[0], compare_values=is_reproducible)
        except Exception as error:
            return f"{name}.sequence failed on inputs [env, time, agent, feature]: {_cause(error)}"
        if problem:
            return f"{name}.sequence {problem}"
        if is_reproducible and not network.cross_agent and reads_other_agents(network, inputs):
            return (
                f"an agent's output depends on another agent's input, but {name}.cross_agent is False. If agents "
                "should read one another, set self.cross_agent = True in its __init__, so that analyses know of it; if "
                "not, let forward keep their values apart"
            )
    return ""


def _name(network: Network) -> str:
    """Of the user's own class, where marlnb's options have wrapped it."""
    while isinstance(network, AgentId | LowPrecision):
        network = network.inner
    return type(network).__name__


def _cause(error: Exception) -> str:
    return user_code.describe_error(error, or_library=True) or f"{type(error).__name__}: {error}"


def _site_problems(network: Network, calls: list[ModuleCall], inputs: Tensor) -> Iterator[str]:
    """Of sites whose modules are not called, or whose outputs have other axes."""
    n_rows, n_agents = inputs.shape[0], 1 if network.shared_forward else inputs.shape[1]
    for layer, module, n_units, _ in network.site_modules():
        shapes = [list(call.output.shape) for call in calls if call.module is module]
        site = f"site {layer!r} of `site_modules`"
        if not shapes:
            yield f"{site}: forward calls its {type(module).__name__} never, or that returns no tensor"
        for shape in shapes:
            if shape != [n_rows, n_agents, n_units]:
                yield (
                    f"{site}: expected a module that returns [batch, agent, unit] = {[n_rows, n_agents, n_units]}; "
                    f"its {type(module).__name__} returns {shape}"
                )


def _gradient_problems(network: Network, outputs: list[Tensor]) -> Iterator[str]:
    """Of parameters that would be trained, but that the outputs do not depend on."""
    trained = {path: weight for path, weight in network.named_parameters() if weight.requires_grad}
    if not trained:
        yield "it has no parameter that can be trained; agents that do not learn have the algorithm frozen or scripted"
        return
    differentiable = [output.sum() for output in outputs if output.requires_grad]
    if not differentiable:
        yield "its output has no gradient; compute it with torch's operators, without detach, no_grad or numpy"
        return
    gradients = torch.autograd.grad(differentiable, list(trained.values()), allow_unused=True)
    unused = [path for path, gradient in zip(trained, gradients) if gradient is None]
    if unused:
        yield (
            f"its output does not depend on the parameters {', '.join(unused)}; use them in forward, remove them, or "
            "freeze them with requires_grad_(False)"
        )
