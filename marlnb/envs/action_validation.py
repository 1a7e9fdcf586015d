"""Actions as they come in, as tensors on any device: checked, and clipped to their bounds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.errors import EnvError
from marlnb.specs import GroupSpec

TOLERANCE = 1e-5  # of an action's range: what rounding in a policy may overshoot


class ActionValidator:
    """What one group's actions must be.

    Args:
        name: the environment's, for messages.
    """

    def __init__(self, name: str, group: GroupSpec, n_envs: int, device: torch.device) -> None:
        self._name, self._group = name, group
        self._shape = torch.Size((n_envs, group.n_agents, *group.action.shape))
        self._dtype = getattr(torch, group.action.dtype)
        if group.action.kind == "continuous":
            self._low, self._high = torch.tensor(group.action.low), torch.tensor(group.action.high)
            slack = (self._high - self._low) * TOLERANCE
            self._rest = (self._low + self._high).div(2).to(device)
        else:
            self._low, self._high = torch.tensor(0), torch.tensor(group.action.n) - 1
            self._high = self._high if group.action.shape else self._high[0]
            slack, self._rest = torch.tensor(0), torch.tensor(0, device=device)
        self._least, self._most = (self._low - slack).to(device), (self._high + slack).to(device)
        self._low, self._high, self._device = self._low.to(device), self._high.to(device), device

    def take(self, actions: Mapping[str, Tensor], acting: Tensor) -> Tensor:
        """The group's actions `[env, agent, ...]`, within their bounds.

        Those of agents that are not acting may be anything; where they mean nothing, something valid takes their place.

        Raises:
            EnvError: none for this group, another shape or dtype, or one of an acting agent out of range or NaN.
        """
        group = self._group
        if group.name not in actions:
            raise EnvError(f"{self._name}: no actions for group {group.name!r}; got those of {list(actions)}")
        given = actions[group.name].detach()
        if given.shape != self._shape or given.dtype != self._dtype:
            axes = f"env, agent{', component' if group.action.shape else ''}"
            raise EnvError(
                f"{self._name}: group {group.name!r}: actions must be {group.action.dtype} of shape "
                f"{list(self._shape)} ({axes}); got {given.dtype} of shape {list(given.shape)}"
            )
        given = given.to(self._device)
        right = (given >= self._least) & (given <= self._most)
        if not right.all():
            given = self._mended(given, right, acting)
        return given.clamp(self._low, self._high)

    def _mended(self, given: Tensor, right: Tensor, acting: Tensor) -> Tensor:
        wrong = ~right.reshape(*acting.shape, -1).all(-1)
        if (wrong & acting).any():
            copy, agent = (wrong & acting).nonzero()[0].tolist()
            spec = self._group.action
            valid = f"[{spec.low}, {spec.high}]" if spec.kind == "continuous" else f"[0, {spec.n})"
            raise EnvError(
                f"{self._name}: group {self._group.name!r}: action {given[copy, agent].tolist()} of agent {agent} in "
                f"copy {copy} is not in {valid}"
            )
        return torch.where(wrong.view(*wrong.shape, *[1] * (given.dim() - 2)), self._rest.to(given.dtype), given)
