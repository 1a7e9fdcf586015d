"""SideBySide: several environments of one kind stepped as one batch, each with its own state and seeds.

For environments whose states cannot be joined (`marlnb.envs.joined`), such as PettingZoo's in worker processes: all
workers of all parts step at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from marlnb.envs.vector import GroupStep, Step, VectorEnv


class SideBySide(VectorEnv):
    """The environments of several parts, one part after the other.

    Args:
        parts: of equal numbers of environments; they belong to the caller.
        steps: of each, what its last `reset` or `step` returned.

    Attributes:
        steps: of each part, the current one.
    """

    def __init__(self, parts: Sequence[VectorEnv], steps: Sequence[Step]) -> None:
        first = parts[0]
        self.parts, self.steps = list(parts), list(steps)
        self.spec, self.device, self.n_envs = first.spec, first.device, len(parts) * first.n_envs
        self.steps_in_processes = first.steps_in_processes
        self._shared = _present(self.steps[0], "done", "episode_seed", "state", "final_state")
        names = [field.name for field in fields(GroupStep)]
        self._of_groups = {name: _present(group, *names) for name, group in self.steps[0].groups.items()}

    def reset(self, seed: int) -> Step:
        """Each part has the seeds of `seed`."""
        self.steps = [part.reset(seed) for part in self.parts]
        return self.step_of_all()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self.start_step(actions)
        return self.finish_step()

    def start_step(self, actions: Mapping[str, Tensor]) -> None:
        by_group = {name: action.chunk(len(self.parts)) for name, action in actions.items()}
        for k, part in enumerate(self.parts):
            part.start_step({name: chunks[k] for name, chunks in by_group.items()})

    def finish_step(self) -> Step:
        self.steps = [part.finish_step() for part in self.parts]
        return self.step_of_all()

    def step_of_all(self) -> Step:
        """The current step, in tensors of its own."""
        groups = {
            name: GroupStep(**_joined([step.groups[name] for step in self.steps], names))
            for name, names in self._of_groups.items()
        }
        return Step(groups, **_joined(self.steps, self._shared))


def _present(step: Step | GroupStep, *names: str) -> list[str]:
    """The fields that this environment has; whether it has a state or masks never changes."""
    return [name for name in names if getattr(step, name) is not None]


def _joined(parts: Sequence[Step] | Sequence[GroupStep], names: Sequence[str]) -> dict[str, Tensor]:
    return {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
