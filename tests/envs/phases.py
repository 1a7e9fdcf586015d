"""A batched environment with an action mask: in phase k only choice k is allowed, and phases 0 and 1 alternate."""

from __future__ import annotations

import torch
from torch import Tensor

import marlnb as mnb
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import ByGroup, State
from marlnb.specs import GroupSpec


@mnb.environment("test/phases")
class Phases(mnb.TensorEnv):
    """Agents earn 1 at each step, and observe the phase as one-hot. Q of the allowed choice is 1 / (1 - gamma)."""

    max_steps: int = mnb.option(3, help="steps of an episode", ge=1)
    random_start: bool = mnb.option(False, help="whether episodes start in any phase, not in phase 0")
    mortal: bool = mnb.option(False, help="whether the second agent dies after a step; its mask then allows nothing")

    def groups(self) -> list[GroupSpec]:
        return [mnb.agent_group("agent", 2, observes=2, acts=2, action_mask=True)]

    def start(self, draw: Draws) -> State:
        return {"phase": draw.integers(2, 1).squeeze(-1) * self.random_start}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        return {"phase": 1 - state["phase"]}, {"agent": torch.ones(len(state["phase"]), 2, device=draw.device)}

    def observe(self, state: State) -> ByGroup:
        return {"agent": _one_hot(state).float()}

    def alive(self, state: State) -> ByGroup:
        may_die = torch.arange(2, device=state["time"].device) >= 2 - self.mortal
        return {"agent": (state["time"] < 1)[:, None] | ~may_die}

    def action_mask(self, state: State) -> ByGroup:
        return {"agent": _one_hot(state) & self.alive(state)["agent"][..., None]}


def _one_hot(state: State) -> Tensor:
    """`[env, agent, choice]` bool."""
    return torch.stack([state["phase"] == 0, state["phase"] == 1], -1)[:, None].expand(-1, 2, -1)
