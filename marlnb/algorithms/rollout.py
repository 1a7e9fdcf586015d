"""Rollout: the experience that learners receive, tensors by name and group in the layout of torchrl's TensorDicts.

It reads like a TensorDict, `rollout["next", "agent", "reward"]`, and `to_tensordict` makes one. It is no TensorDict,
because importing tensordict takes several times as long as everything else before a training's first step.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tensordict import TensorDict

Key = str | tuple[str, ...]


class Rollout:
    """Tensors `[env, time, ...]` by key; `marlnb.training.collect.rollout` lists the keys.

    Args:
        fields: tensors and nested dicts of tensors, which are shared, not copied.
        batch_size: the axes that all tensors have in common, (env, time).
    """

    def __init__(self, fields: dict[str, Any], batch_size: tuple[int, ...]) -> None:
        self._fields = fields
        self.batch_size = torch.Size(batch_size)

    def __getitem__(self, key: Key) -> Any:
        """A tensor, or the Rollout of everything below a key, as `rollout["next"]`. Raises KeyError: there is none."""
        value: Any = self._fields
        for name in (key,) if isinstance(key, str) else key:
            value = value[name]
        return Rollout(value, self.batch_size) if isinstance(value, dict) else value

    def __setitem__(self, key: Key, value: Any) -> None:
        *path, last = (key,) if isinstance(key, str) else key
        fields = self._fields
        for name in path:
            fields = fields.setdefault(name, {})
        fields[last] = value

    def get(self, key: Key, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def keys(self) -> KeysView[str]:
        """The names of tensors and groups, not those below them."""
        return self._fields.keys()

    def clone(self, recurse: bool = True) -> Rollout:
        """A copy; without `recurse` of the names only, and the tensors are shared."""
        return Rollout(_copy(self._fields, recurse), self.batch_size)

    def envs(self, start: int, stop: int) -> Rollout:
        """The part of some environments; its tensors are views."""
        return Rollout(_rows(self._fields, slice(start, stop)), (stop - start, *self.batch_size[1:]))

    def steps(self, start: int, stop: int) -> Rollout:
        """The part of some time steps; its tensors are views."""
        return Rollout(_rows(self._fields, (slice(None), slice(start, stop))), (self.batch_size[0], stop - start))

    def followed_by(self, later: Rollout) -> Rollout:
        """This rollout and a later one of the same environments as one, copied."""
        n_steps = self.batch_size[1] + later.batch_size[1]
        return Rollout(_joined(self._fields, later._fields), (self.batch_size[0], n_steps))

    def state_dict(self) -> dict[str, Any]:
        """Its tensors by name, nested, copied."""
        return _copy(self._fields, True)

    def to_tensordict(self) -> TensorDict:
        """A TensorDict of the same tensors."""
        from tensordict import TensorDict

        return TensorDict(_copy(self._fields, False), batch_size=self.batch_size)

    def __repr__(self) -> str:
        return f"<Rollout [env {self.batch_size[0]}, time {self.batch_size[1]}]: {', '.join(_names(self._fields))}>"


def next_observations(
    steps: Rollout | Mapping[Key, Tensor], reads: Sequence[str], rows: tuple[Tensor, ...] | None = None
) -> dict[str, Tensor]:
    """Next observations of the groups `reads`, by group, as every network that computes a target reads them.

    Those of terminated agents are zeroed. Nothing follows for these agents, but a network that reads across agents (a
    centralised critic, a GNN) uses them for the others. At later steps they are zero too, so that such a network has
    never seen a terminal observation next to live agents: bootstrapping from it would be off-distribution.

    Args:
        steps: a rollout, or a sample of one, with the keys `("next", group, "observation" | "terminated")`.
        rows: of these rows only, as indices of the first axes.
    """
    observations = {}
    for name in reads:
        observation, terminated = (steps["next", name, key] for key in ("observation", "terminated"))
        if rows is not None:
            observation, terminated = observation[rows], terminated[rows]
        gone = terminated.reshape(*terminated.shape[:-1], *(1,) * (observation.ndim - terminated.ndim + 1))
        observations[name] = observation.masked_fill(gone, 0)
    return observations


def _copy(fields: dict[str, Any], tensors: bool) -> dict[str, Any]:
    return {
        name: _copy(value, tensors) if isinstance(value, dict) else value.clone() if tensors else value
        for name, value in fields.items()
    }


def _joined(fields: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _joined(value, later[name]) if isinstance(value, dict) else torch.cat((value, later[name]), dim=1)
        for name, value in fields.items()
    }


def _rows(fields: dict[str, Any], rows: slice | tuple[slice, ...]) -> dict[str, Any]:
    return {name: _rows(value, rows) if isinstance(value, dict) else value[rows] for name, value in fields.items()}


def _names(fields: dict[str, Any], prefix: str = "") -> list[str]:
    """As torchrl writes them, `next/agent/reward`."""
    return [
        word
        for name, value in fields.items()
        for word in (_names(value, f"{prefix}{name}/") if isinstance(value, dict) else [f"{prefix}{name}"])
    ]
