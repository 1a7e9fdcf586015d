"""ModuleNetwork: any nn.Module that agents share, as a Network. A dry run finds its sites."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, ShapeError, SiteError
from marlnb.models.adapters.naming import chain_names
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.building.dry_run import (
    ModuleCall,
    random_inputs,
    reads_other_agents,
    recorded_calls,
    wrong_shape,
)
from marlnb.models.networks.modes import in_mode
from marlnb.models.networks.network import Network

RECURRENT_HINT = (
    "a recurrent policy takes its state as an argument: agents_from_module(..., recurrent_shape=(layer, unit)) expects "
    "a module called on (observation, state) that returns (output, state); agents_from_torchrl supports GRUModule and "
    "LSTMModule"
)


class ModuleNetwork(Network):
    """A module called on observations `[batch, agent, *shape]`, which returns `[batch, agent, parameter]`.

    A tuple of such outputs is concatenated along the last axis. A recurrent module is called on (observation, state)
    and returns (output, state). The state is `[batch, agent, layer, unit]`, and zero at the start of an episode. The
    site `state` is the next state with its layers concatenated. An edit of it changes the input of the next step.

    Sites are the leaf submodules that are called once and return `[batch, agent, unit]`. In an `nn.Sequential` of
    linear maps and nonlinearities they are hidden_1, hidden_2, ..., head; elsewhere they have their submodule's path.

    Args:
        module: the module.
        n_agents: number of agents that share it.
        shape: of one agent's observation.
        dtype: of the observations that the module is called on.
        cross_agent: whether an agent's output can depend on another agent's input; None: tested by changing inputs.
        recurrent_shape: (layer, unit) of the state; None: the module has no state.
    Raises:
        ShapeError: the output has another shape.
        ConfigError: the output depends on more than the current observations.
        SiteError: no submodule has an output with an agent axis.
    """

    def __init__(
        self,
        module: nn.Module,
        n_agents: int,
        shape: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        cross_agent: bool | None = None,
        recurrent_shape: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.recurrent_shape, self.state_output = recurrent_shape, nn.Identity()
        self.module, self.n_agents, self.shape, self.dtype = module, n_agents, tuple(shape), dtype
        self.in_features = int(torch.Size(self.shape).numel())
        calls, output, inputs = _dry_run(self)
        _check_moments(self, output, inputs)
        self.out_features = output.shape[-1]
        self._sites = _named_sites(module, calls, output, n_agents, allow_empty=recurrent_shape is not None)
        self.cross_agent = _is_cross_agent(self, inputs) if cross_agent is None else cross_agent

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: observations flattened."""
        lead = x.shape[:-2]
        rows = x.reshape(-1, *x.shape[-2:-1], *self.shape)
        # floats instead of uint8 images are not converted, so that they keep their gradients
        if not (rows.is_floating_point() and self.dtype == torch.uint8):
            rows = rows.to(self.dtype)
        if self.recurrent_shape is None:
            output = joined(self.module(rows))
            return output.reshape(*lead, *output.shape[1:]), None
        shape = (*rows.shape[:2], *self.recurrent_shape)
        state = rows.new_zeros(shape, dtype=torch.float32) if recurrent is None else recurrent.reshape(shape)
        output, next_state = _with_state(self.module(rows, state), shape)
        next_state = self.state_output(next_state.flatten(-2))
        return output.reshape(*lead, *output.shape[1:]), next_state.reshape(*lead, *shape[1:])

    def site_modules(self) -> list[SiteModule]:
        if self.recurrent_shape is None:
            return list(self._sites)
        layers, units = self.recurrent_shape
        return [*self._sites, ("state", self.state_output, layers * units, "recurrent")]


def joined(output: Tensor | Sequence[Tensor]) -> Tensor:
    """A module's output as one tensor: a tuple is concatenated along the last axis."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, (tuple, list)) and output and all(isinstance(part, Tensor) for part in output):
        if len({tuple(part.shape[:-1]) for part in output}) > 1:
            raise ShapeError(
                f"expected a tuple of tensors [batch, agent, parameter]; got shapes "
                f"{[list(part.shape) for part in output]}. If one is a state, the module is recurrent: {RECURRENT_HINT}"
            )
        return torch.cat(list(output), dim=-1)
    raise ShapeError(f"expected a module that returns a tensor or a tuple of tensors; got {type(output).__name__}")


def _with_state(result: object, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The output and the next state of a recurrent module."""
    if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[1], Tensor):
        if tuple(result[1].shape) != shape:
            raise ShapeError(f"expected a next state of shape {list(shape)}; got {list(result[1].shape)}")
        return joined(result[0]), result[1]
    raise ShapeError(f"a module with recurrent_shape= must return (output, state); got {type(result).__name__}")


