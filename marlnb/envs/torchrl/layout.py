"""The keys of a torchrl environment's observations, actions and rewards by group, read from its specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Composite, NonTensor
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.batched_envs import BatchedEnvBase

from marlnb.errors import EnvBuildError
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

PLAYER = "current_player"  # OpenSpiel's entry for the player whose turn it is
_NOT_OBSERVED = ("info", "mask", "alive", "acting", "action_mask")  # entries of a group that are not observations


@dataclass(frozen=True)
class GroupLayout:
    """One group's keys, and the shape of one env's action.

    Attributes:
        spec: the group's spec.
        prefix: the group's key; empty for a single agent, whose entries have no agent axis.
        leaves: keys of an agent's observation, in the order of its features.
        one_hot: choices are written as one-hot rows.
        action_shape: without batch axes.
        action_dtype: of the environment's action.
        known: names of the other entries of the group: of `_NOT_OBSERVED`, and of its dones.
    """

    spec: GroupSpec
    prefix: tuple[str, ...]
    leaves: tuple[NestedKey, ...]
    one_hot: bool
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype
    known: frozenset[str]

    def key(self, name: str) -> NestedKey:
        return (*self.prefix, name) if self.prefix else name

    def flags(self, data: TensorDictBase, name: str, n_envs: int) -> Tensor:
        """A bool entry as `[env, agent]`."""
        return data.get(self.key(name)).reshape(n_envs, self.spec.n_agents)  # type: ignore[no-any-return]

    def observation(self, data: TensorDictBase, n_envs: int) -> Tensor:
        """Observations `[env, agent, *shape]`."""
        axes = (n_envs, self.spec.n_agents)
        if len(self.leaves) == 1:
            return data.get(self.leaves[0]).reshape(*axes, *self.spec.observation.shape)
        return torch.cat([data.get(leaf).reshape(*axes, -1).float() for leaf in self.leaves], -1)

    def encode_action(self, action: Tensor, batch: torch.Size) -> Tensor:
        """Actions `[env, agent, ...]` in the environment's format, with its batch axes first."""
        if self.one_hot:
            n = self.spec.action.n
            parts = action[..., None] if self.spec.action.kind == "discrete" else action
            hot = [torch.nn.functional.one_hot(part, k) for part, k in zip(parts.unbind(-1), n)]
            action = torch.cat(hot, -1)
        return action.to(self.action_dtype).reshape((*batch, *self.action_shape))


@dataclass(frozen=True)
class Layout:
    """All groups, and what they share.

    Attributes:
        spec: of the whole environment.
        groups: in the order of `spec.groups`.
        dones: names of the done flags at the root.
        players: agents by player number, for games that report whose turn it is.
    """

    spec: EnvSpec
    groups: tuple[GroupLayout, ...]
    dones: frozenset[str]
    players: tuple[str, ...] = ()


def layout_of(env: EnvBase, name: str, max_steps: int | None) -> Layout:
    """Reads the specs of `env`.

    Raises:
        EnvBuildError: a spec that is not supported; the message names the group and what is valid.
    """
    attributes = _attributes_of(env, name)
    if not attributes.parallel and PLAYER not in set(env.full_observation_spec.keys()):
        raise EnvBuildError(
            f"{name}: torchrl's wrapper of a turn-based environment is not supported: it does not report which "
            "agents are alive; use marlnb's own `pettingzoo/...`, or `openspiel/...`"
        )
    if attributes.group_map is None:
        groups: tuple[GroupLayout, ...] = (_group(env, name, "agent", (), ("agent_0",)),)
    else:
        groups = tuple(
            _group(env, name, group, (group,), tuple(agents)) for group, agents in attributes.group_map.items()
        )
    seen, dones = env.full_observation_spec, env.full_done_spec
    state = tuple(_unbatched(env, seen["state"])) if "state" in set(seen.keys()) else None
    if state is not None and isinstance(seen["state"], NonTensor):
        raise EnvBuildError(f"{name}: its state is not a tensor; build it without a state")
    turns = PLAYER in set(seen.keys())
    simultaneous = attributes.simultaneous
    if simultaneous is None:
        simultaneous = not (turns or any("acting" in group.known for group in groups))
    spec = EnvSpec(name, tuple(g.spec for g in groups), state, max_steps, simultaneous=bool(simultaneous))
    flags = frozenset(
        key for key in set(dones.keys()) if isinstance(key, str) and not isinstance(dones[key], Composite)
    )
    return Layout(spec, groups, flags, tuple(attributes.agent_names) if turns else ())


