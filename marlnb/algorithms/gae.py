"""Generalised advantage estimation, and the values that it needs.

Source: Schulman et al. 2016, High-Dimensional Continuous Control Using Generalized Advantage Estimation
(arXiv:1506.02438).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout, next_observations
from marlnb.models.policies.actor_critic import ActorCritic

PIECE_ROWS = {"cpu": 1 << 13, "cuda": 1 << 20}  # of one forward pass, a row is one agent's input


class RolloutValues(NamedTuple):
    """A critic's values of one rollout, in units of reward.

    Attributes:
        value: V(s_t), `[env, time, agent]`.
        next_value: V(s_t+1), `[env, time, agent]`. Where an episode ended, of its final observation, not of the first
            observation of the next episode.
        state_in: the critic's recurrent state before each step, `[env, time, agent, layer, unit]`, zero where an
            episode starts; None for a feed-forward critic.
        state_out: the critic's recurrent state after the last step, `[env, agent, layer, unit]`, or None.
    """

    value: Tensor
    next_value: Tensor
    state_in: Tensor | None
    state_out: Tensor | None


@torch.no_grad()
def rollout_values(
    policy: ActorCritic,
    rollout: Rollout,
    state: Tensor | None = None,
    acted: Tensor | None = None,
    *,
    by_mask: bool = False,
) -> RolloutValues:
    """Values of every observation in a rollout `[env, time]` and of every next one.

    V(s_t+1) is the value of the next row, so it costs nothing. Only where there is no such row (an episode's final
    observation, and the observation after the last row) is the critic called again.

    Args:
        state: the critic's recurrent state before the first row, as its network takes it (an agent axis of 1 if one
            network serves all agents); None: zero.
        acted: who acts at each step, `[env, time, agent]`, with the same agent axis. The state of an agent that waits
            does not change. None: all act.
        by_mask: call the critic for every next observation, which is more work but does not wait for a GPU.
    """
    critic, normaliser = policy.critic, policy.value_norm
    is_init = rollout["is_init"].squeeze(-1)
    inputs = critic.expand_inputs(critic_inputs(policy, rollout))
    if critic.network.recurrent_shape is None and acted is None:
        # pieces: large results of operations are new memory, which on a CPU the system has to clear each time
        n_envs = max(1, PIECE_ROWS[inputs.device.type] // max(1, inputs[0, ..., 0].numel()))
        pieces = zip(inputs.split(n_envs), is_init.split(n_envs))
        output, states = torch.cat([critic.network.sequence(x, None, first)[0] for x, first in pieces]), None
    else:
        output, states = critic.network.sequence(inputs, state, is_init, acted)
    value = normaliser.denormalise(critic.agent_values(output))

    agent_done = rollout["next", policy.group.name, "done"].squeeze(-1)
    agent_needs_bootstrap = agent_done | rollout["next", "done"]
    agent_needs_bootstrap[:, -1] = True
    next_value = torch.cat((value[:, 1:], value[:, -1:]), dim=1)
    if by_mask:
        inputs, flat = next_critic_inputs(policy, rollout), None if states is None else states.flatten(0, 1)
        bootstrap_value = critic.step(inputs.flatten(0, 1), flat)[0].view_as(value)
        next_value = torch.where(agent_needs_bootstrap, normaliser.denormalise(bootstrap_value), next_value)
    else:
        _bootstrap(policy, rollout, states, agent_needs_bootstrap, next_value)
    if states is None:
        return RolloutValues(value, next_value, None, None)
    first = torch.zeros_like(states[:, :1]) if state is None else state.unsqueeze(1)
    state_in = torch.cat((first, states[:, :-1]), dim=1) * ~is_init[:, :, None, None, None]
    return RolloutValues(value, next_value, state_in, states[:, -1])


def _bootstrap(
    policy: ActorCritic, rollout: Rollout, states: Tensor | None, agent_needs_bootstrap: Tensor, next_value: Tensor
) -> None:
    """Writes the values of next observations that are not those of the next row into `next_value`."""
    needs_bootstrap = agent_needs_bootstrap.any(-1).nonzero(as_tuple=True)
    final_state = None if states is None else states[needs_bootstrap]
    bootstrap_value = policy.critic.step(next_critic_inputs(policy, rollout, needs_bootstrap), final_state)[0]
    next_value[needs_bootstrap] = torch.where(
        agent_needs_bootstrap[needs_bootstrap],
        policy.value_norm.denormalise(bootstrap_value),
        next_value[needs_bootstrap],
    )


def critic_inputs(policy: ActorCritic, rollout: Rollout) -> Tensor:
    """What the critic reads: its own group's observations, or all groups' and the state."""
    critic = policy.critic
    observations = {name: rollout[name, "observation"] for name in critic.reads}
    return critic.inputs(observations, rollout["state"] if critic.reads_state else None)


def next_critic_inputs(policy: ActorCritic, rollout: Rollout, rows: tuple[Tensor, ...] | None = None) -> Tensor:
    """What the critic reads at the next step, without the agents that terminated. `rows`: of these rows only."""
    critic = policy.critic
    state = rollout["next", "state"] if critic.reads_state else None
    if state is not None and rows is not None:
        state = state[rows]
    return critic.inputs(next_observations(rollout, critic.reads, rows), state)


def advantages(
    rollout: Rollout, group: str, values: RolloutValues, *, gamma: float, gae_lambda: float, turn_based: bool
) -> Tensor:
    """`gae` of one group's agents over a rollout `[env, time]`.

    Where all agents act at once, one that is allowed no choice still gets rewards that belong to its earlier actions.

    Args:
        turn_based: the rollout is one of `own_turns`, and `values.next_value` belongs to the ends of those turns.
    """
    after, counts = rollout["next"], rollout[group, "acting" if turn_based else "alive"]
    return gae(
        after[group, "reward"].squeeze(-1) * counts,
        values.value * counts,
        values.next_value * counts,
        after[group, "terminated"].squeeze(-1),
        after[group, "done"].squeeze(-1) | after["done"],
        gamma=gamma,
        gae_lambda=gae_lambda,
        turns=counts if turn_based else None,
    )


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
    """Generalised advantage estimates.

        delta_t = r_t + gamma (1 - terminated_t) V(s_t+1) - V(s_t)
        A_t     = delta_t + gamma lambda (1 - done_t) A_t+1

    A terminated step has no future. A truncated step (done but not terminated) is bootstrapped with V(s_t+1), but the
    sum over later steps stops there: they belong to another episode.

    Args:
        reward, value, next_value: `[env, time, agent]`.
        terminated, done: `[env, time, agent]` bool.
        turns: `[env, time, agent]` bool, in turn-based games the steps at which an agent acts. Other steps are skipped,
            so that a turn is followed by the agent's next turn in the same episode. None: every step counts.
    Returns:
        A, `[env, time, agent]`.
    Source: Schulman et al. 2016, equation 16 (arXiv:1506.02438).
    """
    delta = torch.addcmul(reward - value, next_value, (~terminated).to(value.dtype), value=gamma)
    decay = (~done).to(value.dtype).mul_(gamma * gae_lambda)
    if turns is not None:
        # A_t = A_t+1 where the agent waits, but never that of the next episode
        delta, decay = delta * turns, torch.where(turns, decay, (~done).to(decay.dtype))
    by_time = delta.transpose(0, 1).contiguous()
    advantage, decays = by_time.unbind(), decay.transpose(0, 1).contiguous().unbind()
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t].addcmul_(decays[t], advantage[t + 1])  # in place: `by_time` becomes the result
    return by_time.transpose(0, 1)
