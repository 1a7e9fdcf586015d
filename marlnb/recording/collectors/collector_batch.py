"""What a torchrl collector gathers of one group of agents, as the fields of a recording."""

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

LOG_PROBS = ("action_log_prob", "sample_log_prob", "log_prob")


class GroupFrames:
    """One group's entries of a tensordict.

    Args:
        key: the group's key; None: its name, or the root where that holds the observation of one agent.
    """

    def __init__(self, spec: GroupSpec, key: str | None = None) -> None:
        self.spec, self.key = spec, key

    def place(self, batch: TensorDictBase) -> tuple[str, ...]:
        """Where the group lies in these frames."""
        name = self.key or self.spec.name
        if name in set(batch.keys()):
            return (name,)
        if self.key is None and self.spec.n_agents == 1 and "observation" in set(batch.keys()):
            return ()
        raise RecordingError(
            f"no group {name!r} among the entries {sorted(map(str, batch.keys()))}; say where it is by group_map"
        )

    def read(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """`steps/<group>/<field>`, each `[env, time, agent, ...]`."""
        at, spec = self.place(batch), self.spec
        lead = (*batch.batch_size, spec.n_agents)
        entry = batch.get(at) if at else batch
        outcome = batch.get(("next", *at)) if at else batch.get("next")
        missing = [name for name in ("observation", "action") if name not in set(entry.keys())]
        if missing:
            raise RecordingError(f"the frames of {spec.name!r} have no {missing}; they have {sorted(entry.keys())}")
        everyone = torch.ones(lead, dtype=torch.bool, device=entry.get("observation").device)

        def told(name: str) -> Tensor:
            """A flag that the environment may tell of the group, of all, or not at all."""
            if name in set(entry.keys()):
                return entry.get(name).reshape(lead)  # type: ignore[no-any-return]
            return everyone

        ends = {name: _end(batch, outcome, name, lead) for name in ("terminated", "truncated")}
        found = {
            "observation": entry.get("observation").reshape(*lead, *spec.observation.shape),
            "action": self._action(entry.get("action"), lead),
            "alive": told("alive"),
            "acting": told("acting"),
            "reward": outcome.get("reward").reshape(lead),
            **ends,
        }
        if spec.has_action_mask and "action_mask" in set(entry.keys()):
            found["action_mask"] = entry.get("action_mask").reshape(*lead, -1)
        log_prob = next((name for name in LOG_PROBS if name in set(entry.keys())), None)
        if log_prob is not None:
            found["log_prob"] = entry.get(log_prob).reshape(lead)
        return {f"steps/{spec.name}/{name}": tensor.detach() for name, tensor in found.items()}

    def _action(self, action: Tensor, lead: tuple[int, ...]) -> Tensor:
        """As the group's ActionSpec says; one-hot choices become numbers."""
        spec = self.spec.action
        if spec.kind == "continuous":
            return action.reshape(*lead, spec.n_components)
        size = action.numel() // max(1, int(torch.Size(lead).numel()))
        if size == spec.n_logits > spec.n_components:
            parts = action.reshape(*lead, -1).split(list(spec.n), -1)
            action = torch.stack([part.long().argmax(-1) for part in parts], -1)
        return action.long().reshape(*lead, *spec.shape)


def entering_state(policy: Policy, batch: TensorDictBase) -> Tensor | None:
    """The state that entered the group's actor at each frame, as collected: `[frame, agent, layer, unit]`.

    None for a feed-forward actor. Where the frames tell `is_init`, the state is zero there, as GRUModule has it.

    Raises:
        RecordingError: the frames do not hold it.
    """
    shape = policy.recurrent_shape
    if shape is None:
        return None
    memories = [module for module in policy.modules() if isinstance(module, StackedMemory)]
    parts = []
    for key in (key for memory in memories for key in memory.keys):
        found = batch.get(key, None)
        if found is None:
            raise RecordingError(
                f"the frames of {policy.group.name!r} hold no {'/'.join(key)}, the state of its policy"
            )
        parts.append(found.reshape(-1, policy.group.n_agents, *found.shape[-2:]))
    if sum(part.shape[-2] for part in parts) != shape[0]:
        raise RecordingError(
            f"the policy of {policy.group.name!r} remembers, and not only by GRUModule or LSTMModule, whose states "
            "frames hold; record its episodes with marlnb.record instead"
        )
    state = torch.cat([pad(part, (part.shape[-2], shape[1])) for part in parts], dim=-2)
    begins = batch.get("is_init", None)
    return state if begins is None else state * ~begins.reshape(-1, 1, 1, 1)


def root_flag(batch: TensorDictBase, name: str, groups: Sequence[GroupFrames]) -> Tensor:
    """Whether the frame ends its copy's episode, `[env, time]`; where only groups tell, when all of them do."""
    outcome = batch.get("next")
    if name in set(outcome.keys()):
        return outcome.get(name).reshape(batch.batch_size)  # type: ignore[no-any-return]
    told = [outcome.get((*group.place(batch), name), None) for group in groups]
    if any(flag is None for flag in told):
        raise RecordingError(f"the frames tell no ('next', {name!r}), neither at the root nor in every group")
    return torch.stack([flag.reshape(*batch.batch_size, -1).all(-1) for flag in told]).all(0)


def _end(batch: TensorDictBase, outcome: TensorDictBase, name: str, lead: tuple[int, ...]) -> Tensor:
    """A group's ends `[env, time, agent]`: its own, or else the copy's."""
    for place in (outcome, batch.get("next")):
        if name in set(place.keys()):
            flag = place.get(name)
            if flag.numel() == torch.Size(lead).numel():
                return flag.reshape(lead)  # type: ignore[no-any-return]
            return flag.reshape(*lead[:-1], 1).expand(lead)  # type: ignore[no-any-return]
    return torch.zeros(lead, dtype=torch.bool)