@torch.no_grad()
def _dry_run(network: ModuleNetwork) -> tuple[list[ModuleCall], Tensor, tuple[Tensor, ...]]:
    """A dry run on random observations: the submodules called, the output, and the inputs."""
    inputs = random_inputs(network, network.dtype)
    try:
        with in_mode([network], training=False), recorded_calls(network.module) as calls:
            output = network(*inputs)[0]
    except ShapeError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ShapeError(
            f"{type(network.module).__name__} cannot be called on observations [batch, agent, *observation] of shape "
            f"{[*inputs[0].shape[:2], *network.shape]}: {error}"
        ) from error
    if problem := wrong_shape(output, inputs[0]):
        raise ShapeError(f"{type(network.module).__name__} {problem}")
    return calls, output, inputs


@torch.no_grad()
def _check_moments(network: ModuleNetwork, output: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Raises ConfigError if the last row alone has another output: the module has state, is random, or mixes rows."""
    try:
        with in_mode([network], training=False):
            output_alone = network(*(tensor[-1:] for tensor in inputs))[0]
        same = torch.allclose(output_alone, output[-1:], rtol=1e-3, atol=1e-4)
    except RuntimeError:  # its internal state has another batch size
        same = False
    if not same:
        raise ConfigError(
            f"{type(network.module).__name__} returns another output when one row of the batch is passed alone: it has "
            f"an internal state, is random, or mixes the rows of a batch; {RECURRENT_HINT}"
        )


def check_feed_forward(module: nn.Module, group: str) -> None:
    """Raises ConfigError if a module has recurrent layers."""
    layers = (nn.RNNBase, nn.RNNCellBase)
    recurrent = sorted({type(layer).__name__ for layer in module.modules() if isinstance(layer, layers)})
    if recurrent:
        raise ConfigError(f"the policy of {group!r} has {', '.join(recurrent)} layers; {RECURRENT_HINT}")


def _named_sites(
    module: nn.Module, calls: list[ModuleCall], output: Tensor, n_agents: int, *, allow_empty: bool = False
) -> list[SiteModule]:
    leaf_calls = [item for item in calls if not list(item.module.children())]
    n_calls: dict[int, int] = {}
    for item in leaf_calls:
        n_calls[id(item.module)] = n_calls.get(id(item.module), 0) + 1
    recordable = []
    for position, item in enumerate(leaf_calls):
        next_address = leaf_calls[position + 1].data_ptr if position + 1 < len(leaf_calls) else None
        has_agent_axis = tuple(item.output.shape[:-1]) == (len(output), n_agents) and item.output.ndim == 3
        # an in-place module overwrites the previous output, which would be recorded with the wrong values
        if has_agent_axis and n_calls[id(item.module)] == 1 and item.data_ptr != next_address:
            recordable.append(item)
    if not recordable and allow_empty:
        return []
    if not recordable:
        raise SiteError(
            f"no submodule of {type(module).__name__} returns [batch, agent, unit] exactly once per call, so there is "
            f"no site; found: {sorted({f'{item.path} {list(item.output.shape)}' for item in leaf_calls}) or 'none'}"
        )
    names = chain_names(module, [item.module for item in recordable])
    if names is None:
        names = {index: item.path or "output" for index, item in enumerate(recordable)}
    output_address = output.data_ptr()
    return [
        (
            names[index],
            item.module,
            item.output.shape[-1],
            "head" if names[index] == "head" or item.data_ptr == output_address else "hidden",
        )
        for index, item in enumerate(recordable)
        if index in names
    ]


@torch.no_grad()
def _is_cross_agent(network: ModuleNetwork, inputs: tuple[Tensor, ...]) -> bool:
    with in_mode([network], training=False):
        return reads_other_agents(network, inputs)
