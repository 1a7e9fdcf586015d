"""ModuleNetwork: any nn.Module that agents share, as a Network; its sites are found by running it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, ShapeError, SiteError
from marlnb.models.adapters.naming import chain_names
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.network import Network

TRIAL_ROWS = 7
NO_MEMORY = (
    "where a policy remembers, its state must be an argument: agents_from_module(..., recurrent_shape=(layer, unit)) "
    "takes modules called on (observation, state) that return (output, state), agents_from_torchrl GRUModule and "
    "LSTMModule"
)


@dataclass(frozen=True)
class Fired:
    """A submodule that fired in a trial, and the shape and memory of what it put out."""

    path: str
    module: nn.Module
    output: Tensor
    place: int


class ModuleNetwork(Network):
    """A module called on observations `[batch, agent, *shape]`, which returns `[batch, agent, parameter]`.

    Where it returns a tuple of such, they are laid side by side. One that remembers is called on (observation, state)
    and returns (output, state), the state `[batch, agent, layer, unit]` and zero when an episode begins. The state that
    leaves a step is a site too, `state`, layer after layer: an edit of it enters the next step.

    Its sites are the innermost submodules that fire once and put out `[batch, agent, unit]`: in an `nn.Sequential` of
    linear maps and nonlinearities called hidden_1, hidden_2, ..., head; elsewhere by their path in the module.

    Args:
        shape: one agent's observation; dtype: what the module is to see.
        cross_agent: whether an agent's output may depend on another's input; None: as gradients of a trial tell.
        recurrent_shape: (layer, unit) of the state; None: it has none.
    Raises:
        ShapeError: it puts out something else.
        ConfigError: what it puts out depends on more than the observations of one moment.
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
        self.recurrent_shape, self.leaving = recurrent_shape, nn.Identity()
        self.module, self.n_agents, self.shape, self.dtype = module, n_agents, tuple(shape), dtype
        self.in_features = int(torch.Size(self.shape).numel())
        fired, output, trial = _trial(self)
        _check_moments(self, output, trial)
        self.out_features = output.shape[-1]
        self._sites = _named(module, fired, output, n_agents, may_be_none=recurrent_shape is not None)
        self.cross_agent = _mixes(output, trial) if cross_agent is None else cross_agent

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: observations flattened."""
        lead = x.shape[:-2]
        rows = x.reshape(-1, *x.shape[-2:-1], *self.shape)
        if not (rows.is_floating_point() and self.dtype == torch.uint8):  # bytes as floats can be differentiated
            rows = rows.to(self.dtype)
        if self.recurrent_shape is None:
            output = joined(self.module(rows))
            return output.reshape(*lead, *output.shape[1:]), None
        shape = (*rows.shape[:2], *self.recurrent_shape)
        entering = rows.new_zeros(shape, dtype=torch.float32) if recurrent is None else recurrent.reshape(shape)
        output, after = _with_state(self.module(rows, entering), shape)
        after = self.leaving(after.flatten(-2))
        return output.reshape(*lead, *output.shape[1:]), after.reshape(*lead, *shape[1:])

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        if self.recurrent_shape is None:
            return list(self._sites)
        layers, units = self.recurrent_shape
        return [*self._sites, ("state", self.leaving, layers * units, "recurrent")]


def joined(output: Tensor | Sequence[Tensor]) -> Tensor:
    """A module's output as one tensor: several lie side by side along the last axis."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, (tuple, list)) and output and all(isinstance(part, Tensor) for part in output):
        if len({tuple(part.shape[:-1]) for part in output}) > 1:
            raise ShapeError(
                f"a tuple of tensors is laid side by side, [batch, agent, parameter] each; got "
                f"{[list(part.shape) for part in output]}. If one is a state, the module remembers: {NO_MEMORY}"
            )
        return torch.cat(list(output), dim=-1)
    raise ShapeError(f"a policy's module must return a tensor or a tuple of tensors; got {type(output).__name__}")


