"""Experience by turns: what an agent did, and all that came of it before it acted again.

Where agents wait for one another a step is not a transition of each agent: the reward for a move arrives while others
move, and the next observation to judge is the one at the agent's next turn, not the one in between.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.specs import GroupSpec


class TurnEnds(NamedTuple):
    """Where the turns of a group's agents end.

    Attributes:
        at: `[env, time, agent]` int64, the step at which the agent's present turn ends: the one before its next turn,
            or the one at which its episode ends. `time` steps where that is not in the rollout.
        is_turn: `[env, time, agent]` bool, the agent acted here and its turn ends in the rollout.
        ended: `[env, time, agent]` bool, the agent's episode ended at this step.
    """

    at: Tensor
    is_turn: Tensor
    ended: Tensor

    def gather(self, values: Tensor) -> Tensor:
        """Of `[env, time, agent, ...]`, what stands at the end of each step's turn (the last step where unknown)."""
        at = self.at.clamp_max(values.shape[1] - 1)
        at = at.reshape(*at.shape, *(1,) * (values.ndim - 3)).expand(-1, -1, -1, *values.shape[3:])
        return values.gather(1, at)


def turn_ends(acting: Tensor, ended: Tensor) -> TurnEnds:
    """Both arguments `[env, time, agent]` bool: who acted, and whose episode ended at that step."""
    n_steps = acting.shape[1]
    closes = ended.clone()
    closes[:, :-1] |= acting[:, 1:]
    steps = torch.arange(n_steps, device=acting.device)[None, :, None]
    at = torch.where(closes, steps, n_steps).flip(1).cummin(1).values.flip(1)
    return TurnEnds(at, acting & (at < n_steps), ended)


def own_turns(rollout: TensorDictBase, group: GroupSpec) -> TensorDictBase:
    """A rollout in which each row at which an agent of `group` acts is that agent's whole turn.

    Rewards since the turn began are summed into it, undiscounted (a waiting step takes no time of the agent's own);
    `next` holds what it saw at its next turn, or last in its episode, and whether that episode ended. `(group,
    "acting")` is True for the turns that end in the rollout: what came of the others is not known. Rewards given to an
    agent before its first turn belong to none. Everything else is the rollout's own, not copied.

    Args:
        rollout: `[env, time]`, as `marlnb.training.collect.rollout` says.
    """
    return with_turns(rollout, group, ends_of(rollout, group))


def ends_of(rollout: TensorDictBase, group: GroupSpec) -> TurnEnds:
    """The ends of the turns of `group` in a rollout `[env, time]`."""
    done = rollout["next", group.name, "done"].squeeze(-1) | rollout["next", "done"]
    return turn_ends(rollout[group.name, "acting"], done)


def with_turns(rollout: TensorDictBase, group: GroupSpec, ends: TurnEnds) -> TensorDictBase:
    """`own_turns`, where the ends are known."""
    turns = rollout.clone(recurse=False)
    now, after = turns[group.name], turns["next", group.name]
    now["acting"] = ends.is_turn
    seen = {"observation", "action_mask", "alive"}.intersection(after.keys())
    found = {name: ends.gather(after[name]) for name in seen}
    is_turn = ends.is_turn.unsqueeze(-1)
    for name in ("terminated", "truncated"):
        found[name] = ends.gather(after[name]) & is_turn
    found["done"] = ends.gather(ends.ended).unsqueeze(-1) & is_turn
    found["reward"] = _summed(after["reward"].squeeze(-1), ends).unsqueeze(-1)
    for name, value in found.items():
        after[name] = value
    return turns


def _summed(reward: Tensor, ends: TurnEnds) -> Tensor:
    """Each turn's reward, zero where there is none; a turn is the first of all steps that share its end."""
    n_envs, n_steps, n_agents = reward.shape
    sums = reward.new_zeros(n_envs, n_steps + 1, n_agents).scatter_add_(1, ends.at, reward)
    return sums.gather(1, ends.at) * ends.is_turn
