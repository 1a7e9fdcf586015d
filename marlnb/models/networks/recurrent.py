"""The base of recurrent networks: hidden layers, one recurrent layer and a head."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from marlnb.models.networks.configs.recurrent import RecurrentConfig as RecurrentConfig
from marlnb.models.networks.mlp import HiddenNetwork


class RecurrentNetwork(HiddenNetwork):
    """Hidden layers, a recurrent layer and a linear head, each a site. The head reads the first layer of the state.

    `project` and `step` have the state without its layer axis if that has size 1.
    """

    recurrent_shape: tuple[int, int]

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """The part of the recurrent layer that depends only on the input x `[..., n_agents, in]`."""

    @abstractmethod
    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        """The state after a step, `[..., n_agents, (layer,) unit]`, from the result of `project` and the state."""

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        projected = self.project(x)
        return self._output(self.step(projected, self._state(projected, recurrent)), x.ndim)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        projected = self.project(x)  # all steps in one matmul; only the recurrent part goes step by step
        state = self._state(projected[:, 0], recurrent)
        inner = (1,) * (state.ndim - 2)  # axes after the agents'
        keeps = (~is_init).to(state.dtype).reshape(*is_init.shape, 1, *inner).unbind(1)
        states = []
        for t, (inputs, keep) in enumerate(zip(projected.unbind(1), keeps)):
            entering = state * keep
            state = self.step(inputs, entering)
            if acting is not None:
                state = torch.where(acting[:, t].reshape(*acting[:, t].shape, *inner), state, entering)
            states.append(state)
        return self._output(torch.stack(states, dim=1), x.ndim)

    def _state(self, projected: Tensor, recurrent: Tensor | None) -> Tensor:
        if recurrent is None:
            recurrent = projected.new_zeros(*projected.shape[:-1], *self.recurrent_shape)
        return recurrent.squeeze(-2)

    def _output(self, state: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
        state = state if state.ndim > n_axes else state.unsqueeze(-2)
        return self.head(state[..., 0, :]), state
