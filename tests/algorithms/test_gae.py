from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives.value.functional import generalized_advantage_estimate

from marlnb.algorithms.gae import gae, rollout_values
from marlnb.config import ModelConfig
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec

DISCRETE = ActionSpec("discrete", n=(5,))


def test_advantages_by_hand() -> None:
    """gamma 0.5, lambda 0.5; the second step is truncated (bootstrapped), the last terminated."""
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1)
    value = torch.tensor([10.0, 20.0, 30.0, 40.0]).view(1, 4, 1)
    next_value = torch.tensor([20.0, 8.0, 40.0, 100.0]).view(1, 4, 1)
    done = torch.tensor([False, True, False, True]).view(1, 4, 1)
    terminated = torch.tensor([False, False, False, True]).view(1, 4, 1)
    second, last = 2 + 0.5 * 8 - 20, 4 - 40
    expected = [1 + 0.5 * 20 - 10 + 0.25 * second, second, 3 + 0.5 * 40 - 30 + 0.25 * last, last]
    got = gae(reward, value, next_value, terminated, done, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(got.flatten(), torch.tensor(expected))


def test_advantages_equal_torchrls() -> None:
    shape = (5, 40, 3)
    reward, value, next_value = torch.randn(3, *shape)
    done = torch.rand(shape) < 0.2
    terminated = done & (torch.rand(shape) < 0.5)
    got = gae(reward, value, next_value, terminated, done, gamma=0.97, gae_lambda=0.9)
    for agent in range(3):
        columns = [x[..., agent : agent + 1] for x in (value, next_value, reward, done, terminated)]
        oracle, _ = generalized_advantage_estimate(0.97, 0.9, *columns)
        torch.testing.assert_close(got[..., agent : agent + 1], oracle, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize(
    "model", [MLPConfig(hidden=(8,)), GRUConfig(hidden=(8,), recurrent_size=4)], ids=lambda m: m.name
)
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("centralised", [True, False])
def test_values_of_a_rollout_equal_the_policys_moment_by_moment(
    dead: bool,
    model: ModelConfig,
    share: bool,
    centralised: bool,
    make_env: Callable[..., EnvSpec],
    make_rollout: Callable[..., TensorDict],
) -> None:
    torch.manual_seed(0)
    env = make_env(DISCRETE, state=(2,))
    model = type(model)(**{**vars(model), "share_parameters": share})
    policy = ActorCritic(env.group("walker"), env, model, model, centralised=centralised)
    policy.value_norm.update(torch.randn(100) * 5 - 3)
    rollout = make_rollout(env, {}, dead=dead)
    got = rollout_values(policy, rollout)
    for name in env.group_names:  # terminated agents are gone at the next step
        rollout["next", name, "observation"][rollout["next", name, "terminated"].squeeze(-1)] = 0.0

    def value(moments: TensorDict, t: int, recurrent: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        observations = {name: moments[name, "observation"][:, t] for name in env.group_names}
        with torch.no_grad():
            return policy.value(observations, state=moments["state"][:, t], recurrent=recurrent)

    shape = policy.critic_recurrent_shape
    recurrent = None if shape is None else torch.zeros(4, policy.group.n_agents, *shape)
    values, finals = [], []
    for t in range(20):
        if recurrent is not None:
            recurrent = torch.where(rollout["is_init"][:, t, :, None, None], 0.0, recurrent)
        now, recurrent = value(rollout, t, recurrent)
        values.append(now)
        finals.append(value(rollout["next"], t, recurrent)[0])
    torch.testing.assert_close(got.value, torch.stack(values, 1))
    ended = rollout["next", "walker", "done"].squeeze(-1) | rollout["next", "done"]
    ended[:, -1] = True
    following = torch.stack([*values[1:], values[-1]], 1)
    torch.testing.assert_close(got.next_value, torch.where(ended, torch.stack(finals, 1), following))
    assert (got.state_in is None) == (model.name == "mlp")


@pytest.mark.parametrize("by_mask", [False, True])
@pytest.mark.parametrize("centralised", [True, False], ids=["mlp of all", "gnn"])
def test_the_value_after_anothers_death_is_that_of_the_next_row_also_where_the_rollout_ends(
    centralised: bool, by_mask: bool, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    """walker_2 and other_0 die in the third step, with which the shorter rollout ends."""
    torch.manual_seed(0)
    env, model = make_env(DISCRETE), MLPConfig(hidden=(8,)) if centralised else GNNConfig(hidden=(8,), rounds=(8,))
    policy = ActorCritic(env.group("walker"), env, model, model, centralised=centralised)
    whole = make_rollout(env, {}, dead=True)
    got = rollout_values(policy, whole[:, :3], by_mask=by_mask)
    torch.testing.assert_close(got.next_value[:, 2, :2], rollout_values(policy, whole).value[:, 3, :2])


def test_a_critics_state_continues_in_the_next_rollout(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    torch.manual_seed(0)
    env, model = make_env(DISCRETE), GRUConfig(hidden=(8,), recurrent_size=4)
    policy = ActorCritic(env.group("walker"), env, model, model)
    whole = make_rollout(env, {})
    expected = rollout_values(policy, whole)
    first = rollout_values(policy, whole[:, :12])
    second = rollout_values(policy, whole[:, 12:], first.state_out)
    torch.testing.assert_close(torch.cat((first.value, second.value), 1), expected.value)
    assert expected.state_in is not None and second.state_in is not None
    torch.testing.assert_close(second.state_in, expected.state_in[:, 12:])
