"""Network: the abstract map that keeps the agent axis; MLP, GRU and a user's own are its subclasses."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from marlnb.models.hooks.sites import Site, SiteKind


class Network(nn.Module, ABC):
    """Maps `[..., n_agents, in_features]` to `[..., n_agents, out_features]`.

    `recurrent_shape` is `(layer, unit)`, None for a feed-forward network. Submodules named in `site_modules` output
    `[..., n_agents, unit]`. `cross_agent` says whether one agent's output may depend on another's input.
    """

    n_agents: int
    in_features: int
    out_features: int
    recurrent_shape: tuple[int, int] | None = None
    cross_agent: bool = False

    @abstractmethod
    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """One moment: x `[..., n_agents, in]`, recurrent `[..., n_agents, layer, unit]` -> output and next state."""

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """A stretch of time: x `[env, time, n_agents, in]`; the state is zeroed where `is_init` `[env, time]`.

        Args:
            recurrent: the state that enters the first step, `[env, n_agents, layer, unit]`.
            acting: `[env, time, n_agents]` bool: the state of an agent that is not acting stays as it is; None for all.
        Returns:
            outputs `[env, time, n_agents, out]`, and the state that leaves each step
            `[env, time, n_agents, layer, unit]` (None for a feed-forward network).
        """
        return self.forward(x)

    @abstractmethod
    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        """(layer name, submodule, units, kind) of each site, in the order in which they fire."""

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        """The sites of a group of `n_agents`, as `<prefix>/<layer>`."""
        return [
            Site(f"{prefix}/{layer}", module, n_agents, n_units, kind, shared_forward)
            for layer, module, n_units, kind in self.site_modules()
        ]
