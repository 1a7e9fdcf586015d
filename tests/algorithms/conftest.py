"""Rollouts made by hand: random experience of two groups, with episodes that end and agents that die."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from tensordict import TensorDict

from marlnb.models.policies.policy import Policy
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec


def two_groups(action: ActionSpec, *, state: tuple[int, ...] | None = None) -> EnvSpec:
    walkers = tuple(f"walker_{index}" for index in range(3))
    return EnvSpec(
        "test/two_groups",
        (
            GroupSpec("walker", walkers, ObservationSpec((6,)), action),
            GroupSpec("other", ("other_0",), ObservationSpec((2,)), ActionSpec("discrete", n=(2,))),
        ),
        state_shape=state,
    )


def random_rollout(
    env: EnvSpec, policies: Mapping[str, Policy], *, n_envs: int = 4, steps: int = 20, seed: int = 0, dead: bool = False
) -> TensorDict:
    """Episodes of 7 steps, every second one terminated rather than truncated.

    dead: the last agent of each group dies (terminated) at the episode's third step and stays dead in it.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(n_envs, steps, *shape, generator=generator)

    t = torch.arange(steps)
    ends, terminal = t % 7 == 6, (t // 7) % 2 == 1
    rollout = TensorDict({}, [n_envs, steps])
    rollout["is_init"] = (t % 7 == 0).expand(n_envs, steps).unsqueeze(-1).clone()
    rollout["next", "done"] = ends.expand(n_envs, steps).unsqueeze(-1).clone()
    if env.state_shape is not None:
        rollout["state"], rollout["next", "state"] = normal(*env.state_shape), normal(*env.state_shape)
    for group in env.groups:
        name, n = group.name, group.n_agents
        alive = torch.ones(n_envs, steps, n, dtype=torch.bool)
        terminated = (ends & terminal)[None, :, None].expand(n_envs, steps, n).clone()
        truncated = (ends & ~terminal)[None, :, None].expand(n_envs, steps, n).clone()
        if dead:
            alive[..., -1] = t % 7 < 3
            terminated[..., -1], truncated[..., -1] = t % 7 == 2, False
        observation = normal(n, *group.observation.shape) * alive.unsqueeze(-1)
        rollout[name, "observation"] = observation
        following = observation.roll(-1, 1)
        final = normal(n, *group.observation.shape)
        ended = (terminated | truncated).unsqueeze(-1)
        ended[:, -1] = True
        rollout["next", name, "observation"] = torch.where(ended, final, following)
        rollout[name, "alive"], rollout[name, "acting"] = alive, alive.clone()
        rollout["next", name, "alive"] = alive.roll(-1, 1)
        rollout["next", name, "reward"] = normal(n, 1)
        rollout["next", name, "terminated"] = terminated.unsqueeze(-1)
        rollout["next", name, "truncated"] = truncated.unsqueeze(-1)
        rollout["next", name, "done"] = (terminated | truncated).unsqueeze(-1)
        if name in policies:
            _act(rollout, name, policies[name], generator)
    return rollout


def _act(rollout: TensorDict, name: str, policy: Policy, generator: torch.Generator) -> None:
    n_envs, steps = rollout.batch_size
    recurrent, state_in, outputs = policy.initial_recurrent(n_envs, "cpu"), [], []
    for t in range(steps):
        if recurrent is not None:
            recurrent = torch.where(rollout["is_init"][:, t, :, None, None], 0.0, recurrent)
            state_in.append(recurrent)
        output = policy.act(rollout[name, "observation"][:, t], recurrent=recurrent, generator=generator)
        recurrent = output.recurrent
        outputs.append(output)
    if state_in:
        rollout[name, "recurrent"] = torch.stack(state_in, 1)
    rollout[name, "action"] = torch.stack([output.action for output in outputs], 1)
    rollout[name, "log_prob"] = torch.stack([output.log_prob for output in outputs], 1)
    for key in outputs[0].extras:
        rollout[name, key] = torch.stack([output.extras[key] for output in outputs], 1)


@pytest.fixture
def make_env() -> Callable[..., EnvSpec]:
    return two_groups


@pytest.fixture
def make_rollout() -> Callable[..., TensorDict]:
    return random_rollout