@dataclass(frozen=True)
class _Attributes:
    """What a torchrl environment states outside its specs.

    Attributes:
        group_map: agents by group; None: one agent.
        parallel: False for torchrl's wrapper of a turn-based PettingZoo environment.
        simultaneous: as in EnvSpec; only as_torchrl's environments have it, since all have the entry `acting`.
        agent_names: by player number, for games.
    """

    group_map: Mapping[str, Sequence[str]] | None
    parallel: bool
    simultaneous: bool | None
    agent_names: Sequence[str]


def _attributes_of(env: EnvBase, name: str) -> _Attributes:
    """The attributes of an environment.

    torchrl's SerialEnv and ParallelEnv have those of their envs neither before they start nor as single values, so one
    more of their envs is built to read them, as torchrl does for their specs.

    Raises:
        EnvBuildError: they hold envs whose action masks change in their specs, which are not passed on.
    """
    base = env
    while isinstance(base, TransformedEnv):
        base = base.base_env
    if isinstance(base, BatchedEnvBase):
        member = base.create_env_fn[0](**base.create_env_kwargs[0])
        try:
            if _has_masks_in_specs(member):
                batched, single = type(base).__name__, type(member).__name__
                raise EnvBuildError(
                    f"{name}: torchrl's {batched} does not pass on the action masks of {single}, which are in its "
                    "specs; return one of these environments, which is then created n_envs times"
                )
            return _attributes_of(member, name)
        finally:
            if not member.is_closed:
                member.close()
    return _Attributes(
        getattr(env, "group_map", None),
        getattr(env, "parallel", True) is not False,
        getattr(env, "simultaneous", None),
        getattr(env, "agent_names", ()),
    )


def _has_masks_in_specs(env: EnvBase) -> bool:
    """Whether the spec of an action has a mask, as in OpenSpiel's games, and the observations have none."""
    seen = set(env.full_observation_spec.keys(True, True))
    for key, spec in env.full_action_spec.items(True, True):
        mask_key = "action_mask" if isinstance(key, str) else (*key[:-1], "action_mask")
        if getattr(spec, "mask", None) is not None and mask_key not in seen:
            return True
    return False


def _unbatched(env: EnvBase, spec: Any) -> torch.Size:
    return spec.shape[len(env.batch_size) :]


