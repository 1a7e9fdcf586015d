"""ModuleNetwork: any nn.Module that agents share, as a Network; its sites are found by running it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, ShapeError, SiteError
from marlnb.models.foreign.naming import chain_names
from marlnb.models.network import Network
from marlnb.models.sites import SiteKind

TRIAL_ROWS = 7
NO_MEMORY = "recurrent policies from elsewhere are not read, only those whose output is a function of one observation"


@dataclass(frozen=True)
class Fired:
    """A submodule that fired in a trial, and the shape and memory of what it put out."""

    path: str
    module: nn.Module
    output: Tensor
    place: int


class ModuleNetwork(Network):
    """A module called on observations `[batch, agent, *shape]`, which returns `[batch, agent, parameter]`.

    Where it returns a tuple of such, they are laid side by side.

    Its sites are the innermost submodules that fire once and put out `[batch, agent, unit]`: in an `nn.Sequential` of
    linear maps and nonlinearities called hidden_1, hidden_2, ..., head; elsewhere by their path in the module.

    Args:
        shape: one agent's observation; dtype: what the module is to see.
        mixes_agents: whether an agent's output may depend on another's input; None: as gradients of a trial tell.
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
        mixes_agents: bool | None = None,
    ) -> None:
        super().__init__()
        self.module, self.n_agents, self.shape, self.dtype = module, n_agents, tuple(shape), dtype
        self.in_features = int(torch.Size(self.shape).numel())
        fired, output, trial = _trial(self)
        _check_moments(self, output, trial)
        self.out_features = output.shape[-1]
        self._sites = _named(module, fired, output, n_agents)
        self.mixes_agents = _mixes(output, trial) if mixes_agents is None else mixes_agents

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: observations flattened."""
        lead = x.shape[:-2]
        output = joined(self.module(x.reshape(-1, *x.shape[-2:-1], *self.shape).to(self.dtype)))
        return output.reshape(*lead, *output.shape[1:]), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return list(self._sites)


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


def _trial(network: ModuleNetwork) -> tuple[list[Fired], Tensor, Tensor]:
    """One forward of random observations, gradients on: what fired, the output and the input."""
    fired: list[Fired] = []
    device = next((p.device for p in network.module.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    rows = TRIAL_ROWS if network.n_agents != TRIAL_ROWS else TRIAL_ROWS + 1
    x = torch.rand(rows, network.n_agents, network.in_features, generator=generator)
    x = (x if network.dtype.is_floating_point else (255 * x).to(network.dtype)).to(device)
    if network.dtype.is_floating_point:
        x.requires_grad_()

    def note(path: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                fired.append(Fired(path, module, output, output.data_ptr()))

        return hook

    training = network.module.training
    hooks = [module.register_forward_hook(note(path)) for path, module in network.module.named_modules()]  # type: ignore[arg-type]
    try:
        with torch.enable_grad():
            output = network.eval()(x)[0]
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
    return fired, output, x


@torch.no_grad()
def _check_moments(network: ModuleNetwork, output: Tensor, x: Tensor) -> None:
    """Asks for the last row again, by itself: what remembers, draws at random or mixes rows answers otherwise."""
    training = network.module.training
    try:
        again = network.eval()(x[-1:].detach())[0]
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
    found = sorted({type(layer).__name__ for layer in module.modules() if isinstance(layer, layers)})
    if found:
        raise ConfigError(f"the policy of {group!r} has {', '.join(found)} layers; {NO_MEMORY}")


def _named(
    module: nn.Module, fired: list[Fired], output: Tensor, n_agents: int
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
def _mixes(output: Tensor, x: Tensor) -> bool:
    """Whether any agent's output has a gradient at another's input; True where none can be had."""
    if not output.requires_grad or not x.requires_grad:
        return x.shape[1] > 1
    for agent in range(x.shape[1]):
        (gradient,) = torch.autograd.grad(output[:, agent].sum(), x, retain_graph=True, allow_unused=True)
        if gradient is not None and bool((gradient.abs().sum((0, 2)) > 0)[torch.arange(x.shape[1]) != agent].any()):
            return True
    return False
