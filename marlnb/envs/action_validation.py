"""Checks actions, tensors on any device, and clips them to their bounds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.errors import EnvError
from marlnb.specs import ActionSpec, GroupSpec

TOLERANCE = 1e-5  # share of an action's range by which rounding in a policy may overshoot


class ActionValidator:
    """Checks one group's actions.

    Args:
        name: the environment's name, for messages.
        group: the agents whose actions are checked.
        n_envs: B.
        device: where the checked actions are returned.
    """

    def __init__(self, name: str, group: GroupSpec, n_envs: int, device: torch.device) -> None:
        self._name, self._group = name, group
        self._shape = torch.Size((n_envs, group.n_agents, *group.action.shape))
        self._dtype = getattr(torch, group.action.dtype)
        if group.action.kind == "continuous":
            self._low, self._high = torch.tensor(group.action.low), torch.tensor(group.action.high)
            slack = (self._high - self._low) * TOLERANCE
            self._default = (self._low + self._high).div(2).to(device)
        else:
            self._low, self._high = torch.tensor(0), torch.tensor(group.action.n) - 1
            self._high = self._high if group.action.shape else self._high[0]
            slack, self._default = torch.tensor(0), torch.tensor(0, device=device)
        self._min, self._max = (self._low - slack).to(device), (self._high + slack).to(device)
        self._low, self._high, self._device = self._low.to(device), self._high.to(device), device

    def check(self, actions: Mapping[str, Tensor], acting: Tensor) -> Tensor:
        """The group's actions `[env, agent, ...]`, within their bounds.

        Actions of agents that are not acting may be anything; invalid ones are replaced by a valid default.

        Raises:
            EnvError: no actions for this group, another shape or dtype, or an acting agent's action is out of range or
                NaN.
        """
        group = self._group
        if group.name not in actions:
            raise EnvError(f"{self._name}: no actions for group {group.name!r}; got actions for {list(actions)}")
        action = actions[group.name].detach()
        if action.shape != self._shape or action.dtype != self._dtype:
            axes = f"env, agent{', component' if group.action.shape else ''}"
            raise EnvError(
                f"{self._name}: group {group.name!r}: actions must be {group.action.dtype} of shape "
                f"{list(self._shape)} ({axes}); got {action.dtype} of shape {list(action.shape)}"
            )
        action = action.to(self._device)
        is_valid = (action >= self._min) & (action <= self._max)
        if not is_valid.all():
            action = self._replace_invalid(action, is_valid, acting)
        return action.clamp(self._low, self._high)

    def _replace_invalid(self, action: Tensor, is_valid: Tensor, acting: Tensor) -> Tensor:
        wrong = ~is_valid.reshape(*acting.shape, -1).all(-1)
        if (wrong & acting).any():
            env_index, agent = (wrong & acting).nonzero()[0].tolist()
            where = f"{self._name}: group {self._group.name!r}"
            raise invalid_action(where, self._group.action, action[env_index, agent].tolist(), agent, env_index)
        return torch.where(wrong.view(*wrong.shape, *[1] * (action.dim() - 2)), self._default.to(action.dtype), action)


def invalid_action(where: str, spec: ActionSpec, value: object, agent: int, env_index: int) -> EnvError:
    """The error for an acting agent's action that is out of range."""
    valid = f"[{spec.low}, {spec.high}]" if spec.kind == "continuous" else f"[0, {spec.n})"
    return EnvError(f"{where}: action {value} of agent {agent} in env {env_index} is not in {valid}")
