"""Experience in turn-based games: what an agent did, and everything that happened until it acted again.

If agents wait for one another, a step of the environment is not a transition of each agent. The reward for a move
arrives while the others move, and the next observation to evaluate is the one at the agent's next turn, not one that
it sees while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.specs import GroupSpec

MAX_OPEN_STEPS = 100


def own_turns(rollout: Rollout, group: GroupSpec) -> Rollout:
    """A rollout in which every row at which an agent of `group` acts holds that agent's whole turn.

    The reward is the sum since the turn began, without discount: waiting takes none of the agent's time. `next` holds
    what the agent saw at its next turn, or last in its episode, and whether the episode ended. `(group, "acting")` is
    True for the turns that end within the rollout; the result of the others is not known yet. `(group, "acted")` is
    True for all of them: recurrent states change there. Rewards before an agent's first turn belong to no action and
    are dropped. All other fields are shared with `rollout`, not copied.

    The turn that a truncation interrupts is left out as well, if the agent waits anywhere in the rollout. Its target
    would be the value of the final observation, which the agent may see while it waits, and values of waiting agents
    are not trained. A rollout does not say who would have moved next, so that player's turn is left out too. An agent
    does not wait while its env is paused.

    Args:
        rollout: `[env, time]`, as `marlnb.training.collect.rollout` describes.
    """
    return with_turns(rollout, group, ends_of(rollout, group))


class OpenTurns:
    """Experience by turns across rollouts: a step waits until all turns that began there have ended.

    Without that, turns that a rollout cuts are lost: of two players that alternate, all but the last ones of an episode
    if a rollout has one step.

    Args:
        group: whose turns they are.

    Attributes:
        steps: that wait, the latest ones; None: none do.
    """

    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.steps: Rollout | None = None

    def close(self, rollout: Rollout, max_steps: int) -> list[Rollout]:
        """Rollouts of turns (`own_turns`), in order, of all steps that wait no longer.

        Args:
            rollout: what follows the one before, `[env, time]`.
            max_steps: that wait, at most MAX_OPEN_STEPS. A turn that lasts longer is not known, nor one that a reset of
                the environments ends.
        """
        closed = []
        if self.steps is not None and bool((rollout["is_init"][:, 0] & ~self.steps["next", "done"][:, -1]).any()):
            closed.append(own_turns(self.steps, self.group))
            self.steps = None
        whole = rollout if self.steps is None else self.steps.followed_by(rollout)
        ends, n_steps = ends_of(whole, self.group), whole.batch_size[1]
        begins = whole[self.group.name, "acting"] & (ends.at == n_steps)  # turns that are open
        is_open = begins.any(-1).any(0)
        first = int(is_open.int().argmax()) if bool(is_open.any()) else n_steps
        first = max(first, n_steps - min(max_steps, MAX_OPEN_STEPS))
        self.steps = whole.steps(first, n_steps).clone() if first < n_steps else None
        return [*closed, with_turns(whole, self.group, ends).steps(0, first)] if first else closed

    def state_dict(self) -> dict[str, Any]:
        return {} if self.steps is None else self.steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        fields = _on_device(state, device)
        self.steps = Rollout(fields, tuple(fields["is_init"].shape[:2])) if fields else None


class TurnEnds(NamedTuple):
    """Where the turns of a group's agents end.

    Attributes:
        at: `[env, time, agent]` int64, the step at which the agent's current turn ends: the one before its next turn,
            or the one at which its episode ends. Equal to the number of steps if the rollout ends first.
        is_turn: `[env, time, agent]` bool, the agent acted here and what followed is known: see `own_turns`.
        ended: `[env, time, agent]` bool, the agent's episode ended at this step.
    """

    at: Tensor
    is_turn: Tensor
    ended: Tensor

    def gather(self, values: Tensor) -> Tensor:
        """Of `[env, time, agent, ...]`, the value at the end of each step's turn (at the last step if unknown)."""
        at = self.at.clamp_max(values.shape[1] - 1)
        at = at.reshape(*at.shape, *(1,) * (values.ndim - 3)).expand(-1, -1, -1, *values.shape[3:])
        return values.gather(1, at)


def ends_of(rollout: Rollout, group: GroupSpec) -> TurnEnds:
    """The ends of the turns of `group` in a rollout `[env, time]`."""
    done = rollout["next", group.name, "done"].squeeze(-1) | rollout["next", "done"]
    acting, after = rollout[group.name, "acting"], rollout["next", group.name]
    ends = turn_ends(acting, done)
    truncated = ends.gather(after["truncated"] & ~after["terminated"]).squeeze(-1)
    waiting = rollout[group.name, "alive"] & ~acting
    if (paused := rollout.get("paused")) is not None:
        waiting = waiting & ~paused
    waits = waiting.any(1).any(0)  # [agent]
    return ends._replace(is_turn=ends.is_turn & ~(truncated & waits))


def turn_ends(acting: Tensor, ended: Tensor) -> TurnEnds:
    """Args: `[env, time, agent]` bool, who acted, and whose episode ended at that step."""
    n_steps = acting.shape[1]
    closes = ended.clone()
    closes[:, :-1] |= acting[:, 1:]
    steps = torch.arange(n_steps, device=acting.device)[None, :, None]
    # the nearest later step that closes a turn: a running minimum from the end
    at = torch.where(closes, steps, n_steps).flip(1).cummin(1).values.flip(1)
    return TurnEnds(at, acting & (at < n_steps), ended)


def with_turns(rollout: Rollout, group: GroupSpec, ends: TurnEnds) -> Rollout:
    """`own_turns`, given the ends of the turns."""
    turns = rollout.clone(recurse=False)
    now, after = turns[group.name], turns["next", group.name]
    now["acted"], now["acting"] = now["acting"], ends.is_turn
    is_turn = ends.is_turn.unsqueeze(-1)
    present = {"observation", "action_mask", "alive"}.intersection(after.keys())
    at_end = {name: ends.gather(after[name]) for name in present}
    for name in ("terminated", "truncated"):
        at_end[name] = ends.gather(after[name]) & is_turn
    at_end["done"] = ends.gather(ends.ended).unsqueeze(-1) & is_turn
    at_end["reward"] = _summed(after["reward"].squeeze(-1), ends).unsqueeze(-1)
    for name, value in at_end.items():
        after[name] = value
    return turns


def _summed(reward: Tensor, ends: TurnEnds) -> Tensor:
    """Each turn's reward, zero where there is none; a turn is the first of all steps that share its end."""
    n_envs, n_steps, n_agents = reward.shape
    sums = reward.new_zeros(n_envs, n_steps + 1, n_agents).scatter_add_(1, ends.at, reward)
    return sums.gather(1, ends.at) * ends.is_turn


def _on_device(fields: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        name: _on_device(value, device) if isinstance(value, Mapping) else value.to(device)
        for name, value in fields.items()
    }