def _group(env: EnvBase, name: str, group: str, prefix: tuple[str, ...], agents: tuple[str, ...]) -> GroupLayout:
    where = f"{name}: group {group!r}"
    seen = env.full_observation_spec[prefix] if prefix else env.full_observation_spec
    action_key: Any = (*prefix, "action") if prefix else "action"
    if action_key not in env.full_action_spec.keys(True, True):
        raise EnvBuildError(
            f"{where} has no action {action_key!r}; its actions: {list(env.full_action_spec.keys(True, True))}"
        )
    try:
        leaves = tuple(_leaves(seen, alone=not prefix))
        action = env.full_action_spec[action_key]
        shapes = {leaf: _unbatched(env, seen[leaf])[bool(prefix) :] for leaf in leaves}
        dtypes = {seen[leaf].dtype for leaf in leaves}
    except (KeyError, RuntimeError, AttributeError) as error:
        raise EnvBuildError(
            f"{where}: its agents have different specs ({error}); give each its own group with `group_map`"
        ) from error
    if not leaves:
        raise EnvBuildError(f"{where} has no observations; its entries are {list(seen.keys(True, True))}")
    if ragged := [leaf for leaf in leaves if -1 in shapes[leaf]]:
        raise EnvBuildError(
            f"{where}: its observation {ragged[0]!r} has parts of different sizes, as of a Tuple space; supported: "
            "tensors of one shape, each with a key of its own, as of a Dict space"
        )
    dones = env.full_done_spec
    flags = {n for n in ("done", "terminated", "truncated") if prefix and (*prefix, n) in dones.keys(True, True)}
    known = frozenset((set(_NOT_OBSERVED) & set(seen.keys())) | flags)
    spec = _action(where, action, _unbatched(env, action)[bool(prefix) :])
    has_mask = "action_mask" in known or getattr(action, "mask", None) is not None
    return GroupLayout(
        GroupSpec(group, agents, _observation(leaves, shapes, dtypes), spec, has_mask and spec.kind != "continuous"),
        prefix,
        tuple((*prefix, *_parts(leaf)) if prefix else leaf for leaf in leaves),
        type(action).__name__ in ("OneHot", "MultiOneHot"),
        tuple(_unbatched(env, action)),
        action.dtype,
        known,
    )


def _leaves(seen: Composite, alone: bool) -> Iterator[NestedKey]:
    """Keys of observations; for a single agent without those whose names say that they are something else."""
    for key in seen.keys(True, True):
        first = _parts(key)[0]
        if first in _NOT_OBSERVED or (alone and first in ("state", "step_count")):
            continue
        if isinstance(seen[key], NonTensor):
            raise KeyError(f"{key!r} is not a tensor")
        yield key


def _parts(key: NestedKey) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _observation(leaves: tuple[NestedKey, ...], shapes: dict[Any, torch.Size], dtypes: set[Any]) -> ObservationSpec:
    if len(leaves) == 1:
        (dtype,) = dtypes
        return ObservationSpec(tuple(shapes[leaves[0]]), str(dtype).removeprefix("torch."))
    sizes = {"_".join(_parts(leaf)): prod(shapes[leaf]) for leaf in leaves}
    names = tuple(f"{leaf}_{i}" for leaf, size in sizes.items() for i in range(size))
    return ObservationSpec((len(names),), names=names)


def _action(where: str, spec: Any, shape: torch.Size) -> ActionSpec:
    kind = type(spec).__name__
    if kind in ("OneHot", "Categorical"):
        n = int(spec.space.n)
        components = prod(shape) // (n if kind == "OneHot" else 1)
        return ActionSpec("discrete", (n,)) if components == 1 else ActionSpec("multi_discrete", (n,) * components)
    if kind == "MultiCategorical":
        return ActionSpec("multi_discrete", tuple(spec.nvec.reshape(-1, shape[-1])[0].tolist()))
    if kind == "MultiOneHot":
        return ActionSpec("multi_discrete", tuple(int(n) for n in spec.nvec))
    low, high = (bound.reshape(-1, prod(shape)) for bound in _bounds(where, kind, spec))
    if (low != low[0]).any() or (high != high[0]).any():
        raise EnvBuildError(
            f"{where}: its agents' actions have different bounds; give each its own group with `group_map`"
        )
    return ActionSpec("continuous", low=tuple(low[0].tolist()), high=tuple(high[0].tolist()))


def _bounds(where: str, kind: str, spec: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(spec, Bounded) or not spec.dtype.is_floating_point:
        raise EnvBuildError(
            f"{where}: {kind} actions ({spec.dtype}) are not supported; valid: Bounded float, "
            "Categorical, OneHot, MultiCategorical and MultiOneHot"
        )
    if not (spec.space.low.isfinite().all() and spec.space.high.isfinite().all()):
        raise EnvBuildError(f"{where}: actions have no finite bounds; bound them with a transform")
    return spec.space.low.cpu(), spec.space.high.cpu()