def _with_state(result: object, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The output and the state of a module that remembers."""
    if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[1], Tensor):
        if tuple(result[1].shape) != shape:
            raise ShapeError(f"a state {list(shape)} entered, and one of shape {list(result[1].shape)} left the module")
        return joined(result[0]), result[1]
    raise ShapeError(f"a module with recurrent_shape= must return (output, state); got {type(result).__name__}")


def _trial(network: ModuleNetwork) -> tuple[list[Fired], Tensor, tuple[Tensor, ...]]:
    """One forward of random observations, gradients on: what fired, the output, and the input (with its state)."""
    fired: list[Fired] = []
    device = next((p.device for p in network.module.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    rows = TRIAL_ROWS if network.n_agents != TRIAL_ROWS else TRIAL_ROWS + 1
    x = torch.rand(rows, network.n_agents, network.in_features, generator=generator)
    x = (x if network.dtype.is_floating_point else (255 * x).to(network.dtype)).to(device)
    if network.dtype.is_floating_point:
        x.requires_grad_()
    inputs: tuple[Tensor, ...] = (x,)
    if network.recurrent_shape is not None:
        state = torch.rand(rows, network.n_agents, *network.recurrent_shape, generator=generator).to(device)
        inputs = (x, state.requires_grad_())

    def note(path: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                fired.append(Fired(path, module, output, output.data_ptr()))

        return hook

    training = network.module.training
    hooks = [module.register_forward_hook(note(path)) for path, module in network.module.named_modules()]  # type: ignore[arg-type]
    try:
        with torch.enable_grad():
            output = network.eval()(*inputs)[0]
    except ShapeError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ShapeError(
            f"{type(network.module).__name__} cannot be called on {[rows, network.n_agents, *network.shape]}, "
            f"[batch, agent, *observation]: {error}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
        network.train(training)
    if output.ndim != 3 or output.shape[:2] != (rows, network.n_agents):
        raise ShapeError(
            f"{type(network.module).__name__} must return [batch, agent, parameter]; for observations of batch {rows} "
            f"and {network.n_agents} agents it returned {list(output.shape)}"
        )
    return fired, output, inputs


@torch.no_grad()
def _check_moments(network: ModuleNetwork, output: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Asks for the last row again, by itself: what remembers, draws at random or mixes rows answers otherwise."""
    training = network.module.training
    try:
        again = network.eval()(*(given[-1:].detach() for given in inputs))[0]
        same = torch.allclose(again, output[-1:], rtol=1e-3, atol=1e-4)
    except RuntimeError:  # a state of another batch's size
        same = False
    finally:
        network.train(training)
    if not same:
        raise ConfigError(
            f"{type(network.module).__name__} answers otherwise when the same observations come again by themselves: "
            f"it remembers, draws at random, or mixes the rows of a batch; {NO_MEMORY}"
        )


def check_forgets(module: nn.Module, group: str) -> None:
    """Raises ConfigError where a policy from elsewhere has layers that remember."""
    layers = (nn.RNNBase, nn.RNNCellBase)
    recurrent = sorted({type(layer).__name__ for layer in module.modules() if isinstance(layer, layers)})
    if recurrent:
        raise ConfigError(f"the policy of {group!r} has {', '.join(recurrent)} layers; {NO_MEMORY}")


def _named(
    module: nn.Module, fired: list[Fired], output: Tensor, n_agents: int, *, may_be_none: bool = False
) -> list[tuple[str, nn.Module, int, SiteKind]]:
    innermost = [item for item in fired if not list(item.module.children())]
    times: dict[int, int] = {}
    for item in innermost:
        times[id(item.module)] = times.get(id(item.module), 0) + 1
    kept = []
    for place, item in enumerate(innermost):
        follower = innermost[place + 1].place if place + 1 < len(innermost) else None
        seen = tuple(item.output.shape[:-1]) == (len(output), n_agents) and item.output.ndim == 3
        # what a module that works in place has overwritten would be recorded as what came after
        if seen and times[id(item.module)] == 1 and item.place != follower:
            kept.append(item)
    if not kept and may_be_none:
        return []
    if not kept:
        raise SiteError(
            f"no submodule of {type(module).__name__} puts out [batch, agent, unit] once a call, so nothing is seen; "
            f"found: {sorted({f'{item.path} {list(item.output.shape)}' for item in innermost}) or 'none'}"
        )
    names = chain_names(module, [item.module for item in kept])
    if names is None:
        names = {index: item.path or "output" for index, item in enumerate(kept)}
    last = output.data_ptr()
    return [
        (
            names[index],
            item.module,
            item.output.shape[-1],
            "head" if names[index] == "head" or item.place == last else "hidden",
        )
        for index, item in enumerate(kept)
        if index in names
    ]


@torch.enable_grad()
def _mixes(output: Tensor, inputs: tuple[Tensor, ...]) -> bool:
    """Whether any agent's output has a gradient at another's input or state; True if gradients are not available."""
    n_agents = inputs[0].shape[1]
    known = [given for given in inputs if given.requires_grad]
    if not output.requires_grad or len(known) < len(inputs):
        return n_agents > 1
    for agent in range(n_agents):
        others = torch.arange(n_agents) != agent
        for gradient in torch.autograd.grad(output[:, agent].sum(), known, retain_graph=True, allow_unused=True):
            if gradient is not None and bool((gradient.abs().transpose(0, 1).flatten(1).sum(1) > 0)[others].any()):
                return True
    return False
