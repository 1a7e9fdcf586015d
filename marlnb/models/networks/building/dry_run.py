"""The parts of a dry run: random inputs, the submodules that are called, and the shape that the output must have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from marlnb.models.networks.network import Network

DRY_RUN_ROWS = 7
SAME = 1e-6
MIN_SCALE = 1e-2
"""Differences of smaller values are compared with this one, since they may be rounding of larger ones before them."""


@dataclass(frozen=True)
class ModuleCall:
    """One call of a submodule in the dry run.

    Attributes:
        path: the submodule's name in the network.
        module: the submodule.
        output: what it returned.
        data_ptr: memory address of the output's data.
    """

    path: str
    module: nn.Module
    output: Tensor
    data_ptr: int


def random_inputs(network: Network, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Inputs `[row, agent, in]`, and the state `[row, agent, layer, unit]` of a recurrent network, uniform in [0, 1).

    There are more rows than one, and not as many as agents. torch's global generator is left as it is.

    Args:
        dtype: of the inputs; integers are uniform in [0, 255).
    """
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    rows = DRY_RUN_ROWS if network.n_agents != DRY_RUN_ROWS else DRY_RUN_ROWS + 1
    x = torch.rand(rows, network.n_agents, network.in_features, generator=generator)
    x = (x if dtype.is_floating_point else (255 * x).to(dtype)).to(device)
    if network.recurrent_shape is None:
        return (x,)
    return x, torch.rand(rows, network.n_agents, *network.recurrent_shape, generator=generator).to(device)


@contextmanager
def recorded_calls(module: nn.Module) -> Iterator[list[ModuleCall]]:
    """Inside the block, calls of the submodules that return a tensor are appended to the list."""
    calls: list[ModuleCall] = []

    def recorder(path: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                calls.append(ModuleCall(path, module, output, output.data_ptr()))

        return hook

    hooks = [child.register_forward_hook(recorder(path)) for path, child in module.named_modules()]  # type: ignore[arg-type]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def reads_other_agents(network: Network, inputs: tuple[Tensor, ...]) -> bool:
    """Whether an agent's output, or its next state, changes with another agent's input or state.

    Half of the agents are given the inputs of another row, and the others' outputs are compared. Any two agents differ
    in a bit of their indices, so that two such halves for each bit test every pair.

    Args:
        inputs: `[row, agent, in]`, and the state `[row, agent, layer, unit]` of a recurrent network.
    """
    n_agents = inputs[0].shape[1]
    index, before = torch.arange(n_agents, device=inputs[0].device), network(*inputs)
    for bit in range((n_agents - 1).bit_length()):
        for half in (0, 1):
            is_given = (index >> bit) % 2 == half
            given = [tensor.clone() for tensor in inputs]
            for tensor, rolled in zip(given, inputs):
                tensor[:, is_given] = rolled.roll(1, 0)[:, is_given]
            for values, earlier in zip(network(*given), before):
                others = ~is_given
                if earlier is not None and largest_difference(values[:, others], earlier[:, others]) > SAME:
                    return True
    return False


def largest_difference(values: Tensor, expected: Tensor) -> float:
    """The largest absolute difference as a share of the largest expected value; NaN counts as no difference."""
    if not values.numel():
        return 0.0
    difference = (values - expected).abs().nan_to_num(0.0).max().item()
    return difference / max(MIN_SCALE, expected.abs().nan_to_num(0.0).max().item())


def shown(value: object) -> str:
    """A short description of what a network returned."""
    if isinstance(value, tuple | list):
        return f"({', '.join(shown(item) for item in value)})"
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def wrong_shape(output: Tensor, inputs: Tensor, width: int | None = None) -> str:
    """What is wrong with an output that must be `[row, agent, feature]`; empty if nothing is.

    Args:
        inputs: `[row, agent, in]`.
        width: the number of features; None: any.
    """
    rows, n_agents = inputs.shape[:2]
    if output.ndim == 3 and output.shape[:2] == (rows, n_agents) and width in (None, output.shape[2]):
        return ""
    feature = "parameter" if width is None else width
    return f"must return [batch, agent, parameter] = [{rows}, {n_agents}, {feature}]; got {list(output.shape)}"
