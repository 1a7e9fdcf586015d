"""What a torchrl collector gathered of one group of agents, as the fields of a recording."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.errors import RecordingError
from marlnb.models.adapters.memory import StackedMemory
from marlnb.models.networks.packing import pad
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec

LOG_PROB_KEYS = ("action_log_prob", "sample_log_prob", "log_prob")


class GroupBatch:
    """Reads one group's entries of a tensordict.

    Args:
        key: the group's key; None: its name, or the root where the root holds the observation of a single agent.
    """

    def __init__(self, spec: GroupSpec, key: str | None = None) -> None:
        self.spec, self.key = spec, key

    def path(self, batch: TensorDictBase) -> tuple[str, ...]:
        """The group's key in these frames; empty for the root."""
        name = self.key or self.spec.name
        if name in set(batch.keys()):
            return (name,)
        if self.key is None and self.spec.n_agents == 1 and "observation" in set(batch.keys()):
            return ()
        raise RecordingError(
            f"no group {name!r} in the frames, which have {sorted(map(str, batch.keys()))}; give its key by group_map"
        )

    def read(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """`steps/<group>/<field>`, each `[env, time, agent, ...]`."""
        path, spec = self.path(batch), self.spec
        shape = (*batch.batch_size, spec.n_agents)
        current = batch.get(path) if path else batch
        following = batch.get(("next", *path)) if path else batch.get("next")
        keys = set(current.keys())
        missing = [name for name in ("observation", "action") if name not in keys]
        if missing:
            raise RecordingError(f"the frames of {spec.name!r} have no {missing}; they have {sorted(current.keys())}")
        always = torch.ones(shape, dtype=torch.bool, device=current.get("observation").device)
        fields = {
            "observation": current.get("observation").reshape(*shape, *spec.observation.shape),
            "action": self._action(current.get("action"), shape),
            "alive": current.get("alive").reshape(shape) if "alive" in keys else always,
            "acting": current.get("acting").reshape(shape) if "acting" in keys else always,
            "reward": following.get("reward").reshape(shape),
            "terminated": _end(batch, following, "terminated", shape),
            "truncated": _end(batch, following, "truncated", shape),
        }
        if spec.has_action_mask and "action_mask" in keys:
            fields["action_mask"] = current.get("action_mask").reshape(*shape, -1)
        log_prob = next((name for name in LOG_PROB_KEYS if name in keys), None)
        if log_prob is not None:
            fields["log_prob"] = current.get(log_prob).reshape(shape)
        return {f"steps/{spec.name}/{name}": tensor.detach() for name, tensor in fields.items()}

    def _action(self, action: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Actions as the group's ActionSpec states them; one-hot choices become indices."""
        spec = self.spec.action
        if spec.kind == "continuous":
            return action.reshape(*shape, spec.n_components)
        n_values = action.numel() // max(1, int(torch.Size(shape).numel()))
        if n_values == spec.n_logits > spec.n_components:
            parts = action.reshape(*shape, -1).split(list(spec.n), -1)
            action = torch.stack([part.long().argmax(-1) for part in parts], -1)
        return action.long().reshape(*shape, *spec.shape)


def entering_state(policy: Policy, batch: TensorDictBase) -> Tensor | None:
    """The collected state that entered the group's actor at each frame, `[frame, agent, layer, unit]`.

    None for a feed-forward actor. Where the frames have `is_init`, the state is zero there, as in torchrl's GRUModule.

    Raises:
        RecordingError: the frames do not hold the state.
    """
    shape = policy.recurrent_shape
    if shape is None:
        return None
    memories = [module for module in policy.modules() if isinstance(module, StackedMemory)]
    parts = []
    for key in (key for memory in memories for key in memory.keys):
        state = batch.get(key, None)
        if state is None:
            raise RecordingError(
                f"the frames of {policy.group.name!r} have no {'/'.join(key)}, the recurrent state of its policy"
            )
        parts.append(state.reshape(-1, policy.group.n_agents, *state.shape[-2:]))
    if sum(part.shape[-2] for part in parts) != shape[0]:
        raise RecordingError(
            f"the policy of {policy.group.name!r} has recurrent states outside GRUModule and LSTMModule, which frames "
            "do not hold; record its episodes with marlnb.record instead"
        )
    state = torch.cat([pad(part, (part.shape[-2], shape[1])) for part in parts], dim=-2)
    is_init = batch.get("is_init", None)
    return state if is_init is None else state * ~is_init.reshape(-1, 1, 1, 1)


def done_flag(batch: TensorDictBase, groups: Sequence[GroupBatch]) -> Tensor:
    """Whether the frame ends its env's episode, `[env, time]`: the root's `done`, else where every group is done."""
    following = batch.get("next")
    if "done" in set(following.keys()):
        return following.get("done").reshape(batch.batch_size)  # type: ignore[no-any-return]
    flags = [following.get((*group.path(batch), "done"), None) for group in groups]
    if any(flag is None for flag in flags):
        raise RecordingError("the frames have no ('next', 'done'), neither at the root nor in every group")
    return torch.stack([flag.reshape(*batch.batch_size, -1).all(-1) for flag in flags]).all(0)


def _end(batch: TensorDictBase, following: TensorDictBase, name: str, shape: tuple[int, ...]) -> Tensor:
    """A group's ends `[env, time, agent]`: its own, else the env's."""
    for entries in (following, batch.get("next")):
        if name in set(entries.keys()):
            flag = entries.get(name)
            if flag.numel() == torch.Size(shape).numel():
                return flag.reshape(shape)  # type: ignore[no-any-return]
            return flag.reshape(*shape[:-1], 1).expand(shape)  # type: ignore[no-any-return]
    return torch.zeros(shape, dtype=torch.bool)
