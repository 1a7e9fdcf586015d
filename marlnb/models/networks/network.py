"""Network: the abstract map that keeps the agent axis; MLP, GRU and a user's own are its subclasses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import Site, SiteModule


class Network(nn.Module, ABC):
    """Maps `[..., n_agents, in_features]` to `[..., n_agents, out_features]`.

    Submodules listed in `site_modules` output `[..., n_agents, unit]`.

    Attributes:
        n_agents: length of the agent axis.
        in_features: features of each agent's input.
        out_features: features of each agent's output.
        recurrent_shape: `(layer, unit)` of the state; None for a feed-forward network.
        cross_agent: whether one agent's output may depend on another's input.
        centralised: whether `in_features` counts all agents' inputs.
        shared_forward: one forward pass serves all agents, so the sites have an agent axis of 1.
    """

    n_agents: int
    in_features: int
    out_features: int
    recurrent_shape: tuple[int, int] | None = None
    cross_agent: bool = False
    shared_forward: bool = False
    centralised: bool = False

    @abstractmethod
    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """One time step.

        Args:
            x: `[..., n_agents, in]`, usually `[env, agent, feature]`.
            recurrent: the state before the step, `[..., n_agents, layer, unit]`; None: zero.
        Returns:
            output `[..., n_agents, out]`, and the state after the step (None for a feed-forward network).
        """

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Several time steps; a recurrent network may be faster than `step_by_step`.

        Args:
            x: `[env, time, n_agents, in]`.
            recurrent: the state before the first step, `[env, n_agents, layer, unit]`.
            is_init: `[env, time]` bool, the first steps of episodes: the state is zero there.
            acting: `[env, time, n_agents]` bool; the state of an inactive agent stays unchanged. None: all act.
        Returns:
            outputs `[env, time, n_agents, out]`, and the state after each step
            `[env, time, n_agents, layer, unit]` (None for a feed-forward network).
        """
        return self.forward(x) if self.recurrent_shape is None else self.step_by_step(x, recurrent, is_init, acting)

    def step_by_step(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """What `sequence` returns, by one call of `forward` for each step."""
        outputs, states, state = [], [], recurrent
        for t in range(x.shape[1]):
            entering = None if state is None else state.masked_fill(is_init[:, t, None, None, None], 0.0)
            output, state = self(x[:, t], entering)
            outputs.append(output)
            if state is None:
                continue
            if acting is not None:
                unchanged = torch.zeros_like(state) if entering is None else entering
                state = torch.where(acting[:, t, :, None, None], state, unchanged)
            states.append(state)
        return torch.stack(outputs, dim=1), torch.stack(states, dim=1) if states else None

    @abstractmethod
    def site_modules(self) -> list[SiteModule]:
        """(layer name, submodule, units, kind) of each site, in forward order."""

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        """The sites of a group of `n_agents`, as `<prefix>/<layer>`."""
        return [
            Site(f"{prefix}/{layer}", module, n_agents, n_units, kind, shared_forward or self.shared_forward)
            for layer, module, n_units, kind in self.site_modules()
        ]


class NetworkList(nn.ModuleList):
    """A ModuleList of networks."""

    def __iter__(self) -> Iterator[Network]:
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, index: int) -> Network:  # type: ignore[override]
        return super().__getitem__(index)  # type: ignore[return-value]
