"""Generalised advantage estimation as a plain function, and the values that it starts from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.models.policies.actor_critic import ActorCritic


class RolloutValues(NamedTuple):
    """A critic's view of one rollout, in units of reward.

    Attributes:
        value, next_value: `[env, time, agent]`, of the observation acted on and of what followed (at an episode's end
            the final observation, not the new episode's first).
        entering: the critic's recurrent state that enters each step, `[env, time, agent, layer, unit]`, zero at an
            episode's start; None for a feed-forward critic.
        leaving: the state that leaves the last step, `[env, agent, layer, unit]`, or None.
    """

    value: Tensor
    next_value: Tensor
    entering: Tensor | None
    leaving: Tensor | None


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    turns: Tensor | None = None,
) -> Tensor:
    """Advantages `[env, time, agent]`, all arguments alike; terminated, done and turns bool.

    Nothing follows a terminated step; a truncated one (done, not terminated) is bootstrapped with `next_value`.
    turns: the steps that count, where agents wait for one another: the others are passed over, so that a turn is
    followed by the agent's next turn (what stands at a step that does not count means nothing). None for all.
    Source: Schulman et al. 2016, equation 16 (arXiv:1506.02438).
    """
    delta = torch.addcmul(reward - value, next_value, (~terminated).to(value.dtype), value=gamma)
    decay = (~done).to(value.dtype).mul_(gamma * gae_lambda)
    if turns is not None:
        delta, decay = delta * turns, torch.where(turns, decay, 1.0)
    by_time = delta.transpose(0, 1).contiguous()
    steps, decays = by_time.unbind(), decay.transpose(0, 1).contiguous().unbind()
    for t in range(len(steps) - 2, -1, -1):
        steps[t].addcmul_(decays[t], steps[t + 1])
    return by_time.transpose(0, 1)


def advantages(
    rollout: TensorDictBase, group: str, values: RolloutValues, *, gamma: float, gae_lambda: float, takes_turns: bool
) -> Tensor:
    """`gae` of one group's agents over a rollout `[env, time]`.

    takes_turns: the rollout is one of `own_turns`, and `values.next_value` of those turns' ends.
    """
    after, acting = rollout["next"], rollout[group, "acting"]
    return gae(
        after[group, "reward"].squeeze(-1) * acting,
        values.value * acting,
        values.next_value * acting,
        after[group, "terminated"].squeeze(-1),
        after[group, "done"].squeeze(-1) | after["done"],
        gamma=gamma,
        gae_lambda=gae_lambda,
        turns=acting if takes_turns else None,
    )


@torch.no_grad()
def value_rollout(
    policy: ActorCritic, rollout: TensorDictBase, recurrent: Tensor | None = None, acting: Tensor | None = None
) -> RolloutValues:
    """Values of every moment of a rollout `[env, time]` and of what followed it.

    The next moment's value is read off the next row; only where an episode ended, and after the last row, is the
    critic asked again.

    Args:
        recurrent: the critic's state that enters the first row, as the network takes it (agent axis of 1 where one
            network serves all); None for zero.
        acting: who acts at each step, `[env, time, agent]` with that same agent axis: the critic's state of an agent
            that waits stays as it is; None for all.
    """
    critic, normaliser = policy.critic, policy.value_norm
    is_init = rollout["is_init"].squeeze(-1)
    output, after = critic.network.sequence(critic.spread(critic_inputs(policy, rollout)), recurrent, is_init, acting)
    value = normaliser.denormalise(critic.by_agent(output))

    agent_done = rollout["next", policy.group.name, "done"].squeeze(-1)
    asked_agent = agent_done | rollout["next", "done"]
    asked_agent[:, -1] = True
    asked = asked_agent.any(-1).nonzero(as_tuple=True)
    follower = critic.step(critic_inputs(policy, rollout["next"], asked), None if after is None else after[asked])[0]
    next_value = torch.cat((value[:, 1:], value[:, -1:]), dim=1)
    next_value[asked] = torch.where(asked_agent[asked], normaliser.denormalise(follower), next_value[asked])
    if after is None:
        return RolloutValues(value, next_value, None, None)
    first = torch.zeros_like(after[:, :1]) if recurrent is None else recurrent.unsqueeze(1)
    entering = torch.cat((first, after[:, :-1]), dim=1) * ~is_init[:, :, None, None, None]
    return RolloutValues(value, next_value, entering, after[:, -1])


def critic_inputs(policy: ActorCritic, moments: TensorDictBase, rows: tuple[Tensor, ...] | None = None) -> Tensor:
    def read(key: str | tuple[str, str]) -> Tensor:
        return moments[key] if rows is None else moments[key][rows]

    state = read("state") if policy.critic.reads_state else None
    return policy.critic.inputs({name: read((name, "observation")) for name in policy.critic.reads}, state)
